"""Dead letters: how people find them, send them back, or let them go.

The events of a redrive are one commit: a crash leaves a message on one side or on the other, never on both and never
on none. To a topic of another shard there are two, and the copy is first. How messages get here is told in `burying`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from penstock.delivery.offsets import Offsets, written
from penstock.journal import Commit
from penstock.log.partition_log import is_kept
from penstock.log.topics import Catalog, Partition, Topic
from penstock.model.batch import Batch
from penstock.model.errors import GroupInUse, InvalidArgument, MessageNotFound
from penstock.model.events import Event, EventKind
from penstock.model.letters import ByName, CauseReport, DeadLetter, DeadLetterCause, LetterChoice, RedriveReport
from penstock.model.message import Message, MessageId, StoredMessage
from penstock.model.names import DEAD_LETTERS, check_topic_name
from penstock.model.options import check_limit, check_rate
from penstock.model.pace import Pace, paced
from penstock.model.schedules import check_open_topic
from penstock.model.units import to_datetime
from penstock.segments.window import Window
from penstock.shard.interrupts import Uninterrupted
from penstock.shard.operations.burying import AT_ONCE, BYTES_AT_ONCE, LINEAGE
from penstock.shard.reading.log_reader import LogReader, LogSource

if TYPE_CHECKING:
    from penstock.shard.shard import Shard

Publish = Callable[[str, list[Message]], tuple[Sequence[MessageId], Commit | None]]
"""Publish a batch, wherever its topic lives."""
_CAUSES_MAX = 1000
_decode_history = msgspec.json.Decoder(list[str]).decode


# Looking.


def dead_letters_topic(name: str) -> str:
    """The topic of the dead letters of a topic; that itself is taken as it is."""
    check_topic_name(name)
    return name if name.endswith(DEAD_LETTERS) else name + DEAD_LETTERS


def _find_topic(catalog: Catalog, name: str) -> Topic | None:
    """The topic of the dead letters, if any message has died; there must be one of the two topics."""
    found = catalog.by_name.get(dead_letters_topic(name))
    return found if found is not None or not catalog.topic(name.removesuffix(DEAD_LETTERS)) else None


def list_dead_letters(source: LogSource, topic_name: str, after: MessageId | None = None) -> Iterator[DeadLetter]:
    """The dead letters of a topic that were neither redriven nor purged, oldest first, or those behind one of them."""
    with source.lock:
        topic = _find_topic(source.catalog, topic_name)
        partitions = list(topic.partitions) if topic is not None else []
    first, start = (after.partition, after.offset + 1) if after is not None else (0, 0)
    windows = {number: Window(start if number == first else 0) for number in range(first, len(partitions))}
    yield from _letters(source, partitions, windows)


def _letters(source: LogSource, partitions: list[Partition], windows: Mapping[int, Window]) -> Iterator[DeadLetter]:
    """Those of some windows, by partition, that were not withdrawn."""
    for number, window in windows.items():
        partition = partitions[number]
        for message in LogReader(source, partition.messages).messages(window):
            if partition.state is None or message.offset not in partition.state.withdrawn:
                yield _to_letter(message)


def dead_letters(
    shard: Shard, topic: str, *, filter: LetterChoice | None = None, limit: int | None = None
) -> list[DeadLetter]:
    """The dead letters of a topic, oldest first."""
    chosen = (letter for letter in list_dead_letters(shard, topic) if filter is None or filter(letter))
    return list(itertools.islice(chosen, check_limit(limit)))


def dead_letter(shard: Shard, identity: MessageId | str) -> DeadLetter:
    """One dead letter by its id."""
    identity = MessageId.parse(str(identity))
    with shard.lock:
        topic = shard.topic(identity.topic)
        if not identity.topic.endswith(DEAD_LETTERS) or identity.partition >= len(topic.partitions):
            raise MessageNotFound(f"there is no dead letter {identity}")
        partitions = list(topic.partitions)
    partition = partitions[identity.partition]
    window = Window(identity.offset, identity.offset + 1)
    for letter in _letters(shard, partitions, {identity.partition: window}):
        return letter
    raise MessageNotFound(f"there is no dead letter {identity}: {_what_became_of_it(shard, partition, identity)}")


def _what_became_of_it(shard: Shard, partition: Partition, identity: MessageId) -> str:
    """Why a letter is not among the others any more."""
    reader = LogReader(shard, partition.messages)
    message = next(reader.messages(Window(identity.offset, identity.offset + 1)), None)
    if message is None or partition.events is None:
        return "it was redriven or purged, or never was"
    for event in LogReader(shard, partition.events).events_about(identity.offset):
        if event.kind == EventKind.PURGED:
            return "it was purged"
        if event.kind == EventKind.REDRIVEN:
            return f"it was redriven to {event.detail or _to_letter(message).origin}"
    return "it was redriven or purged"


def _to_letter(message: StoredMessage) -> DeadLetter:
    headers = message.headers or {}
    lineage = {name[len(LINEAGE) :]: text for name, text in headers.items() if name.startswith(LINEAGE)}
    own = {name: text for name, text in headers.items() if not name.startswith(LINEAGE)}
    try:
        return DeadLetter(
            message.id,
            _origin(message.topic, lineage["origin"]),
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
            _decode_history(lineage["history"]),
        )
    except (KeyError, ValueError, OverflowError):  # somebody published it there by hand
        home = MessageId(message.topic.removesuffix(DEAD_LETTERS), message.partition, message.offset)
        return DeadLetter(
            message.id, home, "", "published by hand", None, 0, 0, message.timestamp, message.timestamp,
            message.value, message.key, own or None, message.priority, [],
        )  # fmt: skip


def _origin(topic: str, text: str) -> MessageId:
    """Where a dead letter comes from: the topic that these are the dead letters of, and no other one."""
    origin = MessageId.parse(text)
    if origin.topic + DEAD_LETTERS != topic:
        raise InvalidArgument(f"{topic} is not where messages of {origin.topic} die")
    return origin


def count_causes(letters: Iterable[DeadLetter], letters_max: int, bytes_max: int) -> CauseReport:
    """Why messages died, by cause and group, the most frequent first; of so many letters or bytes at most."""
    found: dict[tuple[str, str], DeadLetterCause] = {}
    report = CauseReport([])
    for letter in letters:
        if report.total >= letters_max or bytes_max <= 0:
            report.complete = False
            break
        bytes_max -= len(letter.value)
        report.total += 1
        died_at = letter.died_at
        known = found.get((letter.cause, letter.group))
        if known is None:
            found[letter.cause, letter.group] = DeadLetterCause(letter.cause, letter.group, 1, died_at, died_at)
        else:
            known.add(died_at)
    causes = sorted(found.values(), key=lambda cause: (-cause.count, cause.cause, cause.group))
    report.causes = causes[:_CAUSES_MAX]
    report.complete = report.complete and len(causes) <= _CAUSES_MAX
    return report


# Sending back, and letting go.


def _windows_of(named: ByName, ends: list[int]) -> dict[int, Window]:
    """Where the letters lie, by partition, before these ends: no others are looked at but those between them."""
    offsets: dict[int, list[int]] = {}
    for identity in named.ids:
        if identity.partition < len(ends) and identity.offset < ends[identity.partition]:
            offsets.setdefault(identity.partition, []).append(identity.offset)
    return {number: Window(min(some), max(some) + 1) for number, some in sorted(offsets.items())}


def redrive(
    shard: Shard,
    topic: str,
    *,
    filter: LetterChoice | None = None,
    to: str | None = None,
    rate: float | None = None,
    dry_run: bool = False,
    progress: Callable[[int], object] | None = None,
    publish: Publish | None = None,
) -> RedriveReport:
    """Send dead letters back to where they died, or to another topic; each once, also when killed in the middle.

    `publish` is given where the other topic is in other shards. A copy is durable there before its letter goes here,
    and copies have dedupe ids: after a crash between the two, none is there twice if this is done again soon.
    """
    report = RedriveReport(dry_run=dry_run)
    rate = check_rate(rate)
    letters_topic = dead_letters_topic(topic)
    if letters_topic == check_open_topic(letters_topic.removesuffix(DEAD_LETTERS) if to is None else to):
        raise InvalidArgument(f"dead letters of {topic} are in {to} already: give another topic")
    pace = Pace(None if dry_run else rate)
    # What dies again meanwhile comes behind this end: one call does not go round in circles.
    steps = _in_steps(_until_now(shard, topic, filter), filter, pace.at_once(AT_ONCE))
    for sleep_s, letters in paced(steps, pace, shard.clock.monotonic_s):
        shard.clock.sleep_s(sleep_s)
        report.selected += len(letters)
        if not dry_run:
            with Uninterrupted():
                if to is None or publish is None:
                    _redrive_some(shard, letters, to, report)
                else:
                    _redrive_away(shard, letters, publish, to, report)
        if progress is not None:
            progress(len(letters))
    return report


def purge_dead_letters(shard: Shard, topic: str, *, filter: LetterChoice | None = None) -> int:
    """Let dead letters go for good; how many."""
    gone = 0
    for some in _in_steps(_until_now(shard, topic, filter), filter, AT_ONCE):
        with Uninterrupted():
            gone += _purge_some(shard, some)
    return gone


def _in_steps(letters: Iterable[DeadLetter], chosen: LetterChoice | None, at_once: int) -> Iterator[list[DeadLetter]]:
    """The chosen ones, so many or so many bytes at once."""
    waiting: list[DeadLetter] = []
    size_bytes = 0
    for letter in letters:
        if chosen is None or chosen(letter):
            waiting.append(letter)
            size_bytes += len(letter.value)
        if len(waiting) >= at_once or size_bytes >= BYTES_AT_ONCE:
            yield waiting
            waiting, size_bytes = [], 0
    if waiting:
        yield waiting


def _until_now(shard: Shard, topic_name: str, chosen: LetterChoice | None) -> Iterator[DeadLetter]:
    """Those that may be chosen, of what is there by now."""
    with shard.lock:
        topic = _find_topic(shard.catalog, topic_name)
        partitions = list(topic.partitions) if topic is not None else []
        ends = [partition.messages.committed_end for partition in partitions]
    if isinstance(chosen, ByName):
        windows = _windows_of(chosen, ends)
    else:
        windows = {number: Window(0, end) for number, end in enumerate(ends)}
    yield from _letters(shard, partitions, windows)


def _purge_some(shard: Shard, letters: list[DeadLetter]) -> int:
    with shard.dispatcher.redriving:
        with shard.lock:
            topic, kept = _still_there(shard, letters)
            commit = shard.log_events(topic, _withdraw(shard, EventKind.PURGED, kept)) if kept else None
        if commit is not None:
            shard.journal.wait(commit)
    return len(kept)


def _redrive_some(shard: Shard, letters: list[DeadLetter], to: str | None, report: RedriveReport) -> None:
    now_us = shard.clock.wall_us()
    with shard.dispatcher.redriving:
        with shard.lock:
            topic, kept = _still_there(shard, letters)
            report.skipped += len(letters) - len(kept)
            if not kept:
                return
            back: dict[tuple[Topic, int, str], list[int]] = {}
            copies: dict[str, list[DeadLetter]] = {}
            for letter in kept:
                home, is_dead = _home(shard, letter) if to is None else (None, True)
                if not is_dead:
                    report.skipped += 1  # its group was moved back over it, and has it again
                elif home is not None:
                    back.setdefault((home, letter.origin.partition, letter.group), []).append(letter.origin.offset)
                else:
                    copies.setdefault(to or letter.origin.topic, []).append(letter)
            went: dict[MessageId, MessageId] = {}
            for name, some in copies.items():
                ids, _ = shard.append_internal(name, _copies(some), now_us)
                went.update(zip((letter.id for letter in some), ids, strict=True))
            for (home, partition, group), offsets in back.items():
                first, count, others = written(Offsets(offsets))
                event = Event(EventKind.REDRIVEN, now_us, first, count, group, offsets=others)
                shard.log_events(home, [(partition, event)])
            for letter in itertools.chain.from_iterable(copies.values()):
                _tell_origin(shard, letter, went[letter.id], now_us)
            commit = shard.log_events(topic, _withdraw(shard, EventKind.REDRIVEN, kept, went))
        shard.journal.wait(commit)
    report.copied += sum(map(len, copies.values()))
    report.redriven += sum(map(len, back.values()))


def _redrive_away(shard: Shard, letters: list[DeadLetter], publish: Publish, to: str, report: RedriveReport) -> None:
    """Send letters to a topic of other shards: two commits, so that a crash between them leaves both."""
    with shard.dispatcher.redriving:
        with shard.lock:
            topic, kept = _still_there(shard, letters)
        report.skipped += len(letters) - len(kept)
        if not kept:
            return
        ids, published = publish(to, [_sent_away(letter) for letter in kept])
        if published is not None:
            published.wait()
        went = dict(zip((letter.id for letter in kept), ids, strict=True))
        now_us = shard.clock.wall_us()
        with shard.lock:
            for letter in kept:
                _tell_origin(shard, letter, went[letter.id], now_us)
            commit = shard.log_events(topic, _withdraw(shard, EventKind.REDRIVEN, kept, went))
        commit.wait()
    report.copied += len(kept)


def _still_there(shard: Shard, letters: list[DeadLetter]) -> tuple[Topic, list[DeadLetter]]:
    topic = shard.topic(letters[0].id.topic)
    states = [partition.delivery_state() for partition in topic.partitions]
    return topic, [letter for letter in letters if letter.id.offset not in states[letter.id.partition].withdrawn]


def _tell_origin(shard: Shard, letter: DeadLetter, copy: MessageId, now_us: int) -> None:
    """Note in the log of the original where the copy went; the original itself stays as it is."""
    topic, origin = shard.catalog.by_name.get(letter.origin.topic), letter.origin
    if topic is None or topic.deleting or not letter.group or origin.partition >= len(topic.partitions):
        return
    if origin.offset < topic.partitions[origin.partition].messages.committed_end:
        event = Event(EventKind.REDRIVEN, now_us, origin.offset, 0, letter.group, detail=str(copy))
        shard.log_events(topic, [(origin.partition, event)])


def _withdraw(
    shard: Shard, kind: EventKind, letters: Iterable[DeadLetter], went: Mapping[MessageId, MessageId] | None = None
) -> Iterator[tuple[int, Event]]:
    """The events by which letters go, with where their copies went."""
    by_partition: dict[int, list[int]] = {}
    for letter in letters:
        copy = None if went is None else went.get(letter.id)
        if copy is None:
            by_partition.setdefault(letter.id.partition, []).append(letter.id.offset)
        else:
            event = Event(kind, shard.clock.wall_us(), letter.id.offset, 1, detail=str(copy))
            yield letter.id.partition, event
    for partition, offsets in by_partition.items():
        first, count, others = written(Offsets(offsets))
        yield partition, Event(kind, shard.clock.wall_us(), first, count, offsets=others)


def _home(shard: Shard, letter: DeadLetter) -> tuple[Topic | None, bool]:
    """The topic in which the original lies, if it does, and whether it is (still) dead to its group."""
    topic = shard.catalog.by_name.get(letter.origin.topic)
    if topic is None or topic.deleting or letter.origin.partition >= len(topic.partitions):
        return None, True
    partition = topic.partitions[letter.origin.partition]
    progress = None if partition.state is None else partition.state.groups.get(letter.group)
    if progress is None or not is_kept(partition.messages, letter.origin.offset):
        return None, True
    active = shard.dispatcher.in_use.groups(topic).get(letter.group)
    if active is not None and active.group.claims[letter.origin.partition].paused:
        raise GroupInUse(f"the group {letter.group!r} of {topic.name} is being moved: redrive again when it is done")
    return topic, letter.origin.offset in progress.dead


def _copies(letters: list[DeadLetter]) -> Batch:
    return Batch(
        [letter.value for letter in letters],
        keys=[letter.key for letter in letters],
        headers=[_copied_headers(letter) for letter in letters],
        priorities=bytes(letter.priority for letter in letters),
    )


def _sent_away(letter: DeadLetter) -> Message:
    return Message(
        letter.value, letter.key, _copied_headers(letter), letter.priority, dedupe_id=f"redriven from {letter.id}"
    )


def _copied_headers(letter: DeadLetter) -> dict[str, str]:
    return {**(letter.headers or {}), LINEAGE + "origin": str(letter.origin)}
