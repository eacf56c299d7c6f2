"""`penstock cluster cost`: measured at the metrics of brokers, or foretold."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from penstock.cli.cluster_cost import measure
from penstock.cli.errors import CommandError
from penstock.storage.counted import BucketMeter, CountedObjects
from penstock.storage.prices import EXPRESS, STANDARD, Traffic, forecast
from penstock.testing import MemoryObjects
from tests.cli.harness import Command
from tests.server.harness import Running

COMMAND = Command({"PENSTOCK_OUTPUT": "json"}, lambda: None)


def page(puts: int, gets: int, sent: int = 0, journal: int = 0) -> str:
    """What a broker tells of its bucket: two thirds of the puts were creates, one of them refused."""
    meter = BucketMeter()
    meter.requests.update({("create", "done"): puts - puts // 3 - 1, ("create", "exists"): 1})
    meter.requests.update(
        {("put", "done"): puts // 3, ("get", "done"): gets - gets // 2, ("get", "missing"): gets // 2}
    )
    meter.bytes["sent", "piece"] = sent
    return page_of(meter, journal)


def page_of(meter: BucketMeter, journal: int = 0) -> str:
    """The metrics that count a bucket, as a server tells them."""
    requests = [
        f'penstock_bucket_requests_total{{operation="{operation}",outcome="{outcome}"}} {count}.0'
        for (operation, outcome), count in meter.requests.items()
    ]
    moved = [
        f'penstock_bucket_bytes_total{{direction="{direction}",kind="{kind}"}} {count}.0'
        for (direction, kind), count in meter.bytes.items()
    ]
    heads = [f"# TYPE {name} counter" for name in ("penstock_bucket_requests_total", "penstock_bucket_bytes_total")]
    of_the_journal = ["# TYPE penstock_journal_bytes gauge", f"penstock_journal_bytes {journal}.0", ""]
    return "\n".join([heads[0], *requests, heads[1], *moved, *of_the_journal])


def looks(*pages: str) -> Callable[[], str]:
    left = iter(pages)
    return lambda: next(left)


def test_rates_are_those_between_two_looks() -> None:
    times = iter([100.0, 105.0])
    pages = looks(page(60, 20, 1000, 5), page(110, 40, 6000, 7))
    traffic = measure(pages, 5.0, lambda _: None, lambda: next(times))
    assert traffic == Traffic(puts=10.0, gets=4.0, uploaded_bytes=1000.0, stored_bytes=7.0)


def test_everything_that_is_asked_of_a_bucket_is_in_the_sum() -> None:
    meter = BucketMeter()
    objects = CountedObjects(MemoryObjects(), meter)
    before = page(0, 0)
    for name in ("a", "b", "a"):
        objects.create(name, b"123")
    objects.put("c", b"4567")
    assert [objects.get("a"), objects.get("nothing"), objects.get_range("c", 1, 2)] == [b"123", None, b"56"]
    assert objects.list("") == ["a", "b", "c"]
    objects.delete(["a"])
    times = iter([0.0, 1.0])
    traffic = measure(looks(before, page_of(meter)), 1.0, lambda _: None, lambda: next(times))
    assert traffic == Traffic(puts=4, lists=1, gets=3, deletes=1, uploaded_bytes=10, downloaded_bytes=5)


def test_counts_that_went_with_their_broker_are_not_taken_for_others() -> None:
    times = iter([0.0, 10.0])
    with pytest.raises(CommandError, match="a broker has ended"):
        measure(looks(page(600, 90), page(500, 95)), 10.0, lambda _: None, lambda: next(times))


class Broker(HTTPServer):
    """Serves metrics that grow by ten puts with each look, to whoever has the token."""

    def __init__(self) -> None:
        self.puts = 0
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Broker

    def do_GET(self) -> None:
        allowed = (self.path, self.headers["Authorization"]) == ("/metrics", "Bearer secret")
        self.server.puts += 10
        self.send_response(200 if allowed else 401)
        self.end_headers()
        self.wfile.write(page(self.server.puts, 0).encode())

    def log_message(self, format: str, *_: object) -> None:  # noqa: A002 - as it is called
        pass


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_the_cost_is_measured_at_the_http_ports_of_brokers(broker: Broker) -> None:
    options = ("--seconds", "0.1", "--token", "secret", "--stored", "100GB")
    found = json.loads(COMMAND.ok("cluster", "cost", broker.address, *options))
    assert 5 < found["per_second"]["puts"] <= 100  # ten in a tenth of a second, on a busy machine in more
    traffic = Traffic(**found["per_second"])
    assert traffic.stored_bytes == 100e9
    assert found["dollars"] == {prices.name: traffic.dollars(prices) for prices in (STANDARD, EXPRESS)}


def test_who_is_refused_is_told_what_to_give(broker: Broker) -> None:
    assert "401" in COMMAND.refused("cluster", "cost", broker.address, code=1)


def test_a_server_without_a_bucket_costs_nothing_here(tmp_path: Path, nobody: str) -> None:
    with Running(tmp_path, http_port=0) as server:
        said = COMMAND.refused("cluster", "cost", "{}:{}".format(*server.server.addresses["http"]), code=1)
    assert "no bucket" in said
    assert "Connection refused" in COMMAND.refused("cluster", "cost", nobody, code=3)


def test_a_forecast_needs_no_server() -> None:
    found = json.loads(COMMAND.ok("cluster", "cost", "--shards", 4, "--interval", "250ms", "--members", 3))
    assert Traffic(**found["per_second"]) == forecast(4, 0.25, 3)
    said = COMMAND.ok("cluster", "cost", "--shards", 4, "-o", "table")
    assert said.startswith("foretold for 4 busy shards, a commit every 100ms, 3 brokers\n")
    assert said.splitlines()[-1].split() == ["total", "631.96", "138.13"]


def test_what_is_measured_is_not_foretold() -> None:
    COMMAND.refused("cluster", "cost", "127.0.0.1:1", "--shards", 4, code=2)
    COMMAND.refused("cluster", "cost", "--interval", "0s", code=2)
