"""Dead letters: how messages get there, and how people find them, send them back, or let them go.

A message dies for one group. Its copy in `<topic>.dlq` and the event that says so are one commit, and so are the
events of a redrive: a crash leaves a message on one side or on the other, never on both and never on none.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from penstock.broker.contents import Unreadable
from penstock.broker.interrupts import Uninterrupted
from penstock.broker.reading import LogReader
from penstock.broker.topics import Topic, is_kept
from penstock.delivery.group import Dying, Group
from penstock.delivery.offsets import Offsets, from_range, lowest, written
from penstock.model.batch import Batch
from penstock.model.errors import CorruptData, GroupInUse, InvalidArgument, MessageNotFound
from penstock.model.events import Event, EventKind
from penstock.model.letters import DeadLetter, RedriveReport
from penstock.model.message import MessageId, StoredMessage
from penstock.model.names import DEAD_LETTERS, check_topic_name
from penstock.model.units import to_datetime
from penstock.segments.window import Rows, Window

if TYPE_CHECKING:
    from penstock.broker.engine import Engine
    from penstock.broker.topic_delivery import TopicDelivery

_AT_ONCE = 500
_BYTES_AT_ONCE = 8 << 20
_PREFIX = "penstock-"
_HISTORY_MAX = 50
_log = logging.getLogger("penstock")


# Burying.


def bury(engine: Engine) -> None:
    """Move everything that is dying to the dead letters."""
    with engine.deliveries.burying:
        engine.journal.flush()  # what led to their death is counted and can be read
        while True:
            with engine.lock:
                if not engine.deliveries.dying:
                    return
                delivery, group, dying = engine.deliveries.dying.popleft()
            left = dying.offsets
            while left:
                rest = left
                try:
                    _make_room(engine)
                    some = lowest(left, _AT_ONCE)
                    rest = left - some
                    left = left - _bury(engine, delivery, group, dying._replace(offsets=some))
                except Exception:
                    if rest:  # the others are tried again
                        with engine.lock:
                            engine.deliveries.dying.appendleft((delivery, group, dying._replace(offsets=rest)))
                    raise


def _make_room(engine: Engine) -> None:
    """Have what is gathered written before more is put into the same group, if it is much."""
    with engine.lock:
        commit = engine.journal.latest_commit() if engine.journal.gathering.size_bytes >= _BYTES_AT_ONCE else None
    if commit is not None:
        engine.journal.wait(commit)


def _bury(engine: Engine, delivery: TopicDelivery, group: Group, dying: Dying) -> Offsets:
    """Bury the first of the dying, as many as one step takes; those. When it fails, all of them are given up."""
    topic, now_us = delivery.topic, engine.clock.wall_us()
    try:
        found, some = _read(engine, topic, dying)
        first = dying._replace(offsets=some)
        letters = _letters(engine, topic, group, first, found, now_us) if found else None
        with engine.lock:
            desk = delivery.desks.get(group.name)
            if topic.deleting or topic.delivery is not delivery or desk is None or desk.group is not group:
                return dying.offsets  # there is nobody any more whom it could concern
            if group.is_void(dying):
                return dying.offsets  # the group was moved: they are not dying any more
            if letters is not None:
                engine.append_internal(topic.name + DEAD_LETTERS, letters, now_us)
            events = group.bury(first, now_us) if letters is not None else group.skip(first, now_us)
            engine.log_events(topic, events)
    except Exception:
        with engine.lock:
            if not group.is_void(dying):
                group.give_up(dying.partition, dying.offsets)
        raise
    return some


def _read(engine: Engine, topic: Topic, dying: Dying) -> tuple[list[Rows], Offsets]:
    """The content of the first of the dying, as much as one step takes, and which of them that are."""
    log = topic.partitions[dying.partition].messages
    unreadable: Unreadable = []
    found: list[Rows] = []
    some, room = dying.offsets, _BYTES_AT_ONCE
    for rows in engine.deliveries.contents.rows(log, dying.offsets, unreadable):
        count = 0
        for value in rows.batch.values:
            if room <= 0:
                break
            room -= len(value)
            count += 1
        if count:
            found.append(Rows(rows.offsets[:count], rows.timestamps_us[:count], rows.batch.slice(0, count)))
        if count < len(rows.offsets):
            some = dying.offsets & from_range(0, rows.offsets[count])
            break
    for offsets, error in unreadable:
        count = len(offsets)
        reason = {_PREFIX + "unreadable": str(error)}
        found.append(Rows(list(offsets), [0] * count, Batch([b""] * count, headers=[reason] * count)))
    return sorted(found, key=lambda rows: rows.offsets[0]), some


def _letters(engine: Engine, topic: Topic, group: Group, dying: Dying, found: list[Rows], now_us: int) -> Batch:
    """The dying messages with everything that is known of them."""
    progress = group.claims[dying.partition].progress
    histories = _histories(engine, topic, group.name, dying)
    whole = Batch([], keys=[], headers=[], priorities=b"")
    priorities: list[int] = []
    for offsets, timestamps_us, batch in found:
        count = len(offsets)
        whole.values += batch.values
        whole.keys += batch.keys or [None] * count  # type: ignore[operator]
        priorities += batch.priorities or [batch.priority] * count
        for offset, time_us, headers in zip(offsets, timestamps_us, batch.headers or [None] * count, strict=True):
            deliveries, failures = progress.counts_of(offset)
            history = histories.get(offset, [])
            if dying.kind is not None:
                history = [*history, _line(now_us, dying.kind, dying.consumer, dying.cause)]
            lineage = {
                "origin": str(MessageId(topic.name, dying.partition, offset)),
                "group": group.name,
                "cause": dying.cause,
                "consumer": dying.consumer or "",
                "deliveries": str(deliveries),
                "failures": str(failures + (dying.kind is not None)),
                "died-at": str(now_us),
                "published-at": str(time_us),
                "history": json.dumps(history),
            }
            whole.headers.append(  # type: ignore[union-attr]
                {**(headers or {}), **{_PREFIX + name: text for name, text in lineage.items()}}
            )
    whole.priorities = bytes(priorities)
    return whole


def _histories(engine: Engine, topic: Topic, group: str, dying: Dying) -> dict[int, list[str]]:
    """What the event log tells of the dying messages and their group."""
    event_log = topic.partitions[dying.partition].events
    found: dict[int, list[str]] = {}
    if event_log is None:
        return found
    try:
        for event in LogReader(engine, event_log).events_between(dying.offsets.min(), dying.offsets.max()):
            if event.group == group and event.count:
                line = _line(event.time_us, event.kind, event.consumer, event.detail)
                for offset in dying.offsets:
                    if event.speaks_of(offset):
                        found.setdefault(offset, []).append(line)
    except (CorruptData, OSError) as error:  # they die without it
        _log.warning("dead letters of %s have no history: %s", topic.name, error)
        return {}
    return {offset: lines[-_HISTORY_MAX:] for offset, lines in found.items()}


def _line(time_us: int, kind: EventKind, consumer: str | None, detail: str | None) -> str:
    parts = [to_datetime(time_us).isoformat(), str(kind), consumer, detail]
    return " ".join(part for part in parts if part)


# Looking.


def dead_letters_topic(name: str) -> str:
    """The topic of the dead letters of a topic; that itself is taken as it is."""
    check_topic_name(name)
    return name if name.endswith(DEAD_LETTERS) else name + DEAD_LETTERS


def _find_topic(engine: Engine, name: str) -> Topic | None:
    """The topic of the dead letters, if any message has died; there must be one of the two topics."""
    found = engine.catalog.by_name.get(dead_letters_topic(name))
    return found if found is not None or not engine.topic(name.removesuffix(DEAD_LETTERS)) else None


def list_dead_letters(engine: Engine, topic_name: str, after: MessageId | None = None) -> Iterator[DeadLetter]:
    """The dead letters of a topic that were neither redriven nor purged, oldest first, or those behind one of them."""
    with engine.lock:
        topic = _find_topic(engine, topic_name)
        partitions = topic.partitions if topic is not None else []
    for number, partition in enumerate(partitions):
        if after is not None and number < after.partition:
            continue
        start = after.offset + 1 if after is not None and number == after.partition else 0
        for message in LogReader(engine, partition.messages).messages(Window(start)):
            if partition.state is None or message.offset not in partition.state.withdrawn:
                yield _to_letter(message)


def find_dead_letter(engine: Engine, identity: MessageId) -> DeadLetter:
    """One dead letter by its id."""
    with engine.lock:
        topic = engine.topic(identity.topic)
        if not identity.topic.endswith(DEAD_LETTERS) or identity.partition >= len(topic.partitions):
            raise MessageNotFound(f"there is no dead letter {identity}")
        partition = topic.partitions[identity.partition]
    window = Window(identity.offset, identity.offset + 1)
    for message in LogReader(engine, partition.messages).messages(window):
        if partition.state is None or message.offset not in partition.state.withdrawn:
            return _to_letter(message)
    raise MessageNotFound(f"there is no dead letter {identity}: it was redriven or purged, or never was")


def _to_letter(message: StoredMessage) -> DeadLetter:
    headers = message.headers or {}
    lineage = {name[len(_PREFIX) :]: text for name, text in headers.items() if name.startswith(_PREFIX)}
    own = {name: text for name, text in headers.items() if not name.startswith(_PREFIX)}
    try:
        return DeadLetter(
            message.id,
            MessageId.parse(lineage["origin"]),
            lineage["group"],
            lineage["cause"],
            lineage["consumer"] or None,
            int(lineage["deliveries"]),
            int(lineage["failures"]),
            to_datetime(int(lineage["died-at"])),
            to_datetime(int(lineage["published-at"])),
            message.value,
            message.key,
            own or None,
            message.priority,
            json.loads(lineage["history"]),
        )
    except (KeyError, ValueError):  # somebody published it there by hand
        home = MessageId(message.topic.removesuffix(DEAD_LETTERS), message.partition, message.offset)
        return DeadLetter(
            message.id, home, "", "published by hand", None, 0, 0, message.timestamp, message.timestamp,
            message.value, message.key, own or None, message.priority, [],
        )  # fmt: skip


# Sending back, and letting go.


def redrive(
    engine: Engine,
    topic_name: str,
    chosen: Callable[[DeadLetter], bool] | None,
    to: str | None,
    rate: float | None,
    dry_run: bool,
) -> RedriveReport:
    """Send dead letters back to where they died, or to another topic; each once, also when killed in the middle."""
    report = RedriveReport(dry_run=dry_run)
    if to is not None and dead_letters_topic(topic_name) == check_topic_name(to):
        raise InvalidArgument(f"dead letters of {topic_name} are in {to} already: give another topic")
    at_once = _AT_ONCE if rate is None else max(1, min(_AT_ONCE, int(rate / 10)))
    started_s = time.monotonic()
    # What dies again meanwhile comes behind this end: one call does not go round in circles.
    for letters in _in_steps(_until_now(engine, topic_name), chosen, at_once):
        if rate is not None and report.selected and not dry_run:
            ahead_s = report.selected / rate - (time.monotonic() - started_s)
            time.sleep(max(0.0, ahead_s))
        report.selected += len(letters)
        if not dry_run:
            with Uninterrupted():
                _redrive_some(engine, letters, to, report)
    return report


def purge(engine: Engine, topic_name: str, chosen: Callable[[DeadLetter], bool] | None) -> int:
    """Let dead letters go for good; how many."""
    gone = 0
    for some in _in_steps(_until_now(engine, topic_name), chosen, _AT_ONCE):
        with Uninterrupted():
            gone += _purge_some(engine, some)
    return gone


def _in_steps(
    letters: Iterable[DeadLetter], chosen: Callable[[DeadLetter], bool] | None, at_once: int
) -> Iterator[list[DeadLetter]]:
    """The chosen ones, so many or so many bytes at once."""
    waiting: list[DeadLetter] = []
    size_bytes = 0
    for letter in letters:
        if chosen is None or chosen(letter):
            waiting.append(letter)
            size_bytes += len(letter.value)
        if len(waiting) >= at_once or size_bytes >= _BYTES_AT_ONCE:
            yield waiting
            waiting, size_bytes = [], 0
    if waiting:
        yield waiting


def _until_now(engine: Engine, topic_name: str) -> Iterator[DeadLetter]:
    name = dead_letters_topic(topic_name)
    with engine.lock:
        topic = _find_topic(engine, topic_name)
        ends = [partition.messages.committed_end for partition in topic.partitions] if topic is not None else []
    for letter in list_dead_letters(engine, name):
        if letter.id.offset < ends[letter.id.partition]:
            yield letter


def _purge_some(engine: Engine, letters: list[DeadLetter]) -> int:
    with engine.deliveries.redriving:
        with engine.lock:
            topic, kept = _still_there(engine, letters)
            commit = engine.log_events(topic, _withdraw(engine, EventKind.PURGED, kept)) if kept else None
        if commit is not None:
            engine.journal.wait(commit)
    return len(kept)


def _redrive_some(engine: Engine, letters: list[DeadLetter], to: str | None, report: RedriveReport) -> None:
    now_us = engine.clock.wall_us()
    with engine.deliveries.redriving:
        with engine.lock:
            topic, kept = _still_there(engine, letters)
            report.skipped += len(letters) - len(kept)
            if not kept:
                return
            back: dict[tuple[Topic, int, str], list[int]] = {}
            copies: dict[str, list[DeadLetter]] = {}
            for letter in kept:
                home, is_dead = _home(engine, letter) if to is None else (None, True)
                if not is_dead:
                    report.skipped += 1  # its group was moved back over it, and has it again
                elif home is not None:
                    back.setdefault((home, letter.origin.partition, letter.group), []).append(letter.origin.offset)
                else:
                    copies.setdefault(to or letter.origin.topic, []).append(letter)
            for name, some in copies.items():
                engine.append_internal(name, _copies(some), now_us)
            for (home, partition, group), offsets in back.items():
                first, count, others = written(Offsets(offsets))
                event = Event(EventKind.REDRIVEN, now_us, first, count, group, offsets=others)
                engine.log_events(home, [(partition, event)])
            commit = engine.log_events(topic, _withdraw(engine, EventKind.REDRIVEN, kept))
        engine.journal.wait(commit)
    report.copied += sum(map(len, copies.values()))
    report.redriven += sum(map(len, back.values()))


def _still_there(engine: Engine, letters: list[DeadLetter]) -> tuple[Topic, list[DeadLetter]]:
    topic = engine.topic(letters[0].id.topic)
    states = [partition.delivery_state() for partition in topic.partitions]
    return topic, [letter for letter in letters if letter.id.offset not in states[letter.id.partition].withdrawn]


def _withdraw(engine: Engine, kind: EventKind, letters: Iterable[DeadLetter]) -> Iterator[tuple[int, Event]]:
    by_partition: dict[int, list[int]] = {}
    for letter in letters:
        by_partition.setdefault(letter.id.partition, []).append(letter.id.offset)
    for partition, offsets in by_partition.items():
        first, count, others = written(Offsets(offsets))
        yield partition, Event(kind, engine.clock.wall_us(), first, count, offsets=others)


def _home(engine: Engine, letter: DeadLetter) -> tuple[Topic | None, bool]:
    """The topic in which the original lies, if it does, and whether it is (still) dead to its group."""
    topic = engine.catalog.by_name.get(letter.origin.topic)
    if topic is None or topic.deleting or letter.origin.partition >= len(topic.partitions):
        return None, True
    partition = topic.partitions[letter.origin.partition]
    progress = None if partition.state is None else partition.state.groups.get(letter.group)
    if progress is None or not is_kept(partition.messages, letter.origin.offset):
        return None, True
    desk = topic.delivery.desks.get(letter.group) if topic.delivery is not None else None
    if desk is not None and desk.group.claims[letter.origin.partition].paused:
        raise GroupInUse(f"the group {letter.group!r} of {topic.name} is being moved: redrive again when it is done")
    return topic, letter.origin.offset in progress.dead


def _copies(letters: list[DeadLetter]) -> Batch:
    origin = _PREFIX + "origin"
    return Batch(
        [letter.value for letter in letters],
        keys=[letter.key for letter in letters],
        headers=[{**(letter.headers or {}), origin: str(letter.origin)} for letter in letters],
        priorities=bytes(letter.priority for letter in letters),
    )
