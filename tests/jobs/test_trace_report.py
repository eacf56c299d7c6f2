"""trace-report: every figure against pandas, the same files each time, and a page that a real browser likes."""

from __future__ import annotations

import pickle
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock.model.errors import InvalidArgument, TopicNotFound
from penstock.spark.jobs import Place, trace_report
from penstock.spark.jobs.tracing import planning
from penstock.spark.jobs.tracing.tables import Report
from tests.jobs.lives import Lives, full_life
from tests.spark.harness import Served

TABLES = ("latencies", "histogram", "funnel", "causes", "consumers", "stuck")
STUCK_S = 300
ENDS = ("acked", "lapsed", "skipped")


class Story:
    """What happened on a topic, message by message, as the broker itself tells it."""

    def __init__(self, lives: Lives, topic: str = "orders") -> None:
        broker = lives.broker
        partitions = next(info.partitions for info in broker.topics() if info.name == topic)
        self.messages = {(m.partition, m.offset): m for m in broker.read(topic)}
        self.eras: dict[tuple[str, int], tuple[int, int]] = {}
        self.rows: list[dict[str, Any]] = []
        self.waits: dict[tuple[int, int], int] = {}
        self.withdrawn: set[tuple[int, int]] = set()
        self.latest = max(m.timestamp_us for m in self.messages.values())
        for part in partitions:
            for number, event in enumerate(broker.events(topic, part.number)):
                self._take(part.number, number, event)

    def _take(self, partition: int, number: int, event: Any) -> None:
        kind, group = str(event.kind), event.group
        self.latest = max(self.latest, event.time_us)
        if kind in ("created", "sought"):
            self.eras[group, partition] = (number, event.offset)
        elif kind == "forgotten":
            self.eras.pop((group, partition), None)
        for offset in event.offsets or range(event.offset, event.offset + event.count):
            key = (partition, offset)
            if kind == "rescheduled":
                self.waits[key] = event.due_us
            elif group is None:
                self.withdrawn.add(key)
            else:
                row = {"group": group, "partition": partition, "offset": offset, "number": number, "kind": kind}
                row |= {"time": event.time_us, "due": event.due_us, "attempt": event.attempt}
                self.rows.append({**row, "consumer": event.consumer, "detail": event.detail})

    def ready(self, key: tuple[int, int]) -> int:
        message = self.messages[key]
        return max(message.timestamp_us, self.waits.get(key, message.deliver_at_us or 0))

    def events(self) -> pd.DataFrame:
        return pd.DataFrame(self.rows)

    def latencies(self) -> pd.DataFrame:
        """A row for each message and group: when it was ready, first delivered, first acked."""
        events = self.events()
        keys = ["group", "partition", "offset"]
        first = events[(events.kind == "delivered") & (events.attempt == 1)].groupby(keys).time.first()
        done = events[events.kind == "acked"].groupby(keys).time.first()
        found = pd.concat([first.rename("first"), done.rename("done")], axis=1).reset_index()
        places = list(zip(found.partition, found.offset, strict=True))
        found["ready"] = [self.ready(place) for place in places]
        found["lane"] = [self.messages[place].priority for place in places]
        found["hour"] = [self.messages[place].timestamp_us // 3_600_000_000 * 3_600_000_000 for place in places]
        found["wait"] = (found["first"] - found.ready).clip(lower=0)
        found["work"] = (found.done - found["first"]).clip(lower=0)
        found["total"] = (found.done - found.ready).clip(lower=0)
        return found

    def standing(self) -> tuple[dict[str, dict[str, int]], list[tuple[Any, ...]]]:
        """The funnel of each group, and what is open: state, place, since when, and with whom."""
        of_message: dict[tuple[str, int, int], list[dict[str, Any]]] = defaultdict(list)
        for row in self.rows:
            of_message[row["group"], row["partition"], row["offset"]].append(row)
        groups = {row["group"] for row in self.rows} | {group for group, _ in self.eras}
        funnel: dict[str, dict[str, int]] = {group: defaultdict(int) for group in groups}
        still: list[tuple[Any, ...]] = []
        until = {"once-more": 15}
        for group in groups:
            for partition, offset in self.messages:
                life = of_message[group, partition, offset]
                since, start = self.eras.get((group, partition), (-1, 1 << 60))
                concerned = start <= offset < until.get(group, 1 << 60)
                told = {"delivered", "acked", "dead", "redriven", "lapsed", "skipped"}
                firsts = [row for row in life if row["kind"] != "delivered" or row["attempt"] == 1]
                if not concerned and not told & {row["kind"] for row in firsts}:
                    continue
                counted = [row for row in life if not concerned or row["number"] > since]
                mine = funnel[group]
                mine["published"] += 1
                mine["delivered"] += any(row["kind"] == "delivered" for row in counted if row["attempt"] > 1) or any(
                    row["kind"] == "delivered" and row["attempt"] == 1 for row in life
                )
                mine["redelivered"] += any(row["kind"] == "delivered" and row["attempt"] > 1 for row in counted)
                state, detail = self._state((partition, offset), counted)
                mine[state] += 1
                if state in ("held", "waiting") and (group, partition) in self.eras:
                    still.append((group, partition, offset, *detail))
        return {group: dict(counts) for group, counts in funnel.items()}, still

    def _state(self, key: tuple[int, int], life: list[dict[str, Any]]) -> tuple[str, tuple[Any, ...]]:
        kinds = [row["kind"] for row in life]
        if "acked" in kinds:
            return "acked", ()
        if [kind for kind in kinds if kind in ("dead", "redriven")][-1:] == ["dead"]:
            return "dead", ()
        for kind in kinds:
            if kind in ("lapsed", "skipped"):
                return kind, ()
        if key in self.withdrawn:
            return "withdrawn", ()
        moves = [
            row for row in life if row["kind"] in ("delivered", "failed", "expired", "released", "dead", "redriven")
        ]
        if moves and moves[-1]["kind"] == "delivered":
            return "held", ("held", moves[-1]["time"], moves[-1]["consumer"])
        state = "not delivered again" if "delivered" in kinds else "not delivered"
        back = [max(row["time"], row["due"]) for row in moves if row["kind"] != "delivered"][-1:]
        return "waiting", (state, max([self.ready(key), *back]), None)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Story]:
    """A directory with a full life, and its story."""
    path = tmp_path_factory.mktemp("life") / "data"
    with Lives(path, seed=3) as lives:
        full_life(lives)
        return path, Story(lives)


@pytest.fixture(scope="module")
def report(told: tuple[Path, Story], spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of it."""
    out = tmp_path_factory.mktemp("reports") / "out"
    trace_report(spark, Place(path=str(told[0])), ["orders"], str(out))
    return out


def _table(out: Path, name: str) -> pd.DataFrame:
    return pq.read_table(out / "tables" / f"{name}.parquet").to_pandas()


def test_latencies_are_those_that_pandas_finds_by_group_lane_and_hour(told: tuple[Path, Story], report: Path) -> None:
    found = _table(report, "latencies")
    found["hour"] = [None if pd.isna(hour) else hour.value // 1000 for hour in found.hour]
    rows = {(row.group, row.metric, row.lane, row.hour): row for row in found.astype(object).itertuples(index=False)}
    expected = told[1].latencies()
    checked = 0
    for keys in (["group"], ["group", "lane"], ["group", "hour"], ["group", "lane", "hour"]):
        for cell, mine in expected.groupby(keys):
            named = dict(zip(keys, cell, strict=True))
            for metric in ("wait", "work", "total"):
                values = mine[metric].dropna()
                place = (named["group"], metric, named.get("lane"), named.get("hour"))
                match = [row for key, row in rows.items() if _same(key, place)]
                assert len(match) == (1 if len(values) else 0), place
                if match:
                    quantiles = [values.quantile(share) / 1000 for share in (0.5, 0.95, 0.99)]
                    got = match[0]
                    assert [got.p50_ms, got.p95_ms, got.p99_ms] == pytest.approx(quantiles, rel=1e-12)
                    assert (got.messages, got.highest_ms) == (len(values), values.max() / 1000)
                    checked += 1
    assert checked == len(found) > 80
    assert found.lane.nunique() == 3 and found.hour.nunique() > 1


def _same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return [None if pd.isna(x) else x for x in one] == [None if pd.isna(x) else x for x in other]


def test_Q1_the_funnel_adds_up_and_every_message_stands_where_its_events_say(
    told: tuple[Path, Story], report: Path
) -> None:
    funnel, still = told[1].standing()
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for row in _table(report, "funnel").itertuples(index=False):
        found[row.group][row.stage] = row.messages
    assert {group: {name: count for name, count in mine.items() if count} for group, mine in found.items()} == {
        group: {name: count for name, count in mine.items() if count} for group, mine in funnel.items()
    }
    for mine in found.values():
        ends = ("acked", "dead", "lapsed", "skipped", "withdrawn", "lost", "held", "waiting")
        assert mine["published"] == sum(mine[name] for name in ends)
    assert sum(mine["dead"] for mine in found.values()) and sum(mine["withdrawn"] for mine in found.values())
    expected: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for group, partition, offset, state, since, consumer in still:
        if told[1].latest - since > STUCK_S * 1_000_000:
            expected[group, state, partition, since, consumer].append(offset)
    table = pq.read_table(report / "tables" / "stuck.parquet")
    times = table.column("since").cast("int64").to_pylist()
    stuck = {
        (row["group"], row["state"], row["partition"], time, row["consumer"]): (row["messages"], row["offset"])
        for row, time in zip(table.to_pylist(), times, strict=True)
    }
    assert stuck == {key: (len(places), min(places)) for key, places in expected.items()}
    assert {key[1] for key in stuck} == {"held", "not delivered", "not delivered again"}


def test_causes_and_consumers_are_counted_message_by_message(told: tuple[Path, Story], report: Path) -> None:
    events = told[1].events()
    back = events[events.kind.isin(["failed", "expired", "released"])].fillna({"detail": "-"})
    expected = back.groupby(["group", "kind", "detail"]).size().to_dict()
    causes = _table(report, "causes").fillna({"detail": "-"})
    assert causes.set_index(["group", "cause", "detail"]).messages.to_dict() == expected
    assert {"no milk", "the lease ran out"} <= set(causes.detail)

    did = events[events.consumer.notna()].groupby(["group", "consumer", "kind"]).size()
    consumers = _table(report, "consumers")
    consumers = consumers[consumers.consumer.notna()]
    for row in consumers.itertuples(index=False):
        for kind in ("delivered", "acked", "failed", "expired", "released"):
            assert getattr(row, kind) == did.get((row.group, row.consumer, kind), 0)
    for _, mine in consumers.groupby("group"):
        slowness = mine.p95_ms.dropna().tolist()
        assert slowness == sorted(slowness, reverse=True)


def test_two_reports_on_the_same_logs_are_equal_byte_by_byte_settled_or_not_by_few_tasks_or_many(
    told: tuple[Path, Story], report: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, out = tmp_path / "data", tmp_path / "out"
    shutil.copytree(told[0], copy)
    (out / ".new").mkdir(parents=True)  # as a run that was killed leaves it
    (out / ".new" / "report.html").write_text("half")
    (out / "report.html").write_text("of before")
    outcome = trace_report(spark, Place(path=str(copy)), ["orders"], str(out))
    assert _files(out) == _files(report)
    with Lives(copy, seed=3) as lives:
        lives.clock.advance(1_000_000)
        lives.settle()
    monkeypatch.setattr(planning, "_CHUNK_ROWS", 60)  # many tasks, which cut events in two
    monkeypatch.setattr(planning, "_SURVEYED_BYTES", 1)
    again = trace_report(spark, Place(path=str(copy)), ["orders"], str(out))
    assert _files(out) == _files(report) and again == outcome
    assert outcome.summary["messages"] == len(told[1].messages)


def test_a_broker_without_topics_has_nothing_to_report_on(spark: SparkSession, server: Served, tmp_path: Path) -> None:
    with pytest.raises(TopicNotFound, match=r"there is no topic at .* yet"):
        trace_report(spark, Place(servers=server.address), None, str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_what_went_to_the_archive_before_a_group_had_it_is_lost_for_it_and_not_stuck(
    spark: SparkSession, server: Served, tmp_path: Path
) -> None:
    client = server.client
    client.create_topic("t", retention_age=0, archive=str(tmp_path / "archive"))
    client.create_group("t", "before")
    client.publish_many("t", [f"{n}" for n in range(6)])
    with client.consumer("t", "before") as consumer:
        consumer.ack(consumer.receive(2))
    server.broker.settle()
    server.broker.retain()
    client.create_group("t", "after")
    client.publish("t", "live")
    info = client.group("t", "before")
    assert (info.acked, info.lost, info.ready) == (2, 4, 1)
    outcome = trace_report(spark, Place(servers=server.address), ["t"], str(tmp_path / "out"), stuck_after=0)
    assert outcome.summary["messages"] == 7
    stood = {
        (row.group, row.stage): row.messages
        for row in _table(tmp_path / "out", "funnel").itertuples(index=False)
        if row.messages
    }
    assert {stage: count for (group, stage), count in stood.items() if group == "before"} == {
        "published": 7,
        "delivered": 2,
        "acked": 2,
        "lost": 4,
        "waiting": 1,
    }
    assert {stage: count for (group, stage), count in stood.items() if group == "after"} == {
        "published": 1,
        "waiting": 1,
    }


_KILLED = """
import os, pickle, signal, sys
from pathlib import Path
from penstock.spark.jobs.tracing.job import _write
report, out, left = pickle.loads(Path(sys.argv[1]).read_bytes()), Path(sys.argv[2]), int(sys.argv[3])
fsync = os.fsync
def dying(fd):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    fsync(fd)
os.fsync = dying
_write(out, report, "the new page")
"""


@pytest.mark.crash
def test_a_report_that_is_killed_while_it_is_written_leaves_the_one_before_as_it_was(
    report: Path, spark: SparkSession, told: tuple[Path, Story], tmp_path: Path
) -> None:
    out = shutil.copytree(report, tmp_path / "out")
    (tmp_path / "empty").write_bytes(pickle.dumps(Report({name: [] for name in TABLES}, 0)))
    words = [sys.executable, "-c", _KILLED, str(tmp_path / "empty"), str(out), str(len(TABLES))]
    assert subprocess.run(words).returncode == -signal.SIGKILL
    assert (out / ".new" / "report.html").exists()
    shown = {name: data for name, data in _files(out).items() if not name.startswith(".new")}
    assert shown == _files(report)
    trace_report(spark, Place(path=str(told[0])), ["orders"], str(out))
    assert _files(out) == _files(report)


def _files(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


def test_a_report_is_about_the_messages_that_were_published_in_its_window(
    told: tuple[Path, Story], spark: SparkSession, tmp_path: Path
) -> None:
    times = sorted(message.timestamp_us for message in told[1].messages.values())
    start, end = times[len(times) // 4], times[len(times) // 2]
    window = {"from_time": start / 1_000_000, "to_time": end / 1_000_000}
    trace_report(spark, Place(path=str(told[0])), ["orders"], str(tmp_path), **window)  # type: ignore[arg-type]
    expected = told[1].latencies()
    published = [
        told[1].messages[place].timestamp_us for place in zip(expected.partition, expected.offset, strict=True)
    ]
    inside = expected[[start <= time < end for time in published]].groupby("group").total.count()
    found = _table(tmp_path, "latencies")
    found = found[(found.metric == "total") & found.lane.isna() & found.hour.isna()]
    assert found.set_index("group").messages.to_dict() == {group: n for group, n in inside.to_dict().items() if n}


def test_a_server_tells_the_same_as_its_directory(spark: SparkSession, server: Served, tmp_path: Path) -> None:
    client = server.client
    client.create_topic("clicks", partitions=2)
    client.publish_many("clicks", [f"{n}" for n in range(300)])
    with client.consumer("clicks", "g") as consumer:
        consumer.ack(consumer.receive(100))
    server.broker.settle()
    client.publish_many("clicks", [f"{n}" for n in range(100)])
    with client.consumer("clicks", "g", name="slow") as consumer:
        messages = consumer.receive(60)
        consumer.ack(messages[::2])
        outcome = trace_report(spark, Place(servers=server.address), None, str(tmp_path / "out"), stuck_after="0s")
    (row,) = [row for row in outcome.rows if row[0] == "clicks"]
    assert row[:4] == ("clicks", "g", 400, 130) and row[5] == 30 and row[6] == 240
    plan = trace_report(spark, Place(servers=server.address), ["clicks"], str(tmp_path / "no"), dry_run=True)
    assert plan.dry_run and plan.summary["messages"] == 400 and not (tmp_path / "no").exists()


def test_what_is_wrong_is_said_and_nothing_is_written(
    told: tuple[Path, Story], spark: SparkSession, tmp_path: Path
) -> None:
    place, out = Place(path=str(told[0])), tmp_path / "out"
    with pytest.raises(TopicNotFound, match="no topic 'nothing'"):
        trace_report(spark, place, ["nothing"], str(out))
    with pytest.raises(InvalidArgument, match="not a duration"):
        trace_report(spark, place, None, str(out), stuck_after="long")
    with pytest.raises(InvalidArgument, match="is not before"):
        trace_report(spark, place, None, str(out), from_time=2.0, to_time=1.0)
    with pytest.raises(InvalidArgument, match="no directory"):
        trace_report(spark, Place(path=str(tmp_path / "x")), None, str(out))
    assert not out.exists()
    out.write_text("")
    with pytest.raises(InvalidArgument, match="is a file"):
        trace_report(spark, place, None, str(out))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, as the tests of the dashboard have it."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.fail("this test needs chromium: apt-get install chromium (`make test` does it)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_opens_offline_without_a_word_on_the_console(browser: Any, report: Path, scheme: str) -> None:
    context = browser.new_context(offline=True, color_scheme=scheme, viewport={"width": 900, "height": 700})
    page, said, asked = context.new_page(), [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto((report / "report.html").as_uri())
    assert page.get_by_role("heading", name="Trace report").is_visible()
    for chart in ("funnel of states", "histogram of latencies", "causes of redelivery"):
        assert page.get_by_role("img", name=chart).first.is_visible()
    assert page.get_by_role("table", name="Slowest consumers").first.is_visible()
    assert page.get_by_role("table", name="Stuck messages").first.is_visible()
    contrast = page.evaluate("getComputedStyle(document.body).backgroundColor + getComputedStyle(document.body).color")
    assert (
        contrast == {"light": "rgb(255, 255, 255)rgb(28, 33, 39)", "dark": "rgb(20, 24, 29)rgb(230, 233, 237)"}[scheme]
    )
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    context.close()
    assert said == [] and {url.partition(":")[0] for url in asked} <= {"file", "data"}
    assert "http" not in (report / "report.html").read_text()
