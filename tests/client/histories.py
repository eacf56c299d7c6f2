"""Histories of a broker in plain calls, whatever stands behind them, and what came of each step.

They know only what `penstock` offers to everybody: an earlier version lives them too (`tests/compatibility`).
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

import penstock
from tests.client.awaited import error_of
from tests.patience import until

VOLATILE = {
    *("time_us", "timestamp_us", "due_us", "deliver_at_us", "expires_at_us", "died_at", "published_at", "deliver_at"),
    *("expires_at", "time", "uptime_s", "broker_id", "directory", "oldest_unacked_s", "seconds", "lease", "history"),
    *("next_time", "last_time", "journal_bytes", "segment_bytes", "next_fire", "last_fire", "timestamp"),
    *("unwritten_bytes", "next_us", "retained_until"),
}
"""When it was, and how many bytes it took: not what happened."""
Note = Callable[[str, Any], Any]
History = Callable[[Any, Note], None]
LIMITS = {
    "max_value_bytes": 1024,
    "max_key_bytes": 256,
    "max_headers_bytes": 256,
    "max_batch_bytes": 8192,
    "max_partitions": 4,
}
"""Options of the broker that they are lived on."""


def plain(value: Any) -> Any:
    """A result as what can be compared."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, penstock.MessageIds):
        return [str(identity) for identity in value]
    if isinstance(value, penstock.MessageId):
        return str(value)
    if isinstance(value, datetime | timedelta):
        return type(value).__name__
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__ if name not in VOLATILE}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value)]
        return {name: plain(getattr(value, name)) for name in fields if name not in VOLATILE}
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value


def publishing(broker: Any, note: Note) -> None:
    broker.create_topic("orders", partitions=2, max_deliveries=2, retry_backoff=0, visibility_timeout="20s")
    note("single", broker.publish("orders", "one", key="a"))
    note("all", broker.publish("orders", b"two", key=b"b", headers={"h": "1"}, priority="high", expires_in="1h"))
    note("asked", broker.publish("orders", "three", partition=1))
    note("deduped", broker.publish("orders", "four", key="a", dedupe_id="d1"))
    note("again", broker.publish("orders", "other", key="a", dedupe_id="d1"))
    batch = [
        penstock.Message("five", key="a", priority=3),
        penstock.Message(b"six", partition=1, headers={"x": "y", "é": "ü"}),
        penstock.Message("seven", key="b", delay="1h"),
        penstock.Message("eight", partition=0, deliver_at=datetime(2050, 1, 1, tzinfo=UTC), expires_in=1e9),
        penstock.Message("nine", partition=0, deliver_at=datetime(2000, 1, 1, tzinfo=UTC)),
    ]
    broker.configure_topic("orders", max_delay="100000d")
    note("batch", broker.publish_many("orders", batch))
    note("once", broker.publish_many("orders", ["x", "y"], producer="p", sequence=7))
    note("once more", broker.publish_many("orders", ["x", "y"], producer="p", sequence=7))
    ids = [penstock.Message("m", key="a", dedupe_id="d2"), penstock.Message("n", key="a", dedupe_id="d1")]
    note("deduped batch", broker.publish_many("orders", ids))
    note("nothing", broker.publish_many("orders", []))
    note("from a generator", broker.publish_many("orders", (penstock.Message(v, key="a") for v in "pq")))
    note("topics", broker.topics())


def reading(broker: Any, note: Note) -> None:
    broker.create_topic("log", partitions=2, archive="cold", retention_age=0)
    for round_ in range(3):
        for partition in (0, 1):
            messages = [
                penstock.Message(f"{round_}.{partition}.{n}", key=f"{n}", partition=partition) for n in range(5)
            ]
            broker.publish_many("log", messages)
        if round_ < 2:
            broker.settle()
    everything = note("read", list(broker.read("log")))
    assert len(everything) == 30
    note("one partition", list(broker.read("log", 1)))
    note("from an offset", list(broker.read("log", offset=4)))
    note("of one", list(broker.read("log", 0, offset=13)))
    note("beyond the end", list(broker.read("log", offset=1000)))
    for limit in (0, 1, 14, 15, 16, 1000):
        note(f"limit {limit}", list(broker.read("log", limit=limit)))
    times = sorted({message.timestamp_us for message in everything})
    assert len(times) > 1
    middle = datetime.fromtimestamp(times[len(times) // 2] / 1e6, UTC)
    since = len(list(broker.read("log", from_time=middle)))
    before = len(list(broker.read("log", to_time=middle)))
    assert since + before == 30
    assert since < 30
    assert len(list(broker.read("log", 1, offset=2, from_time=middle, limit=3))) == 3
    assert len(list(broker.read("log", from_time=middle.isoformat(), to_time=middle))) == 0
    offset = broker.offset_at("log", middle, 1)
    assert offset == next(message.offset for message in everything[15:] if message.timestamp >= middle)
    note("the end", broker.offset_at("log", datetime(2099, 1, 1, tzinfo=UTC)))
    for name, options in {"all": {}, "one": {"partition": 1}, "some": {"offset": 7}}.items():
        rows = list(itertools.chain.from_iterable(batch.to_pylist() for batch in broker.read_arrow("log", **options)))
        note(f"arrow {name}", [{key: value for key, value in row.items() if key not in VOLATILE} for row in rows])
    assert sum(batch.num_rows for batch in broker.read_arrow("log", from_time=middle)) == since
    note("the schema", next(iter(broker.read_arrow("log"))).schema.names)
    until(lambda: broker.retain() or True)
    note("after retention", [message.id for message in broker.read("log")])
    note("with what was archived", list(broker.read("log", include_deleted=True)))
    note(
        "archived arrow",
        [batch.column("offset").to_pylist() for batch in broker.read_arrow("log", include_deleted=True)],
    )
    note("events of it", list(broker.events("log")))
    note("status", broker.status())


def delivering(broker: Any, note: Note) -> None:
    broker.create_topic("work", partitions=2, max_deliveries=2, retry_backoff=0)
    broker.publish_many("work", [penstock.Message(f"{n}", partition=n % 2) for n in range(10)])
    note("a group", broker.create_group("work", "made", start="latest", visibility_timeout=5, max_in_flight=3))
    with broker.consumer("work", "crew", name="c1", max_in_flight=9, visibility_timeout="20s") as consumer:
        note("who", (consumer.name, consumer.group))
        received = note("received", consumer.receive(20, wait=1))
        assert len(received) == 9
        assert all(message.receipt.startswith(str(message.id)) for message in received)
        consumer.ack(received[:2])
        received[2].ack()
        received[2].ack()  # twice is harmless
        consumer.extend(received[3:5], "30s")
        received[5].extend(60)
        note("held", broker.group("work", "crew"))
        received[3].release()
        consumer.fail([received[4]], "not now", delay=0)
        received[5].fail("never again", delay=0)
        received[6].kill("it is broken")
        consumer.kill(received[7:8], "so is this")
        again = until(lambda: consumer.receive(4, wait=1))
        for _ in range(3):
            again += consumer.receive(4, wait=0.05)
        note("again", sorted((str(m.id), m.deliveries, m.failures) for m in again))
        failed = [message for message in again if message.failures]
        consumer.fail(failed, "for good")
        note("settled twice", error_of(lambda: consumer.ack([received[6]])))
        note("group", broker.group("work", "crew"))
    note("closed", error_of(consumer.receive))
    note("groups", broker.groups())
    note("groups of it", broker.groups("work"))
    letters = until(lambda: len(found := broker.dead_letters("work")) == 4 and found)
    note("letters", sorted((plain(letter) for letter in letters), key=lambda letter: str(letter["origin"])))
    note("one letter", broker.dead_letter(str(letters[0].id)))
    is_broken = lambda letter: "broken" in letter.cause  # noqa: E731
    note("chosen", sorted(str(dead.origin) for dead in broker.dead_letters("work", filter=is_broken)))
    note("first", len(broker.dead_letters("work", limit=2)))
    note("none", broker.dead_letters("work", limit=0))
    note("dry", broker.redrive("work", dry_run=True))
    note("some", broker.redrive("work", filter=lambda letter: letter.cause == "it is broken"))
    note("elsewhere", broker.redrive("work", filter=lambda letter: letter.cause == "so is this", to="rescued"))
    note("copied", list(broker.read("rescued")))
    note("purged", broker.purge_dead_letters("work", filter=lambda letter: letter.origin == failed[0].id))
    note("the rest", broker.redrive("work", rate=1000))
    note("no more", broker.purge_dead_letters("work"))
    note("in the end", broker.group("work", "crew"))
    for message in received:
        lines = broker.trace(message.id).lines
        note(
            f"trace of {message.id}",
            [(line.kind, line.group, line.consumer, line.attempt, line.cause) for line in lines],
        )
    with broker.consumer(["work", "rescued"], "two", name="c2", autoack=True) as consumer:
        seen = []
        while got := consumer.receive(3, wait=0.2):
            seen += [str(message.id) for message in got]
        note("both topics", sorted(seen))
    note("acked by itself", broker.group("work", "two"))


def iterating(broker: Any, note: Note) -> None:
    broker.create_topic("lanes", partitions=1)
    lanes = ["low", "high", "normal", "low", "critical"]
    broker.publish_many("lanes", [penstock.Message(f"{n}", priority=lane) for n, lane in enumerate(lanes)])
    with broker.consumer("lanes", "g", name="i1") as consumer:
        seen = []
        for message in consumer:
            seen.append(message.value)
            message.ack()
            if len(seen) == len(lanes):
                break
        note("lanes", seen)
    with broker.consumer("lanes", "late", name="i2", start="latest") as consumer:
        note("nothing yet", consumer.receive(5))
        broker.publish("lanes", "late", headers={"a": "b"})
        note("what came", consumer.receive(5, wait=5))


def moving(broker: Any, note: Note) -> None:
    broker.create_topic("moved", partitions=2)
    broker.publish_many("moved", [penstock.Message(f"{n}", partition=n % 2) for n in range(20)])
    with broker.consumer("moved", "g", name="m1") as consumer:
        consumer.ack(consumer.receive(100))
    broker.seek_group("moved", "g", 5)
    note("sought", broker.group("moved", "g"))
    broker.seek_group("moved", "g", "latest", partition=1)
    note("one of them", broker.group("moved", "g"))
    broker.seek_group("moved", "g", datetime(2020, 1, 1, tzinfo=UTC), partition=1)
    note("to a time", broker.group("moved", "g"))
    broker.reset_group("moved", "g")
    note("reset", broker.group("moved", "g"))
    note("replayed", broker.replay("moved", "r1"))
    note("a part", broker.replay("moved", "r2", from_offset=2, to_offset=5))
    note("of one", broker.replay("moved", "r3", partition=1, rate=1e6))
    even = lambda message: int(message.value) % 4 == 0  # noqa: E731
    note("filtered", broker.replay("moved", "r4", filter=even))
    note("none", broker.replay("moved", "r5", filter=lambda message: False))
    note("by time", broker.replay("moved", "r6", from_time=datetime(2020, 1, 1, tzinfo=UTC), to_time="2100-01-01T00Z"))
    for group in ("r1", "r2", "r3", "r4", "r5", "r6"):
        with broker.consumer("moved", group, name=f"c-{group}") as consumer:
            got = []
            while received := consumer.receive(100, wait=0.05):
                got += received
            note(f"got by {group}", sorted(str(message.id) for message in got))
            consumer.ack(got)
        note(f"group {group}", broker.group("moved", group))
    seen: list[penstock.StoredMessage] = []
    note("to a function", broker.replay("moved", seen.append))
    note("its calls", seen)
    note("some to it", broker.replay("moved", seen.append, partition=0, from_offset=3, to_offset=6, filter=even))
    note("slowly", broker.replay("moved", seen.append, to_offset=1, rate=100))
    note("all calls", [message.id for message in seen])
    broker.delete_group("moved", "r1")
    note("deleted", [group.name for group in broker.groups("moved")])


def waiting(broker: Any, note: Note) -> None:
    soon, later = broker.publish("delays", "soon", delay=1000), broker.publish("delays", "later", delay="2h")
    note("delayed", broker.delayed("delays"))
    note("the first", broker.delayed("delays", limit=1))
    note("cancelled", broker.cancel_delayed(soon))
    note("again", broker.cancel_delayed(str(soon)))
    note("rescheduled", broker.reschedule_delayed(later, delay=timedelta(hours=3)))
    note("to now", broker.reschedule_delayed(later, deliver_at=datetime(2020, 1, 1, tzinfo=UTC)))
    with broker.consumer("delays", "g", name="w1") as consumer:
        note("due", consumer.receive(5, wait=5))
    note("too late", broker.reschedule_delayed(later, delay=1))
    note("trace", [line.kind for line in broker.trace(soon).lines])
    options = {"key": "k", "headers": {"a": "b"}, "priority": "low", "expires_in": "1h", "zone": "Europe/Berlin"}
    note("scheduled", broker.schedule("nightly", "0 3 * * *", "delays", "run", **options))
    note("another", broker.schedule("often", "* * * * *", "delays", b"run"))
    note("schedules", broker.schedules())
    note("paused", broker.pause_schedule("nightly"))
    note("resumed", broker.resume_schedule("nightly"))
    note("removed", broker.remove_schedule("often"))
    note("left", [schedule.name for schedule in broker.schedules()])


def staging(broker: Any, note: Note) -> None:
    for attempt in ("first", "second"):
        for task in ("1", "2"):
            name = f"{attempt}-{task}"
            note(
                f"staged {name}", broker.stage_many(name, "staged", [penstock.Message(task, key="k", priority=9), "x"])
            )
            note(f"elsewhere {name}", broker.stage_many(name, "beside", (b"%d" % number for number in range(3))))
            note(f"sealed {name}", broker.seal_stage(name))
            note(f"sealed again {name}", broker.seal_stage(name))
        stages = [f"{attempt}-1", f"{attempt}-2"]
        note(f"published {attempt}", broker.publish_staged(stages, producer="q", sequence=4))
    note("once", [list(broker.read(topic)) for topic in ("staged", "beside")])
    note("before", broker.publish_staged([], producer="q", sequence=3))
    note("sequence", [broker.staged_sequence(producer) for producer in ("q", "nobody")])
    broker.stage_many("open", "staged", ["y"])
    note("not sealed", error_of(lambda: broker.publish_staged(["open"], producer="q", sequence=5)))
    broker.drop_staged(["open", "never-there"])
    note("nothing of it", broker.seal_stage("open"))
    note("too large", error_of(lambda: broker.stage_many("large", "staged", ["x" * 2000])))


def keeping(broker: Any, note: Note) -> None:
    broker.create_topic("kept", partitions=2, max_backlog=1000)
    for round_ in range(3):
        broker.publish_many("kept", [penstock.Message(f"{round_}.{n}", partition=n % 2) for n in range(6)])
        broker.settle()
    layout = broker.layout("kept")
    note("segments", [[(part.base, part.end, part.rows) for part in log.segments] for log in layout.messages])
    note("ends", [(log.first, log.end) for log in broker.layout("kept", segments=False).messages])
    broker.checkpoint_group("kept", "reader", {0: 4, 1: 1})
    note("a reader", broker.group("kept", "reader"))
    note("trimmed", broker.trim("kept", {0: 4, 1: 3}))
    note("what is left", [message.id for message in broker.read("kept")])
    note("configured", broker.configure_topic("kept", retention_age="1h", max_deliveries=3))
    note("changed", [topic for topic in broker.topics() if topic.name == "kept"])
    broker.delete_topic("kept")
    note("deleted", [topic.name for topic in broker.topics() if topic.name == "kept"])
    note("again", broker.publish("kept", "higher", partition=0))
    for label, wrong in {
        "no topic": lambda: list(broker.read("nowhere")),
        "no group": lambda: broker.group("kept", "nobody"),
        "no message": lambda: broker.trace("kept/0/77"),
        "no letter": lambda: broker.dead_letter("kept.dlq/0/0"),
        "no schedule": lambda: broker.pause_schedule("never"),
        "there already": lambda: broker.create_topic("kept"),
        "too many partitions": lambda: broker.create_topic("wide", partitions=5),
        "no name": lambda: broker.publish("a/b", "x"),
        "too large": lambda: broker.publish("kept", "x" * 2000),
        "too many bytes": lambda: broker.publish_many("kept", ["x" * 1000] * 20),
        "a stale sequence": lambda: broker.publish_many("kept", ["x"], producer="p", sequence=-1),
    }.items():
        note(label, error_of(wrong).partition(":")[0])


def assigning(broker: Any, note: Note) -> None:
    broker.create_topic("shares", partitions=2)
    broker.publish_many("shares", [penstock.Message(f"{n}", partition=n % 2) for n in range(8)])
    with broker.consumer("shares", "crew", mode="assigned", name="a1", session_timeout="20s") as first:
        received = note("all of it", first.receive(20, wait=5))
        first.ack(received[:4])
        first.heartbeat()
        note("one member", broker.group("shares", "crew"))
        first.release(received[4:])
        with broker.consumer("shares", "crew", mode="assigned", name="a2", session_timeout="20s") as second:
            seen: list[tuple[str, str]] = []

            def take() -> bool:
                for consumer in (first, second):
                    taken = consumer.receive(20)
                    consumer.ack(taken)
                    seen.extend((str(message.id), consumer.name) for message in taken)
                return len(seen) >= 4

            until(take)
            note("the rest, once", sorted(identity for identity, _ in seen))
            shared = until(lambda: len(found := broker.group("shares", "crew").members) == 2 and found)
            note("two members", sorted(member.name for member in shared))


def gathering(broker: Any, note: Note) -> None:
    """What only clients do: many singles under way, a small window of deliveries, reports of pipelines."""
    from penstock.model.pipelines import PipelineReport, PipelineState, QueryReport

    broker.create_topic("flow", partitions=1)
    reports = [broker.publish_soon("flow", f"{n}", dedupe_id=f"{n % 250}") for n in range(500)]
    broker.flush()
    note("reports", [report.result().offset for report in reports])
    with broker.consumer("flow", "g", name="f1", max_in_flight=7, auto_extend=True) as consumer:
        seen = []
        for message in consumer:
            seen.append(message.offset)
            message.ack()
            if len(seen) == 250:
                break
        note("in the window", seen)
    note("done", broker.group("flow", "g"))
    assert broker.ping() < 30
    query = QueryReport(name="sink", reads=("flow",), writes=("beside",), batches=3, rows=70, lag=1)
    broker.report_pipeline(PipelineReport(name="sums", state=PipelineState.RUNNING, queries=(query,), host="here"))
    note("pipelines", broker.pipelines())


def pausing(broker: Any, note: Note) -> None:
    """Groups that are handed nothing for a while."""
    broker.create_topic("breaks", partitions=2)
    for number in range(6):
        broker.publish("breaks", f"{number}", partition=number % 2)
    with broker.consumer("breaks", "crew", name="b1") as consumer:
        held = consumer.receive(1)
        note("paused", broker.pause_group("breaks", "crew"))
        note("again", broker.pause_group("breaks", "crew"))
        note("nothing", consumer.receive(10))
        note("in the list", [group.settings for group in broker.groups("breaks")])
        consumer.ack(held)
        note("resumed", broker.resume_group("breaks", "crew"))
        received = consumer.receive(10, wait=5)
        note("the rest", sorted(message.value for message in received))
        consumer.ack(received)
    note("told", [line for line in broker.trace("breaks/0/2").lines if line.kind == "configured"])


HISTORIES: list[History] = [
    *(publishing, reading, delivering, iterating, moving, staging, keeping, assigning, waiting, pausing)
]
"""Those that every face lives, the embedded one too."""
LIVED_BY_0_1_0: list[History] = [
    *(publishing, reading, delivering, iterating, moving, staging, keeping, assigning, gathering, waiting)
]
"""Those that a client and a server of 0.1.0 know everything for; on one server, in this order."""


def lived(history: History, broker: Any) -> dict[str, Any]:
    """What came of each step of a history."""
    transcript: dict[str, Any] = {}

    def note(label: str, value: Any) -> Any:
        assert label not in transcript, label
        shown = [one._inner if hasattr(one, "_inner") else one for one in value] if isinstance(value, list) else value
        transcript[label] = plain(shown)
        return value

    history(broker, note)
    return transcript
