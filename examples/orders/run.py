"""The main job: a broker, a stream of orders, workers, and a pipeline on Spark, in one terminal. `make run` runs it.

Everything is in one directory. Ctrl-C stops it; run again, it goes on where it was.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import penstock
from examples.orders.parts import ROOT, Child, ChildDied, Serving, asked_to_stop
from examples.orders.screen import TOPIC, Figures
from examples.orders.shop import CUSTOMERS, Shop
from examples.terminal import Screen
from penstock.embedded.broker import Broker
from penstock.model.errors import DirectoryLocked, PenstockError
from penstock.server.logs import set_up_logging

DIRECTORY = "penstock-demo"
RUNNING = "running.json"
"""In the directory while it runs: where the ports are."""
PIPELINE = Path(__file__).with_name("pipeline.yaml")
_TOPICS = {TOPIC: 2, "orders-urgent": 1, "orders-standard": 1, "order-minutes": 1}
"""How many partitions each has."""
_EARLIER = 3000
_EARLIER_S = 600
"""How many orders there are at the very first start, and over how long they came: so that there are whole minutes."""
_TICK_S = 0.2
_SETTLING_S = 180.0


class Publishing:
    """Publishes orders at a rate. Where it was is what is in the topic: an order is one message."""

    def __init__(self, broker: Broker, rate: float) -> None:
        self._broker = broker
        self._rate = rate
        self._shop = Shop()
        self.number = self._published()
        if self.number == 0:
            now = datetime.now(UTC)
            steps = (timedelta(seconds=_EARLIER_S * (1 - n / _EARLIER)) for n in range(_EARLIER))
            self._publish([now - step for step in steps])
        self._began_s = time.monotonic() - self.number / rate

    def publish_due(self) -> None:
        """Publish those whose time has come since the last call."""
        due = int((time.monotonic() - self._began_s) * self._rate) - self.number
        if due > 0:
            self._publish([datetime.now(UTC)] * due)

    def _publish(self, times: list[datetime]) -> None:
        orders = [self._shop.order(self.number + n, moment) for n, moment in enumerate(times)]
        self._broker.publish_many(TOPIC, orders)
        self.number += len(orders)

    def _published(self) -> int:
        known = {topic.name: topic for topic in self._broker.topics()}
        for name, partitions in _TOPICS.items():
            if name not in known:
                self._broker.create_topic(name, partitions=partitions)
        return sum(partition.end_offset for partition in known[TOPIC].partitions) if TOPIC in known else 0


def main() -> int:
    """Run it; the exit code."""
    options = _options()
    place: Path = options.dir.resolve()
    children = _children(place)
    screen = Screen()
    with asked_to_stop(children) as asked:
        try:
            with _everything(place, children, screen) as (serving, client):
                publishing = Publishing(serving.broker, options.rate)
                _show_parts(screen, place, serving, children, options.rate)
                with screen:
                    _work(asked, publishing, client, children, screen, options.seconds)
        except DirectoryLocked:
            print(f"error: another broker has {place / 'data'}: does `make run` run elsewhere?", file=sys.stderr)
            return 1
        except (ChildDied, PenstockError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        screen.say("  stopped; `make results` tells what was computed, `make run` goes on")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make run", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--dir", type=Path, default=ROOT / DIRECTORY, help=f"where all of it is (default {DIRECTORY})")
    parser.add_argument("--rate", type=_rate, default=30.0, help="orders a second (default 30)")
    parser.add_argument("--seconds", type=float, help="publish for so long, let all be done, and stop")
    return parser.parse_args()


def _rate(text: str) -> float:
    rate = float(text)
    if not 0 < rate <= 10_000:
        raise argparse.ArgumentTypeError("give more than 0 and at most 10000")
    return rate


def _children(place: Path) -> list[Child]:
    """The parts that are processes of their own, in the order in which they are started."""
    penstock_command = [sys.executable, "-m", "penstock.cli.main"]
    others = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    logs = place / "logs"
    worker = [*penstock_command, "worker", "examples.orders.workers:worker"]
    pipeline = [*penstock_command, "pipeline", "run", str(place / PIPELINE.name)]
    return [
        Child("workers", worker, logs / "workers.log", others),
        Child("pipeline", pipeline, logs / "pipeline.log", others),
    ]


@contextlib.contextmanager
def _everything(place: Path, children: list[Child], screen: Screen) -> Iterator[tuple[Serving, penstock.Client]]:
    """Start the broker and the children; end them in the other order, whatever happens."""
    (place / "logs").mkdir(parents=True, exist_ok=True)
    shutil.copy(PIPELINE, place)  # its paths are relative to the file: what it makes is in this directory
    shutil.copy(CUSTOMERS, place)
    set_up_logging("info", "text", (place / "logs" / "server.log").open("a"))
    with contextlib.ExitStack() as stack:
        serving = stack.enter_context(Serving(place / "data", os.environ))
        stack.callback(screen.say, "  stopping the broker")
        running = place / RUNNING
        running.write_text(json.dumps(serving.addresses))
        stack.callback(running.unlink, missing_ok=True)
        client = stack.enter_context(penstock.connect(serving.addresses["native"]))
        for child in children:
            child.environment["PENSTOCK_SERVER"] = serving.addresses["native"]
            stack.enter_context(child)
            stack.callback(screen.say, f"  stopping the {child.name}")
        yield serving, client


def _work(
    asked: threading.Event,
    publishing: Publishing,
    client: penstock.Client,
    children: list[Child],
    screen: Screen,
    seconds: float | None,
) -> None:
    """Publish and show until it is asked to stop, or until its time is over and everything is done."""
    over_s = None if seconds is None else time.monotonic() + seconds
    settled = False
    while not asked.wait(_TICK_S):
        for child in children:
            child.check()
        figures = Figures.of(client)
        screen.show(figures)
        if over_s is None or time.monotonic() < over_s:
            publishing.publish_due()
        elif figures.settled and settled:  # twice in a row: groups are looked at one after the other
            return
        elif time.monotonic() > over_s + _SETTLING_S:
            screen.say(f"  not everything was done {_SETTLING_S:.0f} s after the last order")
            return
        settled = figures.settled


def _show_parts(screen: Screen, place: Path, serving: Serving, children: list[Child], rate: float) -> None:
    """One screen that says what runs where."""
    near = _near(place)
    workers, pipeline = children
    rows = [
        ("broker", f"{serving.addresses['native']}, in this process; its data is in {near}/data"),
        ("dashboard", f"http://{serving.addresses['http']}" if "http" in serving.addresses else "off"),
        ("orders", f"{rate:g} a second into the topic {TOPIC}, from this process (examples/orders/shop.py)"),
        ("workers", f"examples/orders/workers.py, process {workers.pid}; log: {near}/logs/{workers.log.name}"),
        ("pipeline", f"{near}/{PIPELINE.name} on Spark, process {pipeline.pid}; log: {near}/logs/{pipeline.log.name}"),
        ("results", "`make results` in another terminal, or afterwards"),
        ("stop", "Ctrl-C"),
    ]
    screen.say("\n  Penstock: the main job\n")
    for name, told in rows:
        screen.say(f"  {name:<10} {told}")
    for moved in serving.moved:
        screen.say(f"  {'note':<10} {moved}: another is used")
    screen.say()


def _near(place: Path) -> str:
    """A path as short as it can be told."""
    return str(place.relative_to(Path.cwd())) if place.is_relative_to(Path.cwd()) else str(place)


if __name__ == "__main__":
    sys.exit(main())
