"""The operations that people and tools use to look after a broker, asked of a server; see `broker.administration`.

Functions that choose messages run here: what they chose is named to the server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.client.replaying import Replaying
from penstock.model.info import BrokerStatus, GroupInfo
from penstock.model.letters import ByName, DeadLetter, LetterChoice, RedriveReport
from penstock.model.message import Data, MessageId, StoredMessage
from penstock.model.names import Priority
from penstock.model.options import check_limit, check_rate
from penstock.model.pace import Pace, paced
from penstock.model.pipelines import PipelineReport
from penstock.model.schedules import DelayedMessage, Schedule
from penstock.model.traces import Trace
from penstock.model.units import Duration, Time
from penstock.protocol.session import Page, Read

Result = TypeVar("Result")
_LETTERS_AT_ONCE = 1000
_REDRIVEN_AT_ONCE = 5000


class AsyncClientAdministration:
    """The same operations as `penstock.Broker` has."""

    if TYPE_CHECKING:

        async def call(self, operation: str, result: type[Result] | None, /, **arguments: Any) -> Result: ...
        def pages(self, request: Read, partition: int | None) -> AsyncIterator[Page]: ...
        async def partitions(self, topic: str) -> range: ...

    async def status(self) -> BrokerStatus:
        """The broker at this instant."""
        return await self.call("status", BrokerStatus)

    async def trim(self, topic: str, before: Mapping[int, int], *, events: Mapping[int, int] | None = None) -> int:
        """Remove the segments that lie wholly before these offsets (by partition), for good; how many went."""
        plain = [dict(given) if isinstance(given, Mapping) else given for given in (before, events)]
        return await self.call("trim", int, topic=topic, before=plain[0], events=plain[1])

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

    async def checkpoint_group(self, topic: str, group: str, positions: Mapping[int, int]) -> None:
        """Note how far a reader is that keeps its own position, so that its lag is seen."""
        plain = dict(positions) if isinstance(positions, Mapping) else positions
        await self.call("checkpoint_group", None, topic=topic, group=group, positions=plain)

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
        check_limit(limit)
        found: list[DeadLetter] = []
        async for letters in self.letter_pages(topic, limit if filter is None else None):
            found += letters if filter is None else [letter for letter in letters if filter(letter)]
            if limit is not None and len(found) >= limit:
                break
        return found[:limit]

    async def letter_pages(self, topic: str, limit: int | None) -> AsyncIterator[list[DeadLetter]]:
        """The dead letters of a topic, some at a time."""
        after: MessageId | None = None
        while True:
            at_once = _LETTERS_AT_ONCE if limit is None else min(limit, _LETTERS_AT_ONCE)
            letters = await self.call("dead_letters", list[DeadLetter], topic=topic, after=after, limit=at_once)
            yield letters
            limit = None if limit is None else limit - len(letters)
            if not letters or limit == 0:
                return
            after = letters[-1].id

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
        progress: Callable[[int], object] | None = None,
    ) -> RedriveReport:
        """Send dead letters back, step by step: it may take as long as the rate asks for, and can be cancelled."""
        check_rate(rate)
        if dry_run:
            return await self.count_redrive(topic, await self._chosen(topic, filter), to)
        report = RedriveReport()
        async for step in self.redrive_steps(topic, await self._ids(topic, filter), to, rate):
            report.add(step)
            if progress is not None:
                progress(step.selected)
        return report

    async def count_redrive(self, topic: str, ids: list[str] | None, to: str | None) -> RedriveReport:
        """What a redrive of all dead letters, or of those that are named, would do."""
        return await self.call("redrive", RedriveReport, topic=topic, ids=ids, to=to, dry_run=True)

    async def redrive_steps(
        self, topic: str, ids: list[str], to: str | None, rate: float | None
    ) -> AsyncIterator[RedriveReport]:
        """Send back the dead letters that are named, so many at a time; what each step did."""
        pace = Pace(rate)
        at_once = pace.at_once(_REDRIVEN_AT_ONCE)
        # One step at least: the server says what is wrong with `to`.
        steps = [ids[start : start + at_once] for start in range(0, max(1, len(ids)), at_once)]
        for sleep_s, some in paced(steps, pace, time.monotonic):
            await asyncio.sleep(sleep_s)
            step = await self.call("redrive", RedriveReport, topic=topic, ids=some, to=to)
            step.skipped += len(some) - step.selected  # they were gone before the server looked
            step.selected = len(some)
            yield step

    async def purge_dead_letters(self, topic: str, *, filter: LetterChoice | None = None) -> int:
        """Let dead letters go for good."""
        return await self.purge_chosen(topic, await self._chosen(topic, filter))

    async def purge_chosen(self, topic: str, ids: list[str] | None) -> int:
        """Let dead letters go: all of them, or those that are named."""
        return await self.call("purge_dead_letters", int, topic=topic, ids=ids)

    async def _chosen(self, topic: str, filter: LetterChoice | None) -> list[str] | None:
        return None if filter is None else await self._ids(topic, filter)

    async def _ids(self, topic: str, filter: LetterChoice | None) -> list[str]:
        if isinstance(filter, ByName):
            return sorted(map(str, filter.ids))
        pages = self.letter_pages(topic, None)
        return [str(letter.id) async for letters in pages for letter in letters if filter is None or filter(letter)]

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
        replaying = Replaying(topic, to, from_time, to_time, from_offset, to_offset, partition, filter, rate)
        async for page in self.replay_pages(replaying):
            for message in replaying.chosen(page):
                ahead_s = replaying.ahead_s()
                if ahead_s:
                    await asyncio.sleep(ahead_s)
                replaying.take(message)
        return await self.end_replay(replaying)

    async def replay_pages(self, replaying: Replaying) -> AsyncIterator[Page]:
        """What the filter and the function of a replay look at."""
        if not replaying.reads:
            return
        if replaying.partition is not None:
            replaying.check_partition(await self.partitions(replaying.request.topic))
        async for page in self.pages(replaying.request, replaying.partition):
            yield page

    async def end_replay(self, replaying: Replaying) -> int:
        """Make the group, if there is to be one; how many messages were replayed."""
        if replaying.to_group is None:
            return replaying.count
        return await self.call("replay", int, **replaying.to_group, only=replaying.only)

    async def trace(self, identity: MessageId | str) -> Trace:
        """The life of a message."""
        return await self.call("trace", Trace, identity=identity)

    # Pipelines, which a server knows of and a broker does not.

    async def report_pipeline(self, report: PipelineReport) -> None:
        """Tell the server what a pipeline is doing; it keeps the newest report, for a day."""
        await self.call("report_pipeline", None, report=report)

    async def pipelines(self) -> list[PipelineReport]:
        """What every pipeline has reported last, by name; `silent` are those that ought to have reported again."""
        return await self.call("pipelines", list[PipelineReport])


_MOMENT: Any = datetime | None
