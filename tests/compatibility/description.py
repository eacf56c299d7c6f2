"""What a directory tells whoever opens it, as plain values that JSON can hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

import penstock
from penstock import Broker, PenstockError
from penstock.model.message import StoredMessage
from penstock.segments.window import Window
from penstock.testing import VirtualClock
from penstock.views.snapshot import Snapshot
from tests.compatibility.lives import till

Told = dict[str, Any]


def open_at(path: Path, now_us: int) -> Broker:
    """The broker of a directory, at a time at which its clock stands still."""
    return penstock.open(path, clock=clock_at(now_us), min_free_bytes=0)


def clock_at(now_us: int) -> VirtualClock:
    """A clock that shows this time until it is moved."""
    clock = VirtualClock()
    clock.step_wall((now_us - clock.wall_us()) / 1_000_000)
    return clock


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=str, order="sorted"))


def describe(broker: Broker) -> Told:
    """Everything that a broker tells of its topics, messages, events, groups, letters and schedules."""
    names = [info.name for info in broker.topics()]
    with_letters = [name for name in names if f"{name}.dlq" in names]
    return {
        "topics": {info.name: dataclasses.asdict(info.config) for info in broker.topics()},
        "ends": {
            info.name: [(part.first_offset, part.end_offset) for part in info.partitions] for info in broker.topics()
        },
        "messages": {name: _rows(broker.read(name, include_deleted=True)) for name in names},
        "kept": {name: [str(message.id) for message in broker.read(name)] for name in names},
        "events": {name: [_texts(event) for event in broker.events(name)] for name in names},
        "groups": [dataclasses.asdict(info) for info in broker.groups()],
        "letters": {name: [_texts(letter) for letter in broker.dead_letters(name)] for name in with_letters},
        "delayed": {name: [_texts(message) for message in broker.delayed(name)] for name in names},
        "schedules": [_texts(schedule) for schedule in broker.schedules()],
        "traces": {name: _traces(broker, name) for name in ("work", "later")},
        "middles": {name: _middles(broker, name) for name in names},
    }


def _rows(messages: Iterable[StoredMessage]) -> list[Any]:
    return [_texts(message) for message in messages]


def _texts(value: Any) -> Any:
    """A struct as a dict, bytes as text, and what is nothing left out."""
    if isinstance(value, msgspec.Struct) and not isinstance(value, penstock.MessageId):
        value = {name: getattr(value, name) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {name: _texts(one) for name, one in value.items() if one is not None}
    if isinstance(value, list | tuple):
        return [_texts(one) for one in value]
    return value.decode("latin-1") if isinstance(value, bytes) else plain(value)


def _traces(broker: Broker, topic: str) -> dict[str, Any]:
    found = {}
    for message in broker.read(topic, include_deleted=True):
        trace = broker.trace(message.id)
        found[str(message.id)] = [_texts(line) for line in trace.lines] + [str(trace.retained_until)]
    return found


def _middles(broker: Broker, topic: str) -> list[int]:
    """Where the time of the message in the middle is found, in each partition."""
    found = []
    for part in next(info for info in broker.topics() if info.name == topic).partitions:
        times = [message.timestamp for message in broker.read(topic, part.number)]
        if times:
            found.append(broker.offset_at(topic, times[len(times) // 2], part.number))
    return found


def repeat(broker: Broker) -> Told:
    """What is answered to whoever publishes once more what is there already; it changes nothing."""
    answers: Told = {}
    for part in (1, 2):
        answers[f"once {part}"] = str(broker.publish("orders", "thrice", dedupe_id=f"once {part}"))
        for number in (0, 2, 10):
            identity = f"batch {part} {number}"
            answers[identity] = str(broker.publish_many("orders", [penstock.Message("x", dedupe_id=identity)])[0])
        for sequence in (1, 2, 5):
            again = broker.publish_many("orders", till(part, sequence), producer=f"till {part}", sequence=sequence)
            answers[f"till {part}, {sequence}"] = [str(identity) for identity in again]
            others = partial(broker.publish_many, "orders", ["x"], producer=f"till {part}", sequence=sequence)
            answers[f"till {part}, {sequence}, others"] = outcome(others)
        answers[f"till, {part}"] = [str(broker.publish_many("orders", ["x"], producer="till", sequence=part)[0])]
        answers[f"loader {part}"] = [
            broker.staged_sequence(f"loader {part}"),
            broker.publish_staged([], producer=f"loader {part}", sequence=4),
            broker.publish_staged([], producer=f"loader {part}", sequence=3),
        ]
    answers["tiny"] = [str(broker.publish_many("tiny", ["x"], producer="tiny", sequence=1)[0])]
    answers["tiny once"] = str(broker.publish("tiny", "x", dedupe_id="tiny once"))
    answers["nobody"] = broker.staged_sequence("nobody")
    return answers


def go_on(broker: Broker) -> Told:
    """What comes of going on with the directory: new messages, and what the consumers of each group get."""
    answers: Told = {
        "a dedupe id that is forgotten": str(broker.publish("forgetful", "x", dedupe_id="short 1")),
        "the next sequence": str(broker.publish_many("orders", ["x"], producer="till", sequence=3)[0]),
        "a name that was deleted": str(broker.publish("deleted-1", "x")),
        "another name that was deleted": str(broker.publish("deleted-2", "x")),
        "a stage that was sealed": broker.publish_staged(["waiting"], producer="late", sequence=1),
        "a stage that was not": outcome(lambda: broker.publish_staged(["unsealed"], producer="later", sequence=1)),
        "a letter that went back": outcome(lambda: broker.redrive("work").redriven),
    }
    received = {}
    for info in broker.groups():
        if info.kind == "consumers":
            with broker.consumer(info.topic, info.name, name="later") as consumer:
                got = consumer.receive(1000)
                received[f"{info.topic} {info.name}"] = [[str(message.id), message.deliveries] for message in got]
                consumer.ack(got[::2])
    answers["received"] = received
    answers["groups"] = [dataclasses.asdict(info) for info in broker.groups()]
    return answers


def outcome(call: Callable[[], object]) -> object:
    """What a call returns, or the name of its error."""
    try:
        return call()
    except PenstockError as error:
        return type(error).__name__


def describe_snapshot(path: Path) -> Told:
    """What is told of a directory that is only read."""
    with Snapshot(path) as snapshot:
        messages, events = {}, {}
        for info in snapshot.topics():
            for part in info.partitions:
                place = f"{info.name}/{part.number}"
                reader = snapshot.reader(snapshot.log(info.name, part.number), include_deleted=True)
                messages[place] = _rows(reader.messages(Window()))
                about = snapshot.reader(snapshot.log(info.name, part.number, "events"))
                events[place] = [_texts(event) for event in about.events(Window())]
        return {
            "torn": snapshot.recovery.torn_bytes,
            "topics": [dataclasses.asdict(info) for info in snapshot.topics()],
            "messages": messages,
            "events": events,
            "groups": [dataclasses.asdict(group) for group in snapshot.groups()],
            "letters": [_texts(letter) for letter in snapshot.dead_letters("work")],
        }
