"""The page for Prometheus: it has every metric, each of them moves, and it stays small."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.journal.layout import file_name
from penstock.model.config import BrokerConfig
from penstock.model.message import Message
from penstock.model.pipelines import PipelineReport, PipelineState, QueryReport
from penstock.server.metrics import process
from penstock.server.metrics.catalogue import METRICS
from penstock.server.metrics.member import MemberMeter
from penstock.server.metrics.metrics import Metrics
from penstock.shard.metering.meters import OTHER
from penstock.shard.shard import Shard
from penstock.storage.counted import BucketMeter, CountedObjects
from penstock.storage.object_cache import ObjectCache
from penstock.storage.objects import Range
from penstock.testing import FaultyStorage, MemoryObjects, MemoryStorage
from tests.server.metrics_harness import Page, TickingClock, Watched, metrics_of, promtool, watched


@pytest.fixture
def world() -> Iterator[Watched]:
    with watched() as opened:
        yield opened


def total(page: Page, name: str) -> float:
    """The sum of all that a metric tells; of histograms, how much they have seen."""
    is_histogram = METRICS[name].kind == "histogram"
    samples = page.families[name].samples.items()
    return sum(value for (sample, _), value in samples if not is_histogram or sample.endswith("_count"))


# Every metric.


def test_the_page_has_what_the_catalogue_lists(world: Watched) -> None:
    world.broker.publish("t", "x")
    world.broker.create_group("t", "g", max_in_flight=7)
    world.broker.consumer("t", "g").close()
    world.metrics.request("native", "publish", 0.001, failed=True)
    world.metrics.pipelines.take(pipeline("p", lag=1))
    use_bucket(world.metrics)
    page = world.page()
    assert list(page.families) == list(METRICS)
    for name, metric in METRICS.items():
        family = page.families[name]
        assert (family.kind, family.help) == (metric.kind, metric.help)
        assert family.samples, name
        for _, pairs in family.samples:
            assert {label for label, _ in pairs} - {"le"} == set(metric.labels), name


def test_names_and_texts_are_what_promtool_wants(world: Watched) -> None:
    do_everything(world, [])
    page = world.metrics.render()
    assert promtool("check", "metrics", given=page) == ""
    assert world.metrics.content_type == "text/plain; version=0.0.4; charset=utf-8"


def test_every_metric_moves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(process, "INTERVAL_S", 0.001)
    pages: list[Page] = []
    small_files = watched(
        clock=TickingClock(), journal_file_bytes="64KiB", journal_files_max=2, segment_min_bytes="16KiB"
    )
    with small_files as world, (tmp_path / "file").open("w"):
        pages.append(world.page())
        stop = threading.Event()
        thread = threading.Thread(target=stop.wait)
        thread.start()
        memory = bytearray(32 << 20)
        do_everything(world, pages)
        stop.set()
        thread.join()
        assert len(memory) == 32 << 20
    pages += [page_after_a_crash(), page_of_a_frozen_broker()]
    unmoved = [name for name in METRICS if len({total(page, name) for page in pages}) == 1]
    assert unmoved == ["penstock_build_info"]  # its labels tell, and its value is always 1
    assert len({page.labels("penstock_build_info", "sync").pop() for page in pages}) == 2


def use_bucket(metrics: Metrics) -> None:
    """Have some requests to a bucket counted, and shards that come and go."""
    meter = metrics.bucket = metrics.bucket or BucketMeter()
    objects, cache = CountedObjects(MemoryObjects(), meter), ObjectCache(1 << 20, meter=meter)
    objects.create("journal/1/0", b"piece")
    for _ in range(2):
        cache.read(objects, [Range("journal/1/0", 0, 5)])
    meter.counting(lambda _: None)(1)
    member = metrics.member = metrics.member or MemberMeter(lambda: 1.5, lambda: 3)
    member.claims["taken"] += 1
    member.handed_over += 1
    member.lost += 1
    for shard in metrics.shards:
        shard.storage.epoch += 1  # type: ignore[misc]


def do_everything(world: Watched, pages: list[Page]) -> None:
    """Have everything happen that is counted, with a page now and then."""
    broker, metrics = world.broker, world.metrics
    broker.create_topic("t", max_deliveries=2, retry_backoff=10, retention_age="1d")
    with broker.consumer("t", "g", visibility_timeout=60) as consumer:
        broker.publish_many("t", ["x" * 100] * 6)
        broker.publish_many("t", [Message("later", delay=5), Message("short", expires_in=1)])
        ack, fail, kill, release, *late = consumer.receive(6)
        broker.pause_group("t", "g")
        pages.append(world.page())
        broker.resume_group("t", "g")
        ack.ack()
        fail.fail("no milk")
        kill.kill("poison")
        release.release()
        pages.append(world.page())
        world.pass_time(120)
        consumer.ack(consumer.receive(10))
        pages.append(world.page())
        assert len(late) == 2
    broker.redrive("t")
    metrics.pipelines.take(pipeline("p", lag=3, batches=1, rows=10, batch_seconds=0.5, state_rows=4))
    pages.append(world.page())
    metrics.pipelines.take(pipeline("p", PipelineState.FAILED, restarts=2))
    pages.append(world.page())
    for turn in range(3):
        broker.publish("small", f"{turn}")
        broker.publish_many("big", ["x" * 1000] * 60)
        broker._backgrounds[0].settler.settle()
    with broker.consumer("big", "g") as consumer:
        consumer.ack(consumer.receive(1))  # read from a segment
    broker.settle()
    world.pass_time(3 * 86400)
    broker.retain()
    broker._backgrounds[0]._attempt("settling", lambda: 1 / 0)
    metrics.connection_opened("native")
    metrics.request("native", "publish", 0.001, failed=False)
    metrics.request("http", "publish", 0.001, failed=True)
    use_bucket(metrics)
    metrics.peers_refused += 1
    metrics.start()
    metrics.loop.call_later(0.02, metrics.loop.stop)
    metrics.loop.run_forever()
    metrics.stop()
    pages.append(world.page())
    broker.shard.publish("t", Message("not written yet"))
    pages.append(Page(metrics.render()))


def test_a_paused_group_and_the_other_settings_of_groups_are_shown(world: Watched) -> None:
    world.broker.create_topic("t")
    world.broker.create_group("t", "g", max_in_flight=7)
    world.broker.pause_group("t", "g")
    page = world.page()
    assert page.value("penstock_group_setting", topic="t", group="g", setting="paused") == 1
    assert page.value("penstock_group_setting", topic="t", group="g", setting="max_in_flight") == 7
    world.broker.resume_group("t", "g")
    assert world.page().find("penstock_group_setting", topic="t", group="g", setting="paused") is None


def test_what_a_group_lost_to_retention_is_in_no_lag_and_has_its_own_metric(world: Watched) -> None:
    world.broker.create_topic("t", retention_age="1d")
    world.broker.create_group("t", "g")
    world.broker.publish_many("t", ["x"] * 5)
    world.broker.settle()
    assert world.page().value("penstock_group_lost", topic="t", group="g") == 0
    world.pass_time(2 * 86400)
    world.broker.retain()
    page = world.page()
    assert page.value("penstock_group_lag", topic="t", group="g") == 0
    assert page.value("penstock_group_lost", topic="t", group="g") == 5


def page_after_a_crash() -> Page:
    """Of a broker that was killed in the middle of a write, and opened again with other options."""
    storage, clock = MemoryStorage(), TickingClock(0.003)
    shard = Shard(storage, BrokerConfig.parse({"min_free_bytes": 0}), clock)
    for value in ("first", "second" * 10):
        end = shard.journal.position()[1]
        shard.publish("t", Message(value))
        shard.journal.flush()
    storage.close()
    del storage.contents[file_name(1)][end + 70 :]
    options = {"sync": "interval", "min_free_bytes": 1, "max_unsettled_bytes": "4GiB"}
    again = Shard(storage, BrokerConfig.parse(options), clock)
    with metrics_of(again) as metrics:
        page = Page(metrics.render())
    again.close()
    return page


def page_of_a_frozen_broker() -> Page:
    storage = FaultyStorage()
    with watched(storage) as world:
        storage.fail("sync", errno.EIO)
        with pytest.raises(penstock.StorageFailed):
            world.broker.publish("t", "x")
        page = world.page()
        storage.heal()
    assert page.value("penstock_frozen") == 1
    assert page.value("penstock_journal_refused_total") == 1
    return page


# Groups.


def shown(page: Page, topic: str = "t", group: str = "g") -> dict[str, float | None]:
    names = ("lag", "ready", "leased", "delayed", "retrying", "oldest_unacked_seconds")
    return {name: page.find(f"penstock_group_{name}", topic=topic, group=group) for name in names}


def known(info: penstock.GroupInfo) -> dict[str, float | None]:
    return {
        "lag": info.lag,
        "ready": info.ready,
        "leased": info.leased,
        "delayed": info.delayed,
        "retrying": info.retrying,
        "oldest_unacked_seconds": info.oldest_unacked_s or 0.0,
    }


@pytest.mark.parametrize("order", ["lane", "key"])
@pytest.mark.parametrize("settle", [False, True])
def test_a_group_is_shown_as_the_broker_itself_tells(order: str, settle: bool) -> None:
    with watched() as world:
        broker = world.broker
        broker.create_topic("t", partitions=2, retry_backoff=30, order=order)
        broker.create_group("t", "g")
        for number in range(40):
            delay = "1h" if number % 7 == 0 else None
            life = 5 if number % 11 == 0 else None
            key = f"{number % 9}"
            broker.publish("t", f"{number}", key=key, priority=number % 3, delay=delay, expires_in=life)
            world.clock.advance(0.5)
        if settle:
            broker.settle()
        with broker.consumer("t", "g", visibility_timeout=600) as consumer:
            for step in (1, 5, 9):
                messages = consumer.receive(step)
                consumer.ack(messages[::3])
                consumer.fail(messages[1::3], "no milk")
                world.pass_time(10)
                assert shown(world.page()) == known(broker.group("t", "g"))
        world.pass_time(7200)
        assert shown(world.page()) == known(broker.group("t", "g"))


def test_a_group_that_nobody_used_since_the_start_is_left_alone() -> None:
    storage = MemoryStorage()
    with watched(storage) as world:
        world.broker.publish_many("t", ["a", "b", "c"])
        with world.broker.consumer("t", "g") as consumer:
            consumer.receive(1)[0].ack()
    with watched(storage) as world:
        world.clock.advance(60)
        page = world.page()
        assert shown(page) == {
            "lag": 2, "ready": None, "leased": 0, "delayed": None, "retrying": 0, "oldest_unacked_seconds": 60.0,
        }  # fmt: skip
        assert not world.broker.shard.dispatcher.in_use.all()
        with world.broker.consumer("t", "g"):
            assert shown(world.page())["ready"] == 2
            assert world.page().value("penstock_group_members", topic="t", group="g") == 1


def test_S6_the_lag_of_a_reader_that_keeps_its_own_position_is_shown(world: Watched) -> None:
    world.broker.publish_many("t", ["a", "b", "c"])
    world.broker.checkpoint_group("t", "spark", {0: 1})
    world.clock.advance(5)
    found = shown(world.page(), group="spark")
    assert (found["lag"], found["ready"], found["leased"], found["oldest_unacked_seconds"]) == (2, 2, 0, 5.0)


# Pipelines.


def pipeline(
    name: str, state: PipelineState = PipelineState.RUNNING, restarts: int = 0, queries: int = 1, **figures: Any
) -> PipelineReport:
    told = tuple(QueryReport(name=f"{name}.{number}", **figures) for number in range(queries))
    return PipelineReport(name=name, state=state, restarts=restarts, queries=told)


def test_a_pipeline_is_shown_as_it_told(world: Watched) -> None:
    figures: dict[str, Any] = {"lag": 7, "batches": 3, "rows": 120, "batch_seconds": 0.25, "state_rows": 9}
    world.metrics.pipelines.take(pipeline("orders", restarts=2, **figures))
    page = world.page()
    for name, value in figures.items():
        sample = f"penstock_pipeline_{name}_total" if name in ("batches", "rows") else f"penstock_pipeline_{name}"
        assert page.value(sample, pipeline="orders", query="orders.0") == value
    assert page.value("penstock_pipeline_restarts_total", pipeline="orders") == 2
    world.metrics.pipelines.take(pipeline("orders", lag=None))
    assert page_states(world.page()) == {"running": 1}
    assert world.page().find("penstock_pipeline_lag", pipeline="orders", query="orders.0") is None


def page_states(page: Page, name: str = "orders") -> dict[str, float]:
    states = [str(state) for state in PipelineState]
    found = {state: page.value("penstock_pipeline_state", pipeline=name, state=state) for state in states}
    assert page.value("penstock_pipeline_up", pipeline=name) == (found["running"] or found["starting"])
    return {state: value for state, value in found.items() if value}


def test_a_pipeline_that_says_nothing_is_silent_and_is_gone_after_a_day(world: Watched) -> None:
    world.metrics.pipelines.take(pipeline("orders"))
    world.clock.advance(61)
    assert page_states(world.page()) == {"silent": 1}
    assert world.page().value("penstock_pipelines", state="silent") == 1
    world.clock.advance(86400)
    page = world.page()
    assert page.families["penstock_pipeline_state"].samples == {}
    assert sum(page.families["penstock_pipelines"].samples.values()) == 0


def test_pipelines_and_queries_beyond_the_limit_are_counted_only() -> None:
    with watched(topics_max=3) as world:
        for number in range(5):
            world.metrics.pipelines.take(pipeline(f"p{number}", queries=2, rows=1))
        world.metrics.pipelines.take(pipeline("p0", PipelineState.STOPPED, queries=2, rows=1))  # keeps its place
        page = world.page()
        assert page.labels("penstock_pipeline_state", "pipeline") == {"p0", "p1", "p2"}
        assert page.labels("penstock_pipeline_rows_total", "query") == {"p0.0", "p0.1", "p1.0"}
        assert page.value("penstock_pipelines", state="running") == 4
        assert page.value("penstock_pipelines", state="stopped") == 1


# How much there is.


def test_topics_beyond_the_limit_are_shown_as_one() -> None:
    with watched(topics_max=2) as world:
        for name in ("a", "b", "c", "d"):
            world.broker.publish_many(name, ["x"] * 10)
            with world.broker.consumer(name, "g") as consumer:
                consumer.ack(consumer.receive(4))
        page = world.page()
        assert page.labels("penstock_topic_messages", "topic") == {"a", "b", OTHER}
        assert page.value("penstock_topic_published_total", topic=OTHER) == 20
        assert page.value("penstock_topic_messages", topic=OTHER) == 20
        assert page.value("penstock_group_acked_total", topic=OTHER, group=OTHER) == 8
        assert page.value("penstock_group_lag", topic=OTHER, group=OTHER) == 12
        assert (page.value("penstock_topics"), page.value("penstock_groups")) == (4, 4)


def test_no_counter_goes_down_when_topics_and_groups_come_and_go() -> None:
    with watched(topics_max=2) as world:
        broker, before = world.broker, dict[Any, float]()
        for turn in range(8):
            name = f"topic-{turn}"
            broker.publish(name, "x")
            for group in ("a", "b"):
                with broker.consumer(name, group) as consumer:
                    consumer.ack(consumer.receive())
            if turn % 2:
                broker.delete_topic(f"topic-{turn // 2}")
            page = world.page()
            counters = [name for name, metric in METRICS.items() if metric.kind == "counter"]
            now = {key: value for counter in counters for key, value in page.families[counter].samples.items()}
            assert [key for key, value in before.items() if now.get(key, value) < value] == []
            before = now


def test_the_oldest_topics_keep_their_series_after_a_restart() -> None:
    storage = MemoryStorage()
    for _ in range(2):
        with watched(storage, topics_max=2) as world:
            for name in ("old", "older", "new", "newer"):
                world.broker.publish(name, "x")
            assert world.page().labels("penstock_topic_messages", "topic") == {"old", "older", OTHER}


def test_a_page_of_thousands_of_topics_stays_small(world: Watched) -> None:
    shard = world.broker.shard
    for number in range(5000):
        shard.create_topic(f"a-topic-with-a-name-{number}", {"partitions": 1})
    for number in range(0, 400, 2):
        for group in ("billing", "shipping"):
            world.broker.create_group(f"a-topic-with-a-name-{number}", group)
    started_s = time.process_time()
    page = world.page()
    assert time.process_time() - started_s < 5  # it is a fiftieth of that; this machine is shared
    assert len(page.content) < 800_000
    assert page.value("penstock_topics") == 5000
    assert len(page.labels("penstock_topic_messages", "topic")) == 201


def test_requests_of_any_number_of_names_have_a_bounded_number_of_series(world: Watched) -> None:
    for number in range(1000):
        world.metrics.request("http", f"made-up-{number}", 0.001, failed=number % 2 == 0)
    page = world.page()
    assert len(page.labels("penstock_request_seconds", "operation")) == 65
    assert page.value("penstock_request_seconds_count", port="http", operation=OTHER) == 1000 - 64
    assert sum(page.families["penstock_request_failures_total"].samples.values()) == 500


def test_connections_are_counted_by_port(world: Watched) -> None:
    for port in ("native", "native", "line"):
        world.metrics.connection_opened(port)
    world.metrics.connection_closed("native")
    page = world.page()
    assert [page.value("penstock_connections", port=port) for port in ("native", "http", "line")] == [1, 0, 1]
    assert page.value("penstock_connections_opened_total", port="native") == 2
    assert world.metrics.connections == 2


def test_pages_are_made_in_threads_while_everything_goes_on(world: Watched) -> None:
    broker = world.broker

    def work(number: int) -> None:
        with broker.consumer(f"t-{number}", "g") as consumer:
            for turn in range(20):
                broker.publish_many(f"t-{number}", [f"{turn}"] * 10)
                consumer.ack(consumer.receive(10, wait=5))

    with ThreadPoolExecutor(4) as threads:
        done = [threads.submit(work, number) for number in range(2)]
        pages = [threads.submit(world.metrics.render) for _ in range(10)]
        for future in done:
            future.result(timeout=60)
        for page in pages:
            Page(page.result(timeout=60))
    assert sum(world.page().families["penstock_group_acked_total"].samples.values()) == 400
