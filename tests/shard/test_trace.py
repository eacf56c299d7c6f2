"""Traces: the exact life of a message, however it went and however long ago."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

import penstock
from penstock.segments import schema
from penstock.testing import MemoryStorage, VirtualClock
from tests.shard.passing_time import pass_time

START = datetime(2026, 1, 1, tzinfo=UTC)  # where the virtual clock begins
OWN = ("published", "scheduled", "due")  # what the message itself tells


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage()


@pytest.fixture
def broker(storage: MemoryStorage, clock: VirtualClock) -> Iterator[penstock.Broker]:
    with penstock.open(storage=storage, clock=clock) as opened:
        yield opened


def kinds(trace: penstock.Trace) -> list[str]:
    return [line.kind for line in trace.lines]


def assert_is_the_projection_of_the_events(broker: penstock.Broker, identity: penstock.MessageId) -> None:
    told = [line for line in broker.trace(identity).lines if line.kind not in OWN]
    events = [event for event in broker.events(identity.topic, identity.partition) if event.speaks_of(identity.offset)]
    assert [(line.kind, line.time_us, line.group, line.consumer, line.due_us) for line in told] == [
        (event.kind, event.time_us, event.group, event.consumer, event.due_us) for event in events
    ]


Life = Callable[[penstock.Broker, VirtualClock], None]


def acked(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.consumer("t", "g").receive()[0].ack()


def extended(broker: penstock.Broker, clock: VirtualClock) -> None:
    (message,) = broker.consumer("t", "g").receive()
    message.extend(60)
    pass_time(broker, clock, 45)
    message.ack()


def expired(broker: penstock.Broker, clock: VirtualClock) -> None:
    consumer = broker.consumer("t", "g")
    consumer.receive()
    pass_time(broker, clock, 31)
    consumer.receive()[0].release()
    consumer.receive()[0].fail("busy", delay=5)
    pass_time(broker, clock, 5)
    consumer.receive()[0].ack()


def dead_and_back(broker: penstock.Broker, clock: VirtualClock) -> None:
    consumer = broker.consumer("t", "g")
    for n in range(3):
        consumer.receive()[0].fail(f"no {n}", delay=0)
    broker.redrive("t")
    consumer.receive()[0].kill("never")


def two_groups(broker: penstock.Broker, clock: VirtualClock) -> None:
    (one,) = broker.consumer("t", "one").receive()
    (two,) = broker.consumer("t", "two").receive()
    two.ack()
    one.release()


def closed(broker: penstock.Broker, clock: VirtualClock) -> None:
    with broker.consumer("t", "g") as consumer:
        consumer.receive()


LIVES: dict[Life, list[str]] = {
    acked: ["delivered", "acked"],
    extended: ["delivered", "extended", "acked"],
    expired: ["delivered", "expired", "delivered", "released", "delivered", "failed", "delivered", "acked"],
    dead_and_back: [*["delivered", "failed"] * 3, "dead", "redriven", "delivered", "dead"],
    two_groups: ["delivered", "delivered", "acked", "released"],
    closed: ["delivered", "released"],
}


@pytest.mark.parametrize("life", LIVES)
def test_TR1_each_life_is_told_in_order_also_after_settling_and_a_restart(
    storage: MemoryStorage, clock: VirtualClock, life: Life
) -> None:
    with penstock.open(storage=storage, clock=clock) as broker:
        identity = broker.publish("t", "x")
        clock.advance(1)
        life(broker, clock)
        trace = broker.trace(identity)
        assert kinds(trace) == ["published", *LIVES[life]]
        assert_is_the_projection_of_the_events(broker, identity)
        assert [line.time_us for line in trace.lines] == sorted(line.time_us for line in trace.lines)
    for settle in (False, True):
        with penstock.open(storage=storage, clock=clock) as broker:
            again = broker.trace(str(identity))
            assert again.lines[: len(trace.lines)] == trace.lines
            assert again.message == trace.message is not None
            assert_is_the_projection_of_the_events(broker, identity)
            if settle:
                broker.settle()
                assert broker.trace(identity).lines == again.lines
                assert_is_the_projection_of_the_events(broker, identity)


def test_lines_say_who_and_when_and_why(broker: penstock.Broker, clock: VirtualClock) -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    identity = broker.publish("t", "x", headers={"traceparent": parent})
    with broker.consumer("t", "g", name="worker") as consumer:
        consumer.receive()[0].fail("busy", delay=60)
        pass_time(broker, clock, 60)
        consumer.receive()[0].kill("broken")
    trace = broker.trace(identity)
    _, first, failed, second, dead = trace.lines
    assert (first.group, first.consumer, first.attempt, first.time) == ("g", "worker", 1, START)
    assert (failed.cause, failed.attempt, failed.due_us - failed.time_us) == ("busy", 1, 60_000_000)
    assert (second.attempt, second.time) == (2, START + timedelta(seconds=60))
    assert (dead.cause, dead.attempt, dead.consumer) == ("broken", 2, "worker")
    assert trace.traceparent == parent
    assert trace.retained_until == START + timedelta(days=7)
    text = str(trace).splitlines()
    assert text[0] == f"t/0/0  traceparent {parent}"
    assert [line.split()[2] for line in text[1:-1]] == ["PUBLISHED", "DELIVERED", "FAILED", "DELIVERED", "DEAD"]
    assert text[-1].strip() == "retained until 2026-01-08 00:00:00"


def publish_named(broker: penstock.Broker) -> list[penstock.MessageId]:
    """Messages of shop, of nobody, of till-1, and of a random producer, some of them in one block."""
    shard, found = broker.shards.of("t"), []
    for name in ("shop", "shop", None, "till-1"):
        identity, commit = shard.publish("t", penstock.Message("x"), name)
        found.append(identity)
    assert commit is not None
    shard.journal.wait(commit)
    found += broker.publish_many("t", ["x", "x"], producer="till-1", sequence=1)
    found += broker.publish_many("t", ["x"], producer="0123456789abcdef" * 2, sequence=1)
    return found


def producers(broker: penstock.Broker, ids: list[penstock.MessageId]) -> list[str | None]:
    return [broker.trace(identity).lines[0].producer for identity in ids]


def test_TR1_who_published_is_told_also_after_settling_and_a_restart(
    storage: MemoryStorage, clock: VirtualClock
) -> None:
    names = ["shop", "shop", None, "till-1", "till-1", "till-1", None]
    with penstock.open(storage=storage, clock=clock) as broker:
        ids = publish_named(broker)
        assert producers(broker, ids) == names
        assert "PUBLISHED    by shop" in str(broker.trace(ids[0]))
    with penstock.open(storage=storage, clock=clock) as broker:
        assert producers(broker, ids) == names
        broker.settle()
        assert broker.topics()[0].partitions[0].segments == 1
        assert producers(broker, ids) == names
        assert [message.value for message in broker.read("t")] == [b"x"] * 7
        assert "producer" not in next(broker.read_arrow("t")).schema.names, "readers get what they got before"
    with penstock.open(storage=storage, clock=clock) as broker:
        assert producers(broker, ids) == names


def test_TR1_F4_segments_without_names_are_read_and_traced_as_before(
    storage: MemoryStorage, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with penstock.open(storage=storage, clock=clock) as broker:
        old = publish_named(broker)
        with monkeypatch.context() as earlier:
            earlier.setattr(schema, "stored_messages_to_arrow", schema.messages_to_arrow)
            broker.settle()
        new = publish_named(broker)
        broker.settle()
        assert broker.topics()[0].partitions[0].segments == 2
    with penstock.open(storage=storage, clock=clock) as broker:
        assert set(producers(broker, old)) == {None}
        assert producers(broker, new)[0] == "shop"
        assert len(list(broker.read("t"))) == 11, "the batches of known sequences are there once"


def test_a_delayed_life(broker: penstock.Broker, clock: VirtualClock) -> None:
    identity = broker.publish("t", "x", delay=100)
    assert kinds(broker.trace(identity)) == ["published", "scheduled"]
    assert broker.trace(identity).lines[1].due_us == clock.wall_us() + 100_000_000
    broker.reschedule_delayed(identity, delay=10)
    clock.advance(10)
    assert kinds(broker.trace(identity)) == ["published", "scheduled", "rescheduled", "due"]
    broker.consumer("t", "g").receive()[0].ack()
    assert kinds(broker.trace(identity)) == ["published", "scheduled", "rescheduled", "due", "delivered", "acked"]
    assert broker.trace(identity).lines[3].time == START + timedelta(seconds=10)
    assert_is_the_projection_of_the_events(broker, identity)


def test_a_cancelled_life_and_a_lapsed_one(broker: penstock.Broker, clock: VirtualClock) -> None:
    cancelled = broker.publish("t", "x", delay=100)
    lapsed = broker.publish("t", "x", expires_in=10)
    broker.create_group("t", "g")
    broker.cancel_delayed(cancelled)
    pass_time(broker, clock, 200)
    assert kinds(broker.trace(cancelled)) == ["published", "scheduled", "cancelled"]
    assert kinds(broker.trace(lapsed)) == ["published", "lapsed"]


@pytest.mark.parametrize("archive", ["/cold", None])
def test_TR1_long_after_retention_the_trace_is_still_told(
    storage: MemoryStorage, clock: VirtualClock, archive: str | None
) -> None:
    with penstock.open(storage=storage, clock=clock) as broker:
        broker.create_topic("t", retention_age="1d", archive=archive)
        identity = broker.publish("t", "x")
        acked(broker, clock)
        broker.settle()
        clock.advance(3 * 86400)
        assert broker.retain() >= 1
        trace = broker.trace(identity)
        last = trace.lines[-1]
        if archive is not None:
            assert kinds(trace) == ["published", "delivered", "acked", "archived"]
            assert (last.cause, trace.message is not None) == ("/cold", True)
        else:
            assert kinds(trace)[-1] == "removed"
            assert (trace.message, trace.retained_until, trace.traceparent) == (None, None, None)
    with penstock.open(storage=storage, clock=clock) as broker:
        assert broker.trace(identity).lines == trace.lines


def test_each_message_has_its_own_trace(broker: penstock.Broker) -> None:
    broker.create_topic("t", partitions=3)
    ids = broker.publish_many("t", [penstock.Message(f"{n}", key=f"{n}", priority=n % 3) for n in range(90)])
    with broker.consumer("t", "g") as consumer:
        messages = consumer.receive()
        consumer.ack(messages[::3])
        consumer.release(messages[1::3])
        consumer.kill(messages[2::3], "no")
        ends = {message.id: end for n, message in enumerate(messages) for end in [("acked", "released", "dead")[n % 3]]}
        for identity in ids:
            assert kinds(broker.trace(identity)) == ["published", "delivered", ends[identity]]
            assert_is_the_projection_of_the_events(broker, identity)


@pytest.mark.parametrize(
    ("identity", "error"),
    [
        ("t/0/99", penstock.MessageNotFound),
        ("t/9/0", penstock.MessageNotFound),
        (f"t/0/{10**17}", penstock.MessageNotFound),
        (f"t/0/{10**30}", penstock.InvalidArgument),
        ("unknown/0/0", penstock.TopicNotFound),
        ("t", penstock.InvalidArgument),
        ("t/-1/0", penstock.InvalidArgument),
        (penstock.MessageId("t", -1, 0), penstock.InvalidArgument),
        (5, penstock.InvalidArgument),
        (None, penstock.InvalidArgument),
    ],
)
def test_what_is_no_message_has_no_trace(broker: penstock.Broker, identity: object, error: type[Exception]) -> None:
    broker.publish("t", "x")
    with pytest.raises(error):
        broker.trace(identity)  # type: ignore[arg-type]
