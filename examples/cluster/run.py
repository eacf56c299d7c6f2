"""A cluster on this machine: an object store, three brokers on it, publishers and consumers; `make cluster` runs it.

Every 20 seconds a broker is killed (kill -9), and started again some seconds later. The screen shows whether anything
that was acknowledged is lost. Ctrl-C ends all of it, and says what came of it.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Group

from examples.cluster.books import Books, Sums, told
from examples.cluster.brokers import ADDRESS, Broker, Brokers
from examples.cluster.load import TOPICS, Load
from examples.orders.parts import Child, ChildDied, asked_to_stop
from examples.terminal import Screen, table
from penstock.model.errors import PenstockError
from penstock.testing.seaweed import Seaweed

_BROKERS = 3
_TICK_S = 0.2
_PATIENCE_S = 60.0
_VERDICTS = {True: "nothing that was acknowledged is lost, nothing is there twice", False: "THIS IS WRONG"}


@dataclass
class Figures:
    """How things stand."""

    sums: Sums
    brokers: list[Broker]

    def line(self) -> str:
        """All of it, in short."""
        owners = ", ".join(f"{broker.number}: {_state(broker)}" for broker in self.brokers)
        return f"{_told(self.sums)} | takeover {told(self.sums.takeovers_s)} | {owners}"

    def drawn(self, clock: str) -> Group:
        """Who has what, and the books."""
        brokers = table("broker", "shards", "dashboard", "kills", left=3)
        for broker in self.brokers:
            brokers.add_row(str(broker.number), _state(broker), f"http://{broker.http}", str(broker.kills))
        return Group(f"  {clock}  {_told(self.sums)}", f"  last takeover: {told(self.sums.takeovers_s)}\n", brokers)


def _state(broker: Broker) -> str:
    if broker.killed_s is not None:
        return f"killed {time.monotonic() - broker.killed_s:.0f} s ago"
    return " ".join(map(str, broker.shards)) or "none"


def _told(sums: Sums) -> str:
    parts = [
        f"acknowledged {sums.acknowledged:,}",
        f"received {sums.received:,}",
        f"on the way {sums.waiting:,}",
        f"lost {sums.lost:,}",
        f"stored twice {sums.twice:,}",
        f"delivered again {sums.again:,}",
    ]
    return ", ".join([*parts, f"unanswered {sums.unanswered:,}"] if sums.unanswered else parts)


def main() -> int:
    """Run it; the exit code is 0 if nothing was lost."""
    options = _options()
    place = Path(tempfile.mkdtemp(prefix="penstock-cluster-"))
    store = Seaweed(place / "store")
    brokers = Brokers(_BROKERS, place, store.environment, options.every, min(options.every / 3, 6.0))
    books, screen = Books(), Screen()
    logging.basicConfig(filename=place / "load.log", level=logging.INFO)
    is_well = False
    with asked_to_stop([broker.child for broker in brokers.all]) as asked:
        try:
            with _store(store, place, screen), brokers.running(), Load(brokers.servers, options.rate, books) as load:
                _show_parts(screen, place, store, brokers, options)
                with screen:
                    _work(asked, brokers, load, books, screen, options.seconds)
                is_well = _judge(books.sums, screen)
        except (ChildDied, PenstockError, OSError, RuntimeError) as error:
            print(f"error: {error}", file=sys.stderr)
    if is_well:
        shutil.rmtree(place)
    else:
        screen.say(f"  what happened is in {place}")
    return 0 if is_well else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make cluster", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, help="run for so long, and stop")
    parser.add_argument("--rate", type=float, default=200.0, help="messages a second (default 200)")
    parser.add_argument("--every", type=float, default=20.0, help="seconds from one kill to the next (default 20)")
    return parser.parse_args()


@contextlib.contextmanager
def _store(store: Seaweed, place: Path, screen: Screen) -> Iterator[None]:
    """The store runs inside, and is killed behind it."""
    screen.say("\n  Penstock: a cluster on a bucket\n\n  starting the store")
    child = Child("store", store.command(), place / "store.log", {"HOME": str(place)})
    child.__enter__()
    try:
        store.wait(child.check)
        store.make_bucket()
        screen.say("  starting the brokers")
        yield
    finally:
        child.crash()  # asked to stop, it would take its time


def _work(
    asked: threading.Event, brokers: Brokers, load: Load, books: Books, screen: Screen, seconds: float | None
) -> None:
    """Kill brokers until it is asked to stop or its time is over; then let all that was acknowledged be received."""
    over_s = float("inf") if seconds is None else time.monotonic() + seconds
    while not asked.wait(_TICK_S) and time.monotonic() < over_s:
        load.check()
        brokers.disturb(books)
        screen.show(Figures(books.sums, brokers.all))
    brokers.restore()
    load.stop_publishing()
    over_s = time.monotonic() + _PATIENCE_S
    while not books.is_over and time.monotonic() < over_s:
        load.check()
        screen.show(Figures(books.sums, brokers.all))
        time.sleep(_TICK_S)


def _judge(sums: Sums, screen: Screen) -> bool:
    """Say what came of it; whether it is well."""
    screen.say(f"\n  {_told(sums)}")
    screen.say(f"  takeovers: {', '.join(f'{took_s:.1f} s' for took_s in sums.takeovers_s) or 'none'}")
    screen.say(f"  {_VERDICTS[sums.is_well]}")
    screen.say("  stopping the brokers and the store")
    return sums.is_well


def _show_parts(screen: Screen, place: Path, store: Seaweed, brokers: Brokers, options: argparse.Namespace) -> None:
    """One screen that says what runs where."""
    rows = [
        ("store", f"SeaweedFS on port {store.port}; the bucket is {ADDRESS}"),
        *((f"broker {one.number}", f"{one.native}, dashboard http://{one.http}") for one in brokers.all),
        ("load", f"{options.rate:g} messages a second into {len(TOPICS)} topics, two consumers"),
        ("kills", f"one broker every {options.every:g} s, kill -9"),
        ("logs", str(place)),
        ("stop", "Ctrl-C"),
    ]
    screen.say()
    for name, text in rows:
        screen.say(f"  {name:<10} {text}")
    screen.say()


if __name__ == "__main__":
    sys.exit(main())
