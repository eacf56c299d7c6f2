"""How messages die: what a group gives up moves to the dead letters, with everything that is known of it.

A message dies for one group. Its copy in `<topic>.dlq` and the event that says so are one commit: a crash leaves it on
one side or on the other, never on both and never on none.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from penstock.delivery.group import Group
from penstock.delivery.offsets import Offsets, from_range, lowest
from penstock.delivery.outcomes import Dying
from penstock.log.topics import Topic
from penstock.model.batch import Batch
from penstock.model.errors import CorruptData
from penstock.model.events import EventKind
from penstock.model.message import MessageId
from penstock.model.names import DEAD_LETTERS
from penstock.model.units import to_datetime
from penstock.segments.window import Rows
from penstock.shard.reading.contents import Unreadable
from penstock.shard.reading.log_reader import LogReader

if TYPE_CHECKING:
    from penstock.shard.dispatch.topic_dispatcher import TopicDispatcher
    from penstock.shard.shard import Shard

AT_ONCE = 500
BYTES_AT_ONCE = 8 << 20
LINEAGE = "penstock-"  # what headers begin with that tell where a dead letter comes from
_HISTORY_MAX = 50
_log = logging.getLogger("penstock")


def bury(shard: Shard) -> None:
    """Move everything that is dying to the dead letters."""
    with shard.dispatcher.burying:
        while known := len(shard.dispatcher.dying):
            shard.journal.flush()  # what led to their death is counted and can be read; more may die meanwhile
            for _ in range(known):
                with shard.lock:
                    delivery, group, dying = shard.dispatcher.dying.popleft()
                _bury_all(shard, delivery, group, dying)


def _bury_all(shard: Shard, delivery: TopicDispatcher, group: Group, dying: Dying) -> None:
    left = dying.offsets
    while left:
        rest = left
        try:
            _make_room(shard)
            some = lowest(left, AT_ONCE)
            rest = left - some
            left = left - _bury(shard, delivery, group, dying._replace(offsets=some))
        except Exception:
            if rest:  # the others are tried again
                with shard.lock:
                    shard.dispatcher.dying.appendleft((delivery, group, dying._replace(offsets=rest)))
            raise


def _make_room(shard: Shard) -> None:
    """Have what is gathered written before more is put into the same group, if it is much."""
    with shard.lock:
        commit = shard.journal.latest_commit() if shard.journal.gathering.size_bytes >= BYTES_AT_ONCE else None
    if commit is not None:
        shard.journal.wait(commit)


def _bury(shard: Shard, delivery: TopicDispatcher, group: Group, dying: Dying) -> Offsets:
    """Bury the first of the dying, as many as one step takes; those. When it fails, all of them are given up."""
    topic, now_us = delivery.topic, shard.clock.wall_us()
    try:
        found, some = _read(shard, topic, dying)
        first = dying._replace(offsets=some)
        letters = _letters(shard, topic, group, first, found, now_us) if found else None
        with shard.lock:
            active = delivery.active_groups.get(group.name)
            if not shard.dispatcher.in_use.is_current(delivery) or active is None or active.group is not group:
                return dying.offsets  # there is nobody any more whom it could concern
            if group.is_void(dying):
                return dying.offsets  # the group was moved: they are not dying any more
            if letters is not None:
                shard.append_internal(topic.name + DEAD_LETTERS, letters, now_us)
            events = group.bury(first, now_us) if letters is not None else group.skip(first, now_us)
            shard.log_events(topic, events)
    except Exception:
        with shard.lock:
            if not group.is_void(dying):
                group.give_up(dying.partition, dying.offsets)
        raise
    return some


def _read(shard: Shard, topic: Topic, dying: Dying) -> tuple[list[Rows], Offsets]:
    """The content of the first of the dying, as much as one step takes, and which of them that are."""
    log = topic.partitions[dying.partition].messages
    unreadable: Unreadable = []
    found: list[Rows] = []
    some, room = dying.offsets, BYTES_AT_ONCE
    for rows in shard.dispatcher.contents.rows(log, dying.offsets, unreadable):
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
        reason = {LINEAGE + "unreadable": str(error)}
        found.append(Rows(list(offsets), [0] * count, Batch([b""] * count, headers=[reason] * count)))
    return sorted(found, key=lambda rows: rows.offsets[0]), some


def _letters(shard: Shard, topic: Topic, group: Group, dying: Dying, found: list[Rows], now_us: int) -> Batch:
    """The dying messages with everything that is known of them."""
    progress = group.claims[dying.partition].progress
    histories = _histories(shard, topic, group.name, dying)
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
                {**(headers or {}), **{LINEAGE + name: text for name, text in lineage.items()}}
            )
    whole.priorities = bytes(priorities)
    return whole


def _histories(shard: Shard, topic: Topic, group: str, dying: Dying) -> dict[int, list[str]]:
    """What the event log tells of the dying messages and their group."""
    event_log = topic.partitions[dying.partition].events
    found: dict[int, list[str]] = {}
    if event_log is None:
        return found
    try:
        for event in LogReader(shard, event_log).events_between(dying.offsets.min(), dying.offsets.max()):
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
