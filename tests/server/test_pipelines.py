"""What a server knows of pipelines: the newest report of each, bounded, silent after a minute, gone after a day."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.client import AsyncClient, Client
from penstock.model.errors import Forbidden, InvalidArgument, LimitExceeded
from penstock.model.pipelines import PipelineReport, PipelineState, QueryReport
from penstock.server.access.principal import Principal, Scope
from penstock.server.access.tokens import TokenFile
from penstock.server.pipeline_history import POINTS_MAX, QUERY_POINTS_MAX
from penstock.server.pipelines import QUERIES_MAX, Pipelines, PipelinesOf
from penstock.testing import VirtualClock
from tests.server.harness import Running, run

NOW_US = 1_800_000_000_000_000
ALL = Principal("all", frozenset({Scope.CONSUME, Scope.READ}))
AT_WORK = [PipelineState.STARTING, PipelineState.RUNNING, PipelineState.WAITING]
ENDED = [PipelineState.STOPPED, PipelineState.FINISHED, PipelineState.FAILED]


@pytest.fixture
def clock() -> VirtualClock:
    clock = VirtualClock()
    clock.advance(NOW_US / 1_000_000 - clock.wall_us() / 1_000_000)
    return clock


@pytest.fixture
def pipelines(clock: VirtualClock) -> Pipelines:
    return Pipelines(clock)


def told(name: str = "orders", state: PipelineState = PipelineState.RUNNING, **more: Any) -> PipelineReport:
    return PipelineReport(name=name, state=state, **more)


def states(pipelines: Pipelines) -> dict[str, str]:
    return {report.name: str(report.state) for report in pipelines.listed()}


# How they went.


def query(name: str, rows: int, lag: int | None = None) -> QueryReport:
    return QueryReport(name=name, rows=rows, lag=lag)


def test_the_history_has_rates_over_ten_seconds_and_begins_anew_with_the_query(
    pipelines: Pipelines, clock: VirtualClock
) -> None:
    for rows in (0, 100, 300, 900, 50):
        pipelines.take(told(queries=(query("q", rows, lag=7),)))
        clock.advance(6.0)
    points = pipelines.history("orders", 0)
    assert [point.time_s - NOW_US / 1_000_000 for point in points] == [0.0, 6.0, 12.0, 18.0, 24.0]
    rates = [rate for point in points for rate in point.rates]
    assert rates[1:4] == [100 / 6, 200 / 6, 100.0]
    assert math.isnan(rates[0]) and math.isnan(rates[4])
    assert [list(point.lags) for point in points] == [[7.0]] * 5
    assert pipelines.history("orders", points[2].time_s) == points[3:]
    assert pipelines.history("nobody", 0) == []


def test_reports_in_quick_succession_make_a_point_every_two_seconds(pipelines: Pipelines, clock: VirtualClock) -> None:
    for turn in range(101):
        pipelines.take(told(queries=(query("q", turn),)))
        clock.advance(0.1)
    times = [round(point.time_s - NOW_US / 1_000_000, 1) for point in pipelines.history("orders", 0)]
    assert times[-1] == 10.0 and len(times) <= 7
    clock.advance(290)
    pipelines.take(told(queries=(query("q", 102),)))
    clock.advance(60)
    pipelines.take(told(queries=(query("q", 103),)))
    assert len(pipelines.history("orders", 0)) == 2, "what is older than five minutes is gone"


def test_all_histories_together_are_bounded_and_go_with_their_pipelines(
    pipelines: Pipelines, clock: VirtualClock
) -> None:
    queries = tuple(query(f"q{number}", 1) for number in range(QUERIES_MAX))
    for turn in range(POINTS_MAX + 10):
        for number in range(20):
            pipelines.take(told(f"p{number}", queries=queries))
        pipelines.take(told("small", queries=(query("q", turn),)))
        clock.advance(2.0)
    lengths = [len(pipelines.history(f"p{number}", 0)) for number in range(20)]
    assert sum(lengths) * QUERIES_MAX <= QUERY_POINTS_MAX
    assert min(lengths) >= max(lengths) - 1 > 40, "the longest are shortened first"
    clock.advance(86_401.0)
    pipelines.take(told("another", queries=(query("q", 1),)))
    assert pipelines.history("p0", 0) == [] and pipelines._history._query_points == 1


# What is kept, and for how long.


def test_the_newest_report_of_each_name_is_kept(pipelines: Pipelines) -> None:
    pipelines.take(told("b", restarts=1))
    pipelines.take(told("a"))
    pipelines.take(told("b", PipelineState.FAILED, restarts=2, error="no milk"))
    assert [(report.name, report.restarts, report.error) for report in pipelines.listed()] == [
        ("b", 2, "no milk"),
        ("a", 0, None),
    ]
    assert [report.name for report in PipelinesOf(pipelines, ALL).pipelines()] == ["a", "b"]


@pytest.mark.parametrize("state", AT_WORK)
def test_one_that_was_at_work_is_silent_after_a_minute_and_back_with_its_next_report(
    pipelines: Pipelines, clock: VirtualClock, state: PipelineState
) -> None:
    pipelines.take(told(state=state))
    clock.advance(59.9)
    assert states(pipelines) == {"orders": state}
    clock.advance(0.2)
    assert states(pipelines) == {"orders": "silent"}
    pipelines.take(told(state=state))
    assert states(pipelines) == {"orders": state}


@pytest.mark.parametrize("state", ENDED)
def test_one_that_has_ended_has_nothing_more_to_say(
    pipelines: Pipelines, clock: VirtualClock, state: PipelineState
) -> None:
    pipelines.take(told(state=state))
    clock.advance(86399)
    assert states(pipelines) == {"orders": state}
    clock.advance(2)
    assert states(pipelines) == {}


def test_a_day_counts_from_the_last_report(pipelines: Pipelines, clock: VirtualClock) -> None:
    pipelines.take(told())
    clock.advance(50_000)
    pipelines.take(told())
    clock.advance(50_000)
    assert states(pipelines) == {"orders": "silent"}


# Whose clock it is.


@pytest.mark.parametrize("wrong_us", [0, 7_200_000_000, -7_200_000_000, 10**17, -NOW_US + 100_000_000])
def test_times_are_by_the_clock_of_the_server_whatever_that_of_the_pipeline_says(
    pipelines: Pipelines, clock: VirtualClock, wrong_us: int
) -> None:
    theirs_us = clock.wall_us() + wrong_us
    query = QueryReport(name="q", time_us=theirs_us - 5_000_000)
    pipelines.take(told(time_us=theirs_us, started_us=theirs_us - 60_000_000, queries=(query, QueryReport(name="r"))))
    (found,) = pipelines.listed()
    assert found.time_us == clock.wall_us()
    assert found.started_us == clock.wall_us() - 60_000_000
    assert [query.time_us for query in found.queries] == [clock.wall_us() - 5_000_000, 0]
    clock.advance(61)
    assert states(pipelines) == {"orders": "silent"}


def test_a_report_without_a_time_and_one_from_the_future_are_of_now_at_the_latest(
    pipelines: Pipelines, clock: VirtualClock
) -> None:
    later_us = clock.wall_us() + 10**15
    pipelines.take(told(started_us=later_us, queries=(QueryReport(name="q", time_us=later_us),)))
    (found,) = pipelines.listed()
    assert (found.time_us, found.started_us, found.queries[0].time_us) == (clock.wall_us(),) * 3


# How much it may be.


def test_there_are_a_thousand_pipelines_and_no_more_until_one_is_forgotten(
    pipelines: Pipelines, clock: VirtualClock
) -> None:
    for number in range(1000):
        pipelines.take(told(f"p{number}"))
        clock.advance(1)
    with pytest.raises(LimitExceeded, match="knows 1,000 pipelines"):
        pipelines.take(told("one-more"))
    pipelines.take(told("p999", restarts=1))  # those that are known are heard
    clock.advance(86400 - 999)
    pipelines.take(told("one-more"))
    assert "p0" not in states(pipelines)
    assert len(states(pipelines)) == 1000


def report(pipelines: Pipelines, given: Any, principal: Principal = ALL) -> None:
    PipelinesOf(pipelines, principal).report_pipeline(given)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (None, "not the report of a pipeline"),
        ("orders", "not the report of a pipeline"),
        ({}, "missing required field `name`"),
        ({"name": "p"}, "missing required field `state`"),
        ({"name": "p", "state": "asleep"}, "Invalid enum value"),
        ({"name": "p", "state": "running", "queries": [{}]}, "missing required field `name`"),
        ({"name": "p", "state": "running", "restarts": -1}, ">= 0"),
        ({"name": "p", "state": "running", "restarts": True}, "Expected `int`"),
        ({"name": "p", "state": "running", "time_us": 1 << 63}, "<="),
        ({"name": "p", "state": "running", "queries": [{"name": "q", "batch_seconds": float("nan")}]}, ">= 0"),
        ({"name": "p", "state": "running", "queries": [{"name": "q", "batch_seconds": float("inf")}]}, "<="),
        ({"name": "", "state": "running"}, "not the name of a pipeline"),
        ({"name": "two words", "state": "running"}, "not the name of a pipeline"),
        ({"name": "p\n", "state": "running"}, "not the name of a pipeline"),
        ({"name": "x" * 201, "state": "running"}, "not the name of a pipeline"),
        ({"name": "p", "state": "running", "queries": [{"name": "a/b"}]}, "not the name of a query"),
        ({"name": "p", "state": "running", "queries": [{"name": "q", "writes": ["a b"]}]}, "not a topic name"),
        ({"name": "p", "state": "running", "queries": [{"name": "q"}] * 2}, "the same name"),
        ({"name": "p", "state": "running", "queries": [{"name": f"{n}"} for n in range(101)]}, "101 queries"),
        ({"name": "p", "state": "running", "file": "x" * 1001}, "file has 1,001 characters"),
        ({"name": "p", "state": "silent"}, "silent is what a server says"),
    ],
)
def test_what_is_no_report_is_refused_and_leaves_nothing(pipelines: Pipelines, given: Any, problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        report(pipelines, given)
    assert pipelines.listed() == []


def test_all_that_is_wrong_is_said_at_once(pipelines: Pipelines) -> None:
    with pytest.raises(InvalidArgument) as refused:
        report(pipelines, {"name": "a b", "state": "silent", "file": "x" * 2000, "host": "x" * 2000})
    for part in ("silent is", "file has", "host has", "'a b' is not the name of a pipeline"):
        assert part in str(refused.value)


def test_an_error_of_any_length_is_kept_as_far_as_there_is_room(pipelines: Pipelines) -> None:
    report(pipelines, {"name": "p", "state": "failed", "error": "é" * 1_000_000})
    (found,) = pipelines.listed()
    assert found.error == "é" * 10_000 + "…"


def test_a_report_has_so_many_bytes_and_no_more(pipelines: Pipelines) -> None:
    queries = [{"name": f"{'q' * 190}{number}", "reads": ["t" * 100]} for number in range(100)]
    report(pipelines, {"name": "p", "state": "running", "queries": queries})
    for query in queries:
        query["reads"] = [f"{'t' * 190}{number}" for number in range(3)]
    with pytest.raises(LimitExceeded, match="and may have 64 KiB"):
        report(pipelines, {"name": "p", "state": "running", "queries": queries})
    assert len(pipelines.listed()[0].queries[0].reads) == 1


def test_a_newer_client_may_tell_more_than_this_server_knows(pipelines: Pipelines) -> None:
    report(pipelines, {"name": "p", "state": "running", "mood": "good", "queries": [{"name": "q", "colour": 1}]})
    assert states(pipelines) == {"p": "running"}


def test_any_number_of_threads_report_and_look(pipelines: Pipelines) -> None:
    def work(number: int) -> int:
        for turn in range(200):
            pipelines.take(told(f"p{(number + turn) % 20}"))
            pipelines.listed(ALL)
        return number

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(work, range(8))) == list(range(8))
    assert len(pipelines.listed()) == 20


# Who reports, and who sees it.


def somebody(name: str, *topics: str) -> Principal:
    return Principal(name, frozenset({Scope.CONSUME, Scope.READ}), topics)


def reading(name: str, *topics: str) -> dict[str, Any]:
    return {"name": name, "state": "running", "queries": [{"name": "q", "reads": topics[:1], "writes": topics[1:]}]}


def seen(pipelines: Pipelines, principal: Principal) -> list[str]:
    return [found.name for found in PipelinesOf(pipelines, principal).pipelines()]


def test_whoever_is_for_some_topics_reports_under_a_name_of_their_own(pipelines: Pipelines) -> None:
    report(pipelines, {"name": "orders", "state": "running"})
    report(pipelines, {"name": "orders", "state": "failed"}, somebody("shop", "orders*"))
    assert states(pipelines) == {"orders": "running", "shop.orders": "failed"}


def test_a_report_names_no_topics_of_others(pipelines: Pipelines) -> None:
    shop = somebody("shop", "orders*")
    for topics in (("bills",), ("orders", "bills"), ("orders", "bills.dlq")):
        with pytest.raises(Forbidden, match="may not use the topic 'bills"):
            report(pipelines, reading("p", *topics), shop)
    report(pipelines, reading("p", "orders", "orders.dlq"), shop)
    assert seen(pipelines, shop) == ["shop.p"]


def test_one_sees_ones_own_and_those_of_which_all_topics_are_ones_own(pipelines: Pipelines) -> None:
    shop, office = somebody("shop", "orders*"), somebody("office", "orders", "bills")
    report(pipelines, {"name": "unnamed", "state": "running"})
    report(pipelines, reading("mixed", "orders", "bills"))
    report(pipelines, reading("orders", "orders", "orders-urgent"))
    report(pipelines, {"name": "shop.unnamed", "state": "running"})  # not shop's, whatever it is called
    report(pipelines, {"name": "own", "state": "running"}, shop)
    assert seen(pipelines, ALL) == ["mixed", "orders", "shop.own", "shop.unnamed", "unnamed"]
    assert seen(pipelines, shop) == ["orders", "shop.own"]
    assert seen(pipelines, office) == ["mixed"]


# Through a server.


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Callable[..., Client]]:
    clients: list[Client] = []
    with Running(tmp_path, auth="tokens") as server:

        def start(name: str, *scopes: str, topics: tuple[str, ...] = ("*",)) -> Client:
            secret = TokenFile(tmp_path).create(name, scopes, topics).secret
            clients.append(Client(server.address, token=secret))
            return clients[-1]

        yield start
        for client in clients:
            client.close()


def test_a_client_reports_and_lists(tmp_path: Path) -> None:
    queries = (
        QueryReport(
            name="orders.urgent",
            reads=("orders",),
            writes=("orders-urgent",),
            batches=3,
            rows=90,
            rows_per_second=30.5,
            batch_seconds=0.2,
            lag=4,
            state_rows=7,
            time_us=1_000_000,
        ),
        QueryReport(name="orders.table"),
    )
    full = told(
        queries=queries, restarts=2, error="no milk", file="shop.yaml", host="here", pid=7, started_us=5, time_us=9
    )

    listed: list[PipelineReport] = []

    async def main() -> None:
        async with AsyncClient(server.address) as client:
            await client.report_pipeline(full)
            listed.extend(await client.pipelines())

    with Running(tmp_path) as server, Client(server.address) as client:
        assert client.pipelines() == []
        client.report_pipeline(told("another", PipelineState.STARTING))
        run(main())
        assert client.pipelines() == listed
        client.report_pipeline(told("another", PipelineState.FINISHED))
        assert [report.state for report in client.pipelines()] == ["finished", "running"]
    found = listed[1]
    assert found.time_us > 1_700_000_000_000_000
    same_times = replace(found, queries=queries, started_us=5, time_us=9)
    assert same_times == full


def test_what_was_told_is_gone_with_the_server(tmp_path: Path) -> None:
    for _ in range(2):
        with Running(tmp_path) as server, Client(server.address) as client:
            assert client.pipelines() == []
            client.report_pipeline(told())


def test_tokens_decide_what_is_reported_and_seen(connect: Callable[..., Client]) -> None:
    shop = connect("shop", "consume", "read", topics=("orders*",))
    shop.report_pipeline(told("orders", queries=(QueryReport(name="q", reads=("orders",)),)))
    with pytest.raises(Forbidden, match="'bills'"):
        shop.report_pipeline(told("orders", queries=(QueryReport(name="q", reads=("bills",)),)))
    admin = connect("boss", "admin")
    admin.report_pipeline(told("bills", queries=(QueryReport(name="q", reads=("bills",)),)))
    assert [report.name for report in shop.pipelines()] == ["shop.orders"]
    assert [report.name for report in admin.pipelines()] == ["bills", "shop.orders"]
    with pytest.raises(Forbidden, match="it takes the scope consume"):
        connect("publisher", "publish", "read").report_pipeline(told())
    with pytest.raises(Forbidden, match="it takes the scope read"):
        connect("consumer", "consume").pipelines()
