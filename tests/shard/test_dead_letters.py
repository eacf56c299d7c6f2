"""Dead letters: what they tell, how they come back, and how they go for good."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import penstock
from penstock.model.letters import ByName
from penstock.segments import writer
from penstock.shard.operations import burying
from penstock.shard.operations import dead_letters as module
from penstock.shard.operations.burying import bury
from penstock.shard.reading import contents
from penstock.testing import FaultyStorage, MemoryStorage, VirtualClock
from tests.server.harness import until


@pytest.fixture
def broker(clock: VirtualClock) -> Iterator[penstock.Broker]:
    with penstock.open(storage=MemoryStorage(), clock=clock) as opened:
        yield opened


def kill(broker: penstock.Broker, count: int, group: str = "g") -> None:
    """So many new messages that the group gives up."""
    broker.publish_many("t", [f"{n}" for n in range(count)])
    with broker.consumer("t", group, max_in_flight=5000) as consumer:
        consumer.kill(consumer.receive(count), "cannot")


def origins(broker: penstock.Broker) -> list[int]:
    return [letter.origin.offset for letter in broker.dead_letters("t")]


def test_Q7_a_dead_letter_is_the_whole_message_with_its_lineage(broker: penstock.Broker, clock: VirtualClock) -> None:
    published = broker.publish("t", "v", key="k", headers={"a": "b"}, priority="high")
    (stored,) = broker.read("t")
    with broker.consumer("t", "g", name="worker") as consumer:
        consumer.receive()[0].fail("first", delay=1)
        clock.advance(1)
        consumer.receive()[0].release()
        consumer.receive()[0].kill("broken for good")
    (letter,) = broker.dead_letters("t")
    assert str(letter.id) == "t.dlq/0/0"
    assert (letter.origin, letter.group, letter.cause, letter.consumer) == (published, "g", "broken for good", "worker")
    assert (letter.value, letter.key, letter.headers, letter.priority) == (b"v", b"k", {"a": "b"}, 64)
    assert (letter.deliveries, letter.failures) == (3, 1)
    assert letter.published_at == stored.timestamp < letter.died_at
    kinds = [line.split()[1] for line in letter.history]
    assert kinds == ["delivered", "failed", "delivered", "released", "delivered"]
    assert "worker first" in letter.history[1]
    assert broker.dead_letter("t.dlq/0/0") == broker.dead_letter(letter.id) == letter
    assert broker.dead_letters("t.dlq") == [letter]


def test_Q6_one_that_dies_while_others_are_buried_has_its_last_delivery_in_its_letter(
    broker: penstock.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, dying = broker.shards.of("t").journal, broker.shards.of("t").dispatcher.dying
    broker.publish_many("t", ["first", "second"])
    consumer = broker.consumer("t", "g")
    first, second = consumer.receive(2)
    second.fail("once", delay=0)

    def die() -> None:
        consumer.kill(consumer.receive(1), "twice")

    beside = threading.Thread(target=die)
    flush, buries = journal.flush, threading.current_thread()

    def flush_first() -> None:
        flush()
        if threading.current_thread() is buries and not beside.ident:
            beside.start()
            until(lambda: len(dying) == 2, "the death of the second")

    with monkeypatch.context() as patch:
        patch.setattr(journal, "flush", flush_first)
        first.kill("at once")
    beside.join()
    counts = {letter.value: (letter.deliveries, letter.failures) for letter in broker.dead_letters("t")}
    assert counts == {b"first": (1, 0), b"second": (2, 1)}
    history = [line.split()[1] for line in broker.dead_letters("t")[1].history]
    assert history == ["delivered", "failed", "delivered"]


def test_Q7_dead_letters_survive_a_restart_and_settling(clock: VirtualClock) -> None:
    storage = MemoryStorage()
    with penstock.open(storage=storage, clock=clock) as broker:
        kill(broker, 3)
        before = broker.dead_letters("t")
        broker.settle()
        assert broker.dead_letters("t") == before
    with penstock.open(storage=storage, clock=clock) as broker:
        assert broker.dead_letters("t") == before
        assert broker.group("t", "g").dead == 3
        assert broker.consumer("t", "g").receive() == []
        assert broker.redrive("t").redriven == 3
    with penstock.open(storage=storage, clock=clock) as broker:
        assert broker.dead_letters("t") == []
        assert broker.group("t", "g").ready == 3


def test_a_letter_comes_from_the_topic_that_it_lies_beside_whatever_it_says(broker: penstock.Broker) -> None:
    kill(broker, 1)
    (letter,) = broker.read("t.dlq")
    assert letter.headers is not None
    broker.publish("other.dlq", "forged", headers=letter.headers)
    (forged,) = broker.dead_letters("other.dlq")
    assert (forged.origin.topic, forged.cause) == ("other", "published by hand")
    assert broker.redrive("other.dlq").copied == 1
    assert broker.group("t", "g").dead == 1


def test_redrive_goes_back_in_place_to_the_group_that_gave_up(broker: penstock.Broker) -> None:
    broker.publish_many("t", ["a", "b", "c"])
    with broker.consumer("t", "g") as consumer, broker.consumer("t", "other") as other:
        messages = consumer.receive()
        other.ack(other.receive())
        messages[0].fail("once", delay=0)
        (first,) = consumer.receive()
        consumer.kill([first, messages[1]], "no")
        messages[2].ack()
        report = broker.redrive("t")
        assert (report.selected, report.redriven, report.copied, report.skipped) == (2, 2, 0, 0)
        assert other.receive() == []
        again = consumer.receive()
        assert [(message.id.offset, message.deliveries, message.failures) for message in again] == [
            (0, 3, 0),
            (1, 2, 0),
        ]
        consumer.ack(again)
    info = broker.group("t", "g")
    assert (info.published, info.acked, info.dead) == (3, 3, 0)
    assert broker.dead_letters("t") == []


def test_Q8_redriving_twice_moves_once(broker: penstock.Broker) -> None:
    kill(broker, 1200)
    with ThreadPoolExecutor(4) as pool:
        reports = [job.result() for job in [pool.submit(broker.redrive, "t") for _ in range(4)]]
    assert sum(report.redriven for report in reports) == 1200
    assert sum(report.copied for report in reports) == 0
    assert broker.redrive("t").selected == 0
    assert broker.group("t", "g").ready == 1200


def test_Q8_one_that_is_stopped_in_the_middle_goes_on_where_it_was(
    broker: penstock.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill(broker, 1200)
    real, calls = module._redrive_some, []

    def stop(*arguments: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        real(*arguments)

    monkeypatch.setattr(module, "_redrive_some", stop)
    with pytest.raises(KeyboardInterrupt):
        broker.redrive("t")
    monkeypatch.undo()
    assert broker.group("t", "g").ready == 500
    assert broker.redrive("t").redriven == 700
    assert broker.group("t", "g").ready == 1200


def test_redrive_takes_a_filter_a_dry_run_and_a_rate(broker: penstock.Broker) -> None:
    kill(broker, 10)

    def even(letter: penstock.DeadLetter) -> bool:
        return letter.origin.offset % 2 == 0

    report = broker.redrive("t", filter=even, dry_run=True)
    assert (report.selected, report.redriven, report.dry_run) == (5, 0, True)
    assert len(origins(broker)) == 10
    assert broker.redrive("t", filter=even, rate=200).redriven == 5
    assert origins(broker) == [1, 3, 5, 7, 9]


def test_redrive_to_another_topic_publishes_copies(broker: penstock.Broker) -> None:
    broker.publish("t", "v", key="k", headers={"a": "b"}, priority="low")
    with broker.consumer("t", "g") as consumer:
        consumer.receive()[0].kill("no")
    report = broker.redrive("t", to="repaired")
    assert (report.redriven, report.copied) == (0, 1)
    (copy,) = broker.read("repaired")
    assert (copy.value, copy.key, copy.priority) == (b"v", b"k", 192)
    assert copy.headers == {"a": "b", "penstock-origin": "t/0/0"}
    assert broker.group("t", "g").dead == 1
    assert broker.redrive("t", to="repaired").selected == 0


def test_the_origin_of_a_redriven_copy_shows_where_it_went_also_after_a_restart(clock: VirtualClock) -> None:
    storage = MemoryStorage()
    with penstock.open(storage=storage, clock=clock) as broker:
        broker.create_topic("repaired", partitions=2)
        kill(broker, 3)
        first, second, third = broker.dead_letters("t")
        assert broker.redrive("t", filter=lambda letter: letter.id == second.id, to="repaired").copied == 1
        assert broker.redrive("t", filter=lambda letter: letter.id == third.id).redriven == 1
        assert broker.purge_dead_letters("t", filter=lambda letter: letter.id == first.id) == 1
    with penstock.open(storage=storage, clock=clock) as broker:
        (copy,) = broker.read("repaired")
        assert [(line.kind, line.group, line.cause) for line in broker.trace(second.origin).lines[-2:]] == [
            ("dead", "g", "cannot"),
            ("copied", "g", f"to {copy.id}"),
        ]
        assert [(line.kind, line.cause) for line in broker.trace(second.id).lines[1:]] == [
            ("redriven", f"to {copy.id}")
        ]
        assert [line.kind for line in broker.trace(third.origin).lines[-2:]] == ["dead", "redriven"]
        for letter, became in (
            (first, "it was purged"),
            (second, f"it was redriven to {copy.id}"),
            (third, f"it was redriven to {third.origin}"),
        ):
            with pytest.raises(penstock.MessageNotFound, match=f"no dead letter {letter.id}: {became}$"):
                broker.dead_letter(letter.id)
        assert (broker.group("t", "g").dead, broker.group("t", "g").ready) == (2, 1), "the copied one stays dead"


def test_the_trace_of_what_was_copied_because_it_is_gone_shows_where_it_went(broker: penstock.Broker) -> None:
    kill(broker, 1)
    broker.delete_group("t", "g")
    assert broker.redrive("t").copied == 1
    assert [(line.kind, line.cause) for line in broker.trace("t/0/0").lines[-1:]] == [("copied", "to t/0/1")]
    assert [(line.kind, line.cause) for line in broker.trace("t/0/1").lines] == [("published", None)]


def test_redrive_copies_when_the_group_is_deleted(broker: penstock.Broker) -> None:
    kill(broker, 2)
    broker.delete_group("t", "g")
    assert broker.redrive("t").copied == 2
    assert [message.value for message in broker.read("t")] == [b"0", b"1", b"0", b"1"]


def test_redrive_copies_when_the_original_is_gone(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.create_topic("t", retention_age="1d")
    kill(broker, 2)
    broker.settle()
    clock.advance(3 * 86400)
    broker.retain()
    assert list(broker.read("t")) == []
    assert origins(broker) == [0, 1]
    assert broker.redrive("t").copied == 2
    assert [message.value for message in broker.consumer("t", "g").receive()] == [b"0", b"1"]


def test_purged_letters_are_gone_for_good(clock: VirtualClock) -> None:
    storage = MemoryStorage()
    with penstock.open(storage=storage, clock=clock) as broker:
        kill(broker, 6)
        assert broker.purge_dead_letters("t", filter=lambda letter: letter.value < b"4") == 4
        with pytest.raises(penstock.MessageNotFound, match="it was purged"):
            broker.dead_letter("t.dlq/0/0")
    with penstock.open(storage=storage, clock=clock) as broker:
        assert origins(broker) == [4, 5]
        assert [message.value for message in broker.consumer("t.dlq", "g").receive()] == [b"4", b"5"]
        assert broker.purge_dead_letters("t") == 2
        assert broker.purge_dead_letters("t") == broker.redrive("t").selected == 0
        assert broker.group("t", "g").dead == 6


def test_dead_letters_die_no_further(broker: penstock.Broker, clock: VirtualClock) -> None:
    kill(broker, 1)
    with broker.consumer("t.dlq", "menders") as consumer:
        for failures in range(10):
            (message,) = consumer.receive()
            assert message.failures == failures
            with pytest.raises(penstock.InvalidArgument, match="die no further"):
                message.kill("no")
            message.fail("still broken")
            clock.advance(60)
    assert sorted(topic.name for topic in broker.topics()) == ["t", "t.dlq"]


def test_a_consumer_of_both_may_kill_what_is_alive(broker: penstock.Broker) -> None:
    kill(broker, 1)
    broker.publish("t", "x")
    with broker.consumer(["t", "t.dlq"], "h") as consumer:
        received = [message for _ in range(3) for message in consumer.receive()]
        consumer.kill([message for message in received if message.topic == "t"], "no")
    assert broker.group("t", "h").dead == 2


def test_a_letter_published_by_hand_is_shown_and_redriven(broker: penstock.Broker) -> None:
    broker.publish("t.dlq", "by hand", headers={"a": "b"})
    (letter,) = broker.dead_letters("t")
    assert (letter.value, letter.cause, letter.headers) == (b"by hand", "published by hand", {"a": "b"})
    assert broker.redrive("t", to="t").copied == 1
    assert [message.value for message in broker.read("t")] == [b"by hand"]


def test_thousands_may_die_at_once(broker: penstock.Broker) -> None:
    kill(broker, 1700)
    assert origins(broker) == list(range(1700))
    assert len(broker.dead_letters("t", limit=7)) == 7


def test_letters_that_cannot_be_written_are_tried_again(
    broker: penstock.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = broker.shards.of("t").append_internal, []

    def refuse_once(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise penstock.Overloaded("not now")
        return real(*arguments, **options)

    monkeypatch.setattr(broker.shards.of("t"), "append_internal", refuse_once)
    with pytest.raises(penstock.Overloaded):
        kill(broker, 1200)
    bury(broker.shards.of("t"))
    broker.shards.of("t").journal.flush()
    info = broker.group("t", "g")
    assert (info.ready, info.leased, info.dead) == (500, 0, 700)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda b: b.dead_letters("unknown"), penstock.TopicNotFound),
        (lambda b: b.redrive("unknown"), penstock.TopicNotFound),
        (lambda b: b.purge_dead_letters("unknown.dlq"), penstock.TopicNotFound),
        (lambda b: b.dead_letters(5), penstock.InvalidArgument),
        (lambda b: b.dead_letters("t", limit=-1), penstock.InvalidArgument),
        (lambda b: b.dead_letters("t", limit="all"), penstock.InvalidArgument),
        (lambda b: b.dead_letter("t/0/0"), penstock.MessageNotFound),
        (lambda b: b.dead_letter("t.dlq/0/9"), penstock.MessageNotFound),
        (lambda b: b.dead_letter("t.dlq/7/0"), penstock.MessageNotFound),
        (lambda b: b.dead_letter(5), penstock.InvalidArgument),
        (lambda b: b.redrive("t", rate=0), penstock.InvalidArgument),
        (lambda b: b.redrive("t", rate="fast"), penstock.InvalidArgument),
        (lambda b: b.redrive("t", to="t.dlq"), penstock.InvalidArgument),
        (lambda b: b.redrive("t", to="bad name"), penstock.InvalidArgument),
    ],
)
def test_wrong_arguments_are_refused(broker: penstock.Broker, call: Any, error: type[Exception]) -> None:
    kill(broker, 1)
    with pytest.raises(error):
        call(broker)
    assert origins(broker) == [0]


def test_Q8_a_letter_whose_group_was_moved_back_over_it_is_not_sent_twice(broker: penstock.Broker) -> None:
    broker.publish("t", "x")
    with broker.consumer("t", "g") as consumer:
        consumer.receive()[0].kill("never")
        broker.seek_group("t", "g", "earliest")
        report = broker.redrive("t")
        assert (report.selected, report.redriven, report.copied, report.skipped) == (1, 0, 0, 1)
        assert [message.value for message in consumer.receive()] == [b"x"]
    assert broker.dead_letters("t") == []


def test_dead_letters_are_protected_also_when_somebody_consumed_them_before_the_first_one(
    broker: penstock.Broker,
) -> None:
    broker.consumer("t.dlq", "watchers").close()
    (topic,) = [topic for topic in broker.topics() if topic.name == "t.dlq"]
    assert topic.config.protect_unacked


def test_a_letter_that_somebody_published_by_hand_is_redriven_to_the_topic_itself(broker: penstock.Broker) -> None:
    broker.publish("t", "first")
    broker.publish("t.dlq", "by hand")
    assert broker.redrive("t").copied == 1
    assert [message.value for message in broker.read("t")] == [b"first", b"by hand"]
    assert broker.dead_letters("t") == []


def disk_of(broker: penstock.Broker) -> FaultyStorage:
    storage = broker.shards.of("t").storage
    assert isinstance(storage, FaultyStorage)
    return storage


def rot(storage: FaultyStorage, suffix: str, content: bytes) -> None:
    """Change a bit of a file where it holds this."""
    (name,) = [name for name in storage.contents if name.endswith(suffix) and content in storage.contents[name]]
    storage.flip_bit(name, storage.contents[name].find(content))


@pytest.mark.parametrize("settled", [False, True])
def test_a_damaged_block_fails_and_dies_alone(
    clock: VirtualClock, settled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(writer.ROW_GROUP_BYTES, "messages", 1)  # a row group for each message
    bad = [23] if settled else list(range(20, 30))
    with penstock.open(storage=FaultyStorage(1), clock=clock) as broker:
        broker.create_topic("t", max_deliveries=1)
        for block in range(5):
            broker.publish_many("t", [f"block {block} message {n}" for n in range(10)])
        if settled:
            broker.settle()
        rot(disk_of(broker), ".parquet" if settled else ".journal", b"block 2 message 3")
        with broker.consumer("t", "g") as consumer:
            good = consumer.receive(50)
            assert [message.offset for message in good] == [n for n in range(50) if n not in bad]
            consumer.ack(good)
        assert origins(broker) == bad
        info = broker.group("t", "g")
        assert (info.acked, info.dead, info.leased) == (50 - len(bad), len(bad), 0)


def test_only_what_cannot_be_read_is_buried_empty(clock: VirtualClock) -> None:
    with penstock.open(storage=FaultyStorage(1), clock=clock) as broker:
        broker.create_topic("t")
        for block in range(3):
            broker.publish_many("t", [f"block {block} message {n}" for n in range(2)])
        with broker.consumer("t", "g") as consumer:
            messages = consumer.receive(6)
            rot(disk_of(broker), ".journal", b"block 1 message 0")
            broker.shards.of("t").dispatcher.contents = contents.Contents(broker.shards.of("t").core)
            consumer.kill(messages, "no")
        letters = {letter.origin.offset: letter.value for letter in broker.dead_letters("t")}
        assert letters == {n: b"" if n in (2, 3) else f"block {n // 2} message {n % 2}".encode() for n in range(6)}
        told = [(message.headers or {}).get("penstock-unreadable", "") for message in broker.read("t.dlq")]
        assert ["checksum" in reason for reason in told] == [False, False, True, True, False, False]


def test_messages_die_without_a_history_that_cannot_be_read(clock: VirtualClock) -> None:
    with penstock.open(storage=FaultyStorage(1), clock=clock) as broker:
        broker.publish_many("t", ["a", "b", "c"])
        with broker.consumer("t", "g") as consumer:
            consumer.release(consumer.receive(3))
            broker.settle()
            disk = disk_of(broker)
            (name,) = [name for name in disk.contents if "/events/" in name]
            for position in range(10, 200, 7):
                disk.flip_bit(name, position)
            consumer.kill(consumer.receive(3), "no")
        assert [(letter.value, letter.history) for letter in broker.dead_letters("t")] == [
            (b"a", []),
            (b"b", []),
            (b"c", []),
        ]


def test_what_could_not_be_read_for_its_burial_comes_again(
    broker: penstock.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise OSError("the disk does not answer")

    broker.publish_many("t", ["a", "b"])
    with broker.consumer("t", "g") as consumer:
        messages = consumer.receive(2)
        monkeypatch.setattr(broker.shards.of("t").dispatcher.contents, "rows", fail)
        with pytest.raises(OSError, match="does not answer"):
            consumer.kill(messages, "no")
        monkeypatch.undo()
        again = consumer.receive(2)
        assert [message.value for message in again] == [b"a", b"b"]
        consumer.kill(again, "no")
    assert origins(broker) == [0, 1]


def test_large_messages_are_buried_and_copied_in_several_commits(
    broker: penstock.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(burying, "BYTES_AT_ONCE", 10_000)
    monkeypatch.setattr(module, "BYTES_AT_ONCE", 10_000)
    real, sizes = broker.shards.of("t").journal._write, []

    def write(group: Any, encoded: Any) -> Any:
        sizes.append(encoded.size_bytes)
        return real(group, encoded)

    broker.publish_many("t", [bytes([n]) * 4000 for n in range(20)])
    monkeypatch.setattr(broker.shards.of("t").journal, "_write", write)
    with broker.consumer("t", "g") as consumer:
        consumer.kill(consumer.receive(20), "no")
    assert [letter.value[0] for letter in broker.dead_letters("t")] == list(range(20))
    assert broker.redrive("t", to="u").copied == 20
    assert [message.value[0] for message in broker.read("u")] == list(range(20))
    assert max(sizes) < 30_000
    assert len(sizes) >= 12


def test_dead_letters_that_are_named_are_found_without_a_look_at_all_the_others(
    broker: penstock.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.publish_many("t", [str(number) for number in range(1000)])
    with broker.consumer("t", "g") as consumer:
        consumer.kill(consumer.receive(1000), "no")
    looked_at: list[int] = []
    real = module._to_letter

    def look(message: penstock.StoredMessage) -> penstock.DeadLetter:
        looked_at.append(message.offset)
        return real(message)

    monkeypatch.setattr(module, "_to_letter", look)
    named = ByName([penstock.MessageId("t.dlq", 0, offset) for offset in (500, 502, 5000)])
    assert broker.redrive("t", filter=named).redriven == 2
    assert looked_at == [500, 501, 502]
    assert broker.purge_dead_letters("t", filter=ByName([])) == 0
    assert broker.purge_dead_letters("t", filter=ByName([penstock.MessageId("t.dlq", 7, 1)])) == 0
    assert looked_at == [500, 501, 502]
