"""The operations that people and tools use to look after a broker, asked of a server; see `broker.administration`.

Functions that choose messages run here: what they chose is named to the server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.client.received import messages_of
from penstock.model.errors import InvalidArgument
from penstock.model.info import BrokerStatus, GroupInfo
from penstock.model.letters import DeadLetter, RedriveReport
from penstock.model.message import Data, MessageId, StoredMessage
from penstock.model.names import Priority
from penstock.model.schedules import DelayedMessage, Schedule
from penstock.model.traces import Trace
from penstock.model.units import Duration, Time, parse_time_us
from penstock.protocol.consuming import runs_of
from penstock.protocol.session import Page, Read

LetterChoice = Callable[[DeadLetter], bool]
Result = TypeVar("Result")
_LETTERS_AT_ONCE = 1000


class AsyncClientAdministration:
    """The same operations as `penstock.Broker` has."""

    if TYPE_CHECKING:

        async def call(self, operation: str, result: type[Result] | None, /, **arguments: Any) -> Result: ...
        def pages(self, request: Read, partition: int | None) -> AsyncIterator[Page]: ...

    async def status(self) -> BrokerStatus:
        """The broker at this instant."""
        return await self.call("status", BrokerStatus)

    # Groups.

    async def create_group(
        self,
        topic: str,
        group: str,
        *,
        start: str | Time = "earliest",
        visibility_timeout: Duration | None = None,
        max_in_flight: int | None = None,
    ) -> GroupInfo:
        """Make a group before its first consumer comes, with settings of its own."""
        return await self.call(
            "create_group",
            GroupInfo,
            topic=topic,
            group=group,
            start=start,
            visibility_timeout=visibility_timeout,
            max_in_flight=max_in_flight,
        )

    async def groups(self, topic: str | None = None) -> list[GroupInfo]:
        """Every group, or those of one topic."""
        return await self.call("groups", list[GroupInfo], topic=topic)

    async def group(self, topic: str, group: str) -> GroupInfo:
        """One group."""
        return await self.call("group", GroupInfo, topic=topic, group=group)

    async def seek_group(self, topic: str, group: str, to: int | str | Time, *, partition: int | None = None) -> None:
        """Move a group to an offset, a time, 'earliest' or 'latest'."""
        await self.call("seek_group", None, topic=topic, group=group, to=to, partition=partition)

    async def reset_group(self, topic: str, group: str) -> None:
        """Let a group begin again, with everything that is kept."""
        await self.call("reset_group", None, topic=topic, group=group)

    async def delete_group(self, topic: str, group: str) -> None:
        """Forget a group."""
        await self.call("delete_group", None, topic=topic, group=group)

    # Delays and schedules.

    async def delayed(self, topic: str, *, limit: int | None = None) -> list[DelayedMessage]:
        """What is not due yet."""
        return await self.call("delayed", list[DelayedMessage], topic=topic, limit=limit)

    async def cancel_delayed(self, identity: MessageId | str) -> bool:
        """Withdraw a delayed message: True if and only if nobody ever gets it."""
        return await self.call("cancel_delayed", bool, identity=identity)

    async def reschedule_delayed(
        self, identity: MessageId | str, *, delay: Duration | None = None, deliver_at: Time | None = None
    ) -> datetime | None:
        """Give a delayed message another time."""
        return await self.call("reschedule_delayed", _MOMENT, identity=identity, delay=delay, deliver_at=deliver_at)

    async def schedule(
        self,
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
        """Publish a message again and again."""
        return await self.call(
            "schedule",
            Schedule,
            name=name,
            cron=cron,
            topic=topic,
            value=value,
            zone=zone,
            key=key,
            headers=None if headers is None else dict(headers),
            priority=priority,
            expires_in=expires_in,
        )

    async def schedules(self) -> list[Schedule]:
        """Every schedule, by name."""
        return await self.call("schedules", list[Schedule])

    async def pause_schedule(self, name: str) -> Schedule:
        """Stop a schedule from firing."""
        return await self.call("pause_schedule", Schedule, name=name)

    async def resume_schedule(self, name: str) -> Schedule:
        """Let a paused schedule fire again."""
        return await self.call("resume_schedule", Schedule, name=name)

    async def remove_schedule(self, name: str) -> None:
        """End a schedule."""
        await self.call("remove_schedule", None, name=name)

    # Dead letters.

    async def dead_letters(
        self, topic: str, *, filter: LetterChoice | None = None, limit: int | None = None
    ) -> list[DeadLetter]:
        """The dead letters of a topic, oldest first."""
        _check_limit(limit)
        found: list[DeadLetter] = []
        after: MessageId | None = None
        while limit is None or len(found) < limit:
            page = await self.call("dead_letters", list[DeadLetter], topic=topic, after=after, limit=_LETTERS_AT_ONCE)
            found += [letter for letter in page if filter is None or filter(letter)]
            if len(page) < _LETTERS_AT_ONCE:
                break
            after = page[-1].id
        return found[:limit]

    async def dead_letter(self, identity: MessageId | str) -> DeadLetter:
        """One dead letter."""
        return await self.call("dead_letter", DeadLetter, identity=identity)

    async def redrive(
        self,
        topic: str,
        *,
        filter: LetterChoice | None = None,
        to: str | None = None,
        rate: float | None = None,
        dry_run: bool = False,
    ) -> RedriveReport:
        """Send dead letters back."""
        ids = await self._chosen(topic, filter)
        return await self.call("redrive", RedriveReport, topic=topic, ids=ids, to=to, rate=rate, dry_run=dry_run)

    async def purge_dead_letters(self, topic: str, *, filter: LetterChoice | None = None) -> int:
        """Let dead letters go for good."""
        return await self.call("purge_dead_letters", int, topic=topic, ids=await self._chosen(topic, filter))

    async def _chosen(self, topic: str, filter: LetterChoice | None) -> list[str] | None:
        if filter is None:
            return None
        return [str(letter.id) for letter in await self.dead_letters(topic, filter=filter)]

    # The past.

    async def replay(
        self,
        topic: str,
        to: str | Callable[[StoredMessage], object],
        *,
        from_time: Time | None = None,
        to_time: Time | None = None,
        from_offset: int | None = None,
        to_offset: int | None = None,
        partition: int | None = None,
        filter: Callable[[StoredMessage], bool] | None = None,
        rate: float | None = None,
    ) -> int:
        """A window of the past once more; a function is called here."""
        if isinstance(to, str) and filter is None:
            return await self._replay_to_group(
                topic, to, from_time, to_time, from_offset, to_offset, partition, rate, None
            )
        if not isinstance(to, str) and not callable(to):
            raise InvalidArgument(f"{to!r} is not the name of a group and not a function")
        request = Read(
            topic,
            0,
            _offset("from_offset", from_offset) or 0,
            _offset("to_offset", to_offset),
            None if from_time is None else parse_time_us(from_time),
            None if to_time is None else parse_time_us(to_time),
            replay=True,
        )
        chosen: dict[int, list[int]] = {}
        count = 0
        started_s = time.monotonic()
        async for page in self.pages(request, partition):
            for message in (message for rows in page.rows for message in messages_of(rows, StoredMessage)):
                if filter is not None and not filter(message):
                    continue
                count += 1
                if isinstance(to, str):
                    chosen.setdefault(message.partition, []).append(message.offset)
                    continue
                if rate is not None:
                    await asyncio.sleep(max(0.0, (count - 1) / rate - (time.monotonic() - started_s)))
                to(message)
        if not isinstance(to, str):
            return count
        only = {str(number): runs_of(offsets) for number, offsets in chosen.items()}
        return await self._replay_to_group(topic, to, from_time, to_time, from_offset, to_offset, partition, rate, only)

    async def _replay_to_group(
        self,
        topic: str,
        to: str,
        from_time: Time | None,
        to_time: Time | None,
        from_offset: int | None,
        to_offset: int | None,
        partition: int | None,
        rate: float | None,
        only: dict[str, list[int]] | None,
    ) -> int:
        return await self.call(
            "replay",
            int,
            topic=topic,
            to=to,
            from_time=from_time,
            to_time=to_time,
            from_offset=from_offset,
            to_offset=to_offset,
            partition=partition,
            rate=rate,
            only=only,
        )

    async def trace(self, identity: MessageId | str) -> Trace:
        """The life of a message."""
        return await self.call("trace", Trace, identity=identity)


_MOMENT: Any = datetime | None


def _offset(name: str, offset: int | None) -> int | None:
    if offset is not None and (not isinstance(offset, int) or isinstance(offset, bool) or offset < 0):
        raise InvalidArgument(f"{name}: {offset!r} is not an offset: they are whole numbers from 0")
    return offset


def _check_limit(limit: object) -> None:
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
        raise InvalidArgument(f"{limit!r} is not a limit: give a whole number from 0")
