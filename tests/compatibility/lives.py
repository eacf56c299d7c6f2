"""What happens in the directory that is kept: one function for each part of the public API, called once for each round.

What a round makes carries its number, so that both rounds make every kind of record. Nothing here depends on luck.
"""

from __future__ import annotations

from functools import partial

from penstock import Broker, Delivery, EventKind, Message
from penstock.testing import VirtualClock
from tests.compatibility.stopping import until

EVERY_BYTE = bytes(range(256))


def publish_all_kinds(broker: Broker, clock: VirtualClock, part: int) -> None:
    """Single messages and batches with every field there and not there; ids and sequences that are repeated."""
    if part == 1:
        broker.create_topic("orders", partitions=3, dedupe_window="7d", retention_age=None)
        broker.create_topic("forgetful", dedupe_window="10s")
    for number in range(4):
        broker.publish("orders", f"single {number}", key=f"customer {number}", priority=number * 60)
    broker.publish("orders", b"", key=b"")
    broker.publish("orders", EVERY_BYTE, key=b"\0\xff", headers={"": "", "größe": "☕\0"}, partition=1)
    broker.publish("orders", "later", delay="20h", partition=2, expires_in="30h")
    broker.publish("orders", "once", dedupe_id=f"once {part}")
    broker.publish("orders", "twice", dedupe_id=f"once {part}")
    broker.publish("forgetful", "once", dedupe_id=f"short {part}")
    clock.advance(0.25)
    broker.publish_many("orders", [b"%d" % number for number in range(5)])
    batch = [
        Message(
            f"batch {number}",
            key=None if number % 3 == 0 else f"key {number}",
            headers={"number": str(number), "traceparent": ""} if number % 4 == 0 else None,
            priority=("critical", 77, "background")[number % 3],
            delay="20h" if number % 5 == 4 else None,
            dedupe_id=f"batch {part} {number}" if number % 2 == 0 else None,
            expires_in="30h" if number % 7 == 0 else None,
        )
        for number in range(12)
    ]
    broker.publish_many("orders", batch)
    for sequence in (1, 2, 5, 5, 2):
        broker.publish_many("orders", till(part, sequence), producer=f"till {part}", sequence=sequence)
    broker.publish_many("orders", ["both rounds"], producer="till", sequence=part)
    clock.advance(0.25)


def till(part: int, sequence: int) -> list[Message]:
    """A batch of a producer, which is published more than once."""
    return [Message(f"till {part} {sequence} {row}", partition=row % 3) for row in range(4)]


def configure_topics(broker: Broker, clock: VirtualClock, part: int) -> None:
    """Topics that are made, changed, deleted, and made again under the same name."""
    broker.create_topic(f"options-{part}", partitions=2, lanes="weighted", lane_weights={0: 5, 100: 2}, order="key")
    broker.configure_topic(f"options-{part}", max_backlog=5000, protect_unacked=True, retention_bytes="1MiB")
    broker.configure_topic(f"options-{part}", retention_age="3d", max_backlog=None, retry_backoff_max="5m")
    broker.publish_many(f"options-{part}", [Message("x", key="same"), Message("y", key="same", priority="high")])
    for name in (f"again-{part}", f"deleted-{part}"):
        broker.create_topic(name, partitions=2)
        broker.publish_many(name, ["of the first life"] * 7)
        with broker.consumer(name, "g", name="c") as consumer:
            consumer.ack(consumer.receive(3))
    broker.delete_topic(f"deleted-{part}")
    broker.delete_topic(f"again-{part}")
    broker.create_topic(f"again-{part}", partitions=1, max_deliveries=7)
    broker.publish(f"again-{part}", "of the second life")
    clock.advance(0.25)


def consume(broker: Broker, clock: VirtualClock, part: int) -> None:
    """Acks with holes, failures, retries, leases that are extended, given back and run out."""
    if part == 1:
        broker.create_topic("work", partitions=2, visibility_timeout=30, max_deliveries=3, retry_backoff=2)
    names = [f"{part}.{number:02}" for number in range(24)]
    broker.publish_many("work", [Message(name, partition=place % 2) for place, name in enumerate(names)])
    consumer = broker.consumer("work", f"shared-{part}", name="one", start=clock.wall_us() / 1e6)
    held = _by_name(consumer.receive(100))
    assert sorted(held) == names
    consumer.ack([held[names[place]] for place in (0, 1, 2, 5, 9, 10)])
    held[names[12]].ack()
    held[names[3]].fail("it waits for long", delay="10h")
    held[names[4]].fail("it comes again", delay=0)
    consumer.release([held[names[6]], held[names[7]]])
    consumer.extend([held[names[8]]], 600)
    consumer.fail([held[names[13]], held[names[14]]], "by the backoff of the topic")
    consumer.kill([held[names[place]] for place in range(16, 21)], "killed")
    again = _by_name(consumer.receive(100))
    assert set(again) == {names[4], names[6], names[7]}
    again[names[4]].fail("once more", delay="10h")
    consumer.ack([again[names[6]]])
    until(lambda: len(_of_part(broker, part)) == 5, "killed messages are dead letters")
    clock.advance(31)  # the leases of 11, 15 and 21 to 23 end
    until(lambda: broker.group("work", f"shared-{part}").leased == 1, "leases run out")
    until(lambda: any(event.kind == EventKind.EXPIRED for event in broker.events("work")), "that is told")
    for _ in range(2):  # the third failure is the last one
        clock.advance(70)
        for message in consumer.receive(100):
            if message.value.decode() == names[11]:
                message.fail("three times", delay=0)
            else:
                message.release()
    until(lambda: len(_of_part(broker, part)) == 6, "what failed too often is a dead letter")
    consumer.close()
    _redrive(broker, part)
    clock.advance(0.25)


def _by_name(messages: list[Delivery]) -> dict[str, Delivery]:
    return {message.value.decode(): message for message in messages}


def _of_part(broker: Broker, part: int) -> list[str]:
    letters = broker.dead_letters("work") if any(info.name == "work.dlq" for info in broker.topics()) else []
    return [letter.value.decode() for letter in letters if letter.value.startswith(b"%d." % part)]


def _redrive(broker: Broker, part: int) -> None:
    """Of the dead letters one goes back, one is copied, one is purged, and three stay."""
    back, copied, purged = (f"{part}.{number}".encode() for number in (16, 17, 18))
    assert broker.redrive("work", filter=lambda letter: letter.value == back).redriven == 1
    assert broker.redrive("work", filter=lambda letter: letter.value == copied, to=f"copies-{part}").copied == 1
    assert broker.purge_dead_letters("work", filter=lambda letter: letter.value == purged) == 1


def form_groups(broker: Broker, clock: VirtualClock, part: int) -> None:
    """Groups of every kind, moved, and deleted."""
    broker.create_group("work", f"settings-{part}", start="latest", visibility_timeout="5m", max_in_flight=7)
    with broker.consumer("work", f"assigned-{part}", mode="assigned", name="owner") as owner:
        until(lambda: owner.receive(3), "the partitions are assigned")
    with broker.consumer(["work", "orders"], f"wide-{part}", name="wide") as consumer:
        consumer.ack(consumer.receive(9))
    with broker.consumer("orders", f"careless-{part}", name="careless", autoack=True) as consumer:
        consumer.receive(4)
    broker.checkpoint_group("orders", f"reader-{part}", {0: 3, 2: 1})
    broker.checkpoint_group("orders", f"reader-{part}", {0: 2, 1: 4})
    broker.replay("work", f"window-{part}", from_offset=2, to_offset=9, filter=lambda m: m.offset % 3 != 0, rate=2.5)
    broker.replay("work", f"one-{part}", partition=1, to_offset=5)
    with broker.consumer("work", f"one-{part}", name="replayed") as consumer:
        consumer.ack(consumer.receive(2))
    for name, to in (("back", 2), ("earliest", "earliest"), ("time", clock.wall_us() / 1e6), ("latest", "latest")):
        with broker.consumer("work", f"{name}-{part}", name="sought") as consumer:
            consumer.ack(consumer.receive(8))
        broker.seek_group("work", f"{name}-{part}", to)
    broker.seek_group("work", f"back-{part}", 5, partition=1)
    broker.create_group("work", f"forgotten-{part}")
    broker.delete_group("work", f"forgotten-{part}")
    clock.advance(0.25)


def delay(broker: Broker, clock: VirtualClock, part: int) -> None:
    """Messages that fall due, that wait, that are cancelled or get another time, and that live too short."""
    if part == 1:
        broker.create_topic("later", retention_age=None)
        broker.create_topic("brief", dead_letter_lapsed=True)
    broker.create_group("later", f"waiting-{part}")
    ids = [broker.publish("later", f"{part}.{number}", delay="1h") for number in range(6)]
    at_s = (clock.wall_us() + 7_200_000_000) // 1_000_000
    ids.append(broker.publish("later", f"{part} at its time", deliver_at=float(at_s), priority=3))
    assert broker.cancel_delayed(ids[0])
    assert broker.reschedule_delayed(ids[1], delay="12h")
    assert broker.reschedule_delayed(ids[2], delay=5)
    assert broker.reschedule_delayed(ids[3], delay="13h")
    assert broker.cancel_delayed(ids[3])
    broker.create_group("brief", f"slow-{part}")
    for topic in ("later", "brief"):
        broker.publish(topic, f"{part} short", expires_in=10, headers={"kind": "short"})
    broker.groups()  # those of the first round notice it too
    clock.advance(20)
    groups = [info for info in broker.groups() if info.topic == "later"]
    until(lambda: _lapsed_now(broker, clock) == len(groups), "its time is over for every group")
    letters = partial(broker.dead_letters, "brief", filter=lambda letter: letter.value == b"%d short" % part)
    until(lambda: len(letters()) == part, "it is a dead letter of every group")


def _lapsed_now(broker: Broker, clock: VirtualClock) -> int:
    events = [event for event in broker.events("later") if event.kind == EventKind.LAPSED]
    return sum(event.count for event in events if event.time_us == clock.wall_us())


def schedule(broker: Broker, clock: VirtualClock, part: int) -> None:
    """Schedules that fire, are paused, resumed, replaced and removed."""
    for name in ("active", "paused", "resumed", "removed", "replaced"):
        broker.schedule(f"{name}-{part}", "30 23 31 12 *", "calendar", f"{name} {part}")
    broker.pause_schedule(f"paused-{part}")
    broker.pause_schedule(f"resumed-{part}")
    broker.resume_schedule(f"resumed-{part}")
    broker.remove_schedule(f"removed-{part}")
    broker.schedule(
        f"replaced-{part}", "0 4 1 1 *", "calendar", EVERY_BYTE, zone="Europe/Berlin", key="k", headers={"a": "ü"},
        priority="high", expires_in="2h",
    )  # fmt: skip
    broker.schedule(f"fired-{part}", "*/10 * * * *", f"ticks-{part}", "tick", expires_in="1h")
    clock.advance(600)
    until(lambda: any(info.name == f"ticks-{part}" for info in broker.topics()), "the schedule fires")
    until(lambda: list(broker.read(f"ticks-{part}")), "the schedule fires")
    broker.schedule(f"fired-{part}", "30 23 31 12 *", f"ticks-{part}", "tick")
    clock.advance(0.25)


def stage(broker: Broker, clock: VirtualClock, part: int) -> None:
    """Staged messages: published, published again, dropped, waiting."""
    for name in ("a", "b", "again", "dropped"):
        broker.stage_many(name, "orders", [Message(f"staged {part} {name} {row}", partition=row) for row in range(3)])
        broker.stage_many(name, f"staged-{part}", [f"staged {part} {name}"])
        broker.seal_stage(name)
    broker.drop_staged(["dropped"])
    assert broker.publish_staged(["a", "b"], producer=f"loader {part}", sequence=4) == 8
    assert broker.publish_staged(["again"], producer=f"loader {part}", sequence=4) == 8
    clock.advance(0.25)
