"""The main job, for real: interrupted with Ctrl-C, run again until it is done, and everything that it made checked."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, Self

import duckdb
import pyarrow as pa
import pytest

import penstock
from examples.orders.results import read_minutes
from examples.orders.shop import CUSTOMERS
from penstock.model.names import PRIORITIES
from tests.server.harness import until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1500)]
ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PENSTOCK_NATIVE_PORT": "0", "PENSTOCK_HTTP_PORT": "0", "PENSTOCK_LINE_PORT": "off"}
PATIENCE_S = 400.0
ROWS = re.compile(r"pipeline shop \w+: ([\d,]+) rows")
FATES = ("acked", "ready", "leased", "delayed", "retrying", "dead", "lapsed", "withdrawn", "skipped", "lost")


class Job:
    """`make run` without make, in a session of its own; what it says goes to a file."""

    def __init__(self, place: Path, said: Path, *options: str) -> None:
        command = [sys.executable, "-m", "examples.orders.run", "--dir", str(place), "--rate", "100", *options]
        self._said = said
        with said.open("wb") as out:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=ENVIRONMENT, stdout=out, stderr=out, start_new_session=True
            )

    def said(self) -> str:
        return self._said.read_text()

    def rows(self) -> int:
        """How many rows the pipeline has told of."""
        assert self.process.poll() is None, self.said()
        found = ROWS.findall(self.said())
        return int(found[-1].replace(",", "")) if found else 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()


def results(place: Path) -> str:
    command = [sys.executable, "-m", "examples.orders.results", "--dir", str(place)]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def descendants(pid: int) -> set[int]:
    """All processes that a process started, and those that these did."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found, ahead = set[int](), [pid]
    while ahead:
        children = [child for child, parent in parents.items() if parent == ahead[-1]]
        ahead.pop()
        found.update(children)
        ahead += children
    return found


def alive(pids: set[int]) -> set[int]:
    return {pid for pid in pids if Path(f"/proc/{pid}").exists()}


class Ran(NamedTuple):
    """What two runs left behind, and what `make results` said during the first and after the second."""

    place: Path
    meanwhile: str
    afterwards: str


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The first run is ended by Ctrl-C while everything is busy, the second ends when all is done."""
    directory = tmp_path_factory.mktemp("main-job")
    place = directory / "demo"
    with Job(place, directory / "first.txt") as first:
        until(lambda: first.rows() > 0, "a row of the pipeline", PATIENCE_S)
        started = descendants(first.process.pid)
        assert len(started) > 3  # the workers, the pipeline, its Java and what that runs
        meanwhile = results(place)
        first.process.send_signal(signal.SIGINT)
        assert first.process.wait(PATIENCE_S) == 0, first.said()
        until(lambda: not alive(started), f"the end of {started}")
        order = re.findall(r"stopping the (\w+)", first.said())
        assert order == ["pipeline", "workers", "broker"]
    with Job(place, directory / "second.txt", "--seconds", "2") as second:
        until(lambda: not alive({second.process.pid}) or second.rows() > 0, "a row of the pipeline", PATIENCE_S)
        started = descendants(second.process.pid)
        assert second.process.wait(PATIENCE_S) == 0, second.said()
        assert "not everything was done" not in second.said()
        until(lambda: not alive(started), f"the end of {started}")
    return Ran(place, meanwhile, results(place))


@pytest.fixture(scope="module")
def broker(ran: Ran) -> Iterator[penstock.Broker]:
    with penstock.open(ran.place / "data") as opened:
        yield opened


@pytest.fixture(scope="module")
def orders(broker: penstock.Broker) -> list[penstock.StoredMessage]:
    return list(broker.read("orders"))


@pytest.fixture(scope="module")
def good(orders: list[penstock.StoredMessage]) -> dict[str, dict[str, Any]]:
    """Orders that are JSON, by id, with their priority."""
    found = {}
    for message in orders:
        with contextlib.suppress(ValueError):
            order = json.loads(message.value)
            found[order["id"]] = {**order, "priority": message.priority}
    return found


def test_every_order_was_published_once_over_both_runs(orders: list[penstock.StoredMessage]) -> None:
    numbers = sorted(int(found[1]) for order in orders if (found := re.search(rb"o-(\d{7})", order.value)))
    assert numbers == list(range(len(orders)))
    assert len(orders) > 3000


def test_every_good_order_was_enriched_and_routed_once(
    broker: penstock.Broker, good: dict[str, dict[str, Any]]
) -> None:
    tiers = {line.split(",")[0]: line.split(",")[4] for line in CUSTOMERS.read_text().splitlines()[1:]}
    routed: Counter[str] = Counter()
    for topic, urgent in (("orders-urgent", True), ("orders-standard", False)):
        for message in broker.read(topic):
            found = json.loads(message.value)
            order = good[found["id"]]
            routed[found["id"]] += 1
            assert (message.priority < PRIORITIES["normal"]) is urgent
            assert message.priority == order["priority"]
            assert found["tier"] == tiers.get(order["customer"], "guest")
            assert (message.key or b"").decode() == order["customer"]
            assert (found["amount"], found["country"]) == (order["amount"], order["country"])
    assert routed == Counter(dict.fromkeys(good, 1))


def test_the_minutes_are_those_of_an_independent_computation(
    ran: Ran, broker: penstock.Broker, good: dict[str, dict[str, Any]]
) -> None:
    place = ran.place
    names = {number: name for name, number in PRIORITIES.items()}
    table = pa.table(
        {
            "placed_at": [datetime.fromisoformat(order["placed_at"]).astimezone(UTC) for order in good.values()],
            "country": [order["country"] for order in good.values()],
            "priority": [names[order["priority"]] for order in good.values()],
            "amount": [Decimal(str(order["amount"])) for order in good.values()],
        }
    )
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("orders", table)
        expected = connection.execute(
            "SELECT date_trunc('minute', placed_at)::TIMESTAMP, country, priority, count(*), sum(amount)"
            " FROM orders GROUP BY ALL"
        ).fetchall()
        columns = "minute::TIMESTAMP, country, priority, orders, amount, date"
        files = f"{place}/tables/minutes/date=*/*.parquet"
        found = connection.execute(f"SELECT {columns} FROM read_parquet('{files}')").fetchall()
    rows = sorted(row[:5] for row in found)
    closed = max(row[0] for row in rows)
    assert rows == sorted(row for row in expected if row[0] <= closed)
    assert len({row[0] for row in rows}) >= 9
    assert all(row[0].date() == row[5] for row in found)
    assert sorted(map(_as_row, read_minutes(place / "tables" / "minutes").to_pylist())) == rows
    sent = [json.loads(message.value, parse_float=Decimal) for message in broker.read("order-minutes")]
    assert sorted(_as_row({**row, "minute": datetime.fromisoformat(row["minute"])}) for row in sent) == rows


def _as_row(row: dict[str, Any]) -> tuple[Any, ...]:
    minute = row["minute"].replace(tzinfo=None)  # both are UTC
    return minute, row["country"], row["priority"], row["orders"], Decimal(row["amount"])


def test_what_is_no_JSON_is_a_dead_letter_of_the_pipeline_with_its_cause_once(
    broker: penstock.Broker, orders: list[penstock.StoredMessage], good: dict[str, dict[str, Any]]
) -> None:
    letters = [letter for letter in broker.dead_letters("orders") if letter.group.startswith("shop")]
    bad = [str(order.id) for order in orders if not _is_json(order.value)]
    assert sorted(str(letter.origin) for letter in letters) == sorted(bad)
    assert len(bad) == len(orders) - len(good) > 5
    assert {letter.cause for letter in letters} == {"the value is not an object of JSON"}


def _is_json(value: bytes) -> bool:
    try:
        json.loads(value)
    except ValueError:
        return False
    return True


def test_the_workers_did_everything_and_gave_up_what_cannot_be_done(
    broker: penstock.Broker, orders: list[penstock.StoredMessage], good: dict[str, dict[str, Any]]
) -> None:
    causes = Counter(letter.cause for letter in broker.dead_letters("orders") if letter.group == "billing")
    expired = sum(order["payment"] == "expired card" for order in good.values())
    assert causes == {"the card has expired": expired, "it is not JSON": len(orders) - len(good)}
    given_up = [letter for letter in broker.dead_letters("orders") if letter.cause == "the card has expired"]
    assert all(letter.deliveries >= 3 for letter in given_up)
    for group in broker.groups():  # Q1
        assert group.published == sum(getattr(group, fate) for fate in FATES), group
        assert group.topic == "order-minutes" or group.lag == 0, group


def test_results_tell_of_it_while_it_runs_and_when_it_has_stopped(ran: Ran) -> None:
    assert "running" in ran.meanwhile
    minutes = len(set(read_minutes(ran.place / "tables" / "minutes")["minute"].to_pylist()))
    assert len(re.findall(r"^ *\d{4}-\d\d-\d\d \d\d:\d\d ", ran.afterwards, re.MULTILINE)) == min(minutes, 15)
    assert "the card has expired" in ran.afterwards
    for told in (ran.meanwhile, ran.afterwards):
        assert "billing" in told
        assert "NO" not in told
