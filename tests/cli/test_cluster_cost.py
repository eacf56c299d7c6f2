"""`penstock cluster cost`: measured at the metrics of brokers, or foretold."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from penstock.cli.cluster_cost import measure
from penstock.storage.prices import EXPRESS, STANDARD, Traffic, forecast
from tests.cli.harness import Command
from tests.server.harness import Running

COMMAND = Command({"PENSTOCK_OUTPUT": "json"}, lambda: None)


def page(puts: int, gets: int, written: int = 0, stored: int = 0) -> str:
    """What a broker tells of its bucket: two thirds of the puts were creates, one of them refused."""
    requests = [("create", "done", puts - puts // 3 - 1), ("create", "exists", 1), ("put", "done", puts // 3)]
    requests += [("get", "done", gets - gets // 2), ("get_range", "done", gets // 2)]
    return "\n".join(
        [
            "# TYPE penstock_bucket_requests_total counter",
            *(
                f'penstock_bucket_requests_total{{operation="{name}",outcome="{outcome}"}} {count}.0'
                for name, outcome, count in requests
            ),
            "# TYPE penstock_bucket_bytes_total counter",
            f'penstock_bucket_bytes_total{{direction="written",kind="piece"}} {written}.0',
            "# TYPE penstock_journal_bytes gauge",
            f"penstock_journal_bytes {stored}.0",
            "",
        ]
    )


def looks(*pages: str) -> Callable[[], str]:
    left = iter(pages)
    return lambda: next(left)


def test_rates_are_those_between_two_looks_summed_over_brokers() -> None:
    times = iter([100.0, 101.0, 105.0, 111.0])
    first = looks(page(60, 20, 1000, 5), page(110, 20, 6000, 7))
    second = looks(page(9, 4), page(9, 24))
    traffic = measure([first, second], 5.0, lambda _: None, lambda: next(times))
    assert traffic == Traffic(puts=50 / 5, gets=20 / 10, uploaded_bytes=1000.0, stored_bytes=7.0)


def test_a_broker_that_was_started_again_counts_from_nothing() -> None:
    times = iter([0.0, 10.0])
    traffic = measure([looks(page(600, 90), page(30, 90))], 10.0, lambda _: None, lambda: next(times))
    assert (traffic.puts, traffic.gets) == (3.0, 0.0)


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
    assert said.splitlines()[-1].split() == ["total", "628.72", "138.96"]


def test_what_is_measured_is_not_foretold() -> None:
    COMMAND.refused("cluster", "cost", "127.0.0.1:1", "--shards", 4, code=2)
    COMMAND.refused("cluster", "cost", "--interval", "0s", code=2)
