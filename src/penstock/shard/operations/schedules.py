"""Schedules as people see them: make, list, pause, remove. What fires them is told in `penstock.shard.schedules`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.model.message import Data, Message
from penstock.model.names import Priority
from penstock.model.schedules import Schedule
from penstock.model.units import Duration
from penstock.shard.interrupts import uninterrupted

if TYPE_CHECKING:
    from penstock.shard.shard import Shard


@uninterrupted
def schedule(
    shard: Shard,
    name: str,
    cron: str,
    topic: str,
    value: Data,
    *,
    zone: str = "UTC",
    key: Data | None = None,
    headers: Mapping[str, str] | None = None,
    priority: Priority = "normal",
    expires_in: Duration | None = None,
) -> Schedule:
    """Make a schedule, or another one of the same name instead."""
    message = Message(value, key, headers, priority, expires_in=expires_in)
    with shard.lock:
        made, commit = shard.schedules.put(name, cron, zone, topic, message)
    shard.journal.wait(commit)
    return made


def schedules(shard: Shard) -> list[Schedule]:
    """Every schedule, by name."""
    with shard.lock:
        return shard.schedules.all()


@uninterrupted
def pause_schedule(shard: Shard, name: str) -> Schedule:
    """Stop a schedule from firing."""
    return _pause(shard, name, paused=True)


@uninterrupted
def resume_schedule(shard: Shard, name: str) -> Schedule:
    """Let a paused schedule fire again, from now on."""
    return _pause(shard, name, paused=False)


def _pause(shard: Shard, name: str, *, paused: bool) -> Schedule:
    with shard.lock:
        changed, commit = shard.schedules.pause(name, paused)
    shard.journal.wait(commit)
    return changed


@uninterrupted
def remove_schedule(shard: Shard, name: str) -> None:
    """End a schedule."""
    with shard.lock:
        commit = shard.schedules.remove(name)
    shard.journal.wait(commit)
