"""The operations that people and tools use to look after a broker, asked of a server in plain calls."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from penstock.client.loop import LoopThread
from penstock.client.replaying import Replaying
from penstock.model.info import BrokerStatus, GroupInfo
from penstock.model.letters import ByName, DeadLetter, LetterChoice, RedriveReport
from penstock.model.message import Data, MessageId, StoredMessage
from penstock.model.names import Priority
from penstock.model.options import check_limit, check_rate
from penstock.model.pipelines import PipelineReport
from penstock.model.schedules import DelayedMessage, Schedule
from penstock.model.traces import Trace
from penstock.model.units import Duration, Time

if TYPE_CHECKING:
    from penstock.client.client import AsyncClient


class ClientAdministration:
    """The same operations as `penstock.Broker` has."""

    _loop: LoopThread
    _client: AsyncClient

    def status(self) -> BrokerStatus:
        """The broker at this instant."""
        return self._loop.wait(self._client.status())

    def trim(self, topic: str, before: Mapping[int, int], *, events: Mapping[int, int] | None = None) -> int:
        """Remove the segments that lie wholly before these offsets (by partition), for good; how many went."""
        return self._loop.wait(self._client.trim(topic, before, events=events))

    def create_group(
        self,
        topic: str,
        group: str,
        *,
        start: str | Time = "earliest",
        visibility_timeout: Duration | None = None,
        max_in_flight: int | None = None,
    ) -> GroupInfo:
        """Make a group before its first consumer comes, with settings of its own."""
        return self._loop.wait(
            self._client.create_group(
                topic, group, start=start, visibility_timeout=visibility_timeout, max_in_flight=max_in_flight
            )
        )

    def groups(self, topic: str | None = None) -> list[GroupInfo]:
        """Every group, or those of one topic."""
        return self._loop.wait(self._client.groups(topic))

    def group(self, topic: str, group: str) -> GroupInfo:
        """One group."""
        return self._loop.wait(self._client.group(topic, group))

    def seek_group(self, topic: str, group: str, to: int | str | Time, *, partition: int | None = None) -> None:
        """Move a group to an offset, a time, 'earliest' or 'latest'."""
        return self._loop.wait(self._client.seek_group(topic, group, to, partition=partition))

    def reset_group(self, topic: str, group: str) -> None:
        """Let a group begin again, with everything that is kept."""
        return self._loop.wait(self._client.reset_group(topic, group))

    def checkpoint_group(self, topic: str, group: str, positions: Mapping[int, int]) -> None:
        """Note how far a reader is that keeps its own position, so that its lag is seen."""
        return self._loop.wait(self._client.checkpoint_group(topic, group, positions))

    def delete_group(self, topic: str, group: str) -> None:
        """Forget a group."""
        return self._loop.wait(self._client.delete_group(topic, group))

    def delayed(self, topic: str, *, limit: int | None = None) -> list[DelayedMessage]:
        """What is not due yet."""
        return self._loop.wait(self._client.delayed(topic, limit=limit))

    def cancel_delayed(self, identity: MessageId | str) -> bool:
        """Withdraw a delayed message: True if and only if nobody ever gets it."""
        return self._loop.wait(self._client.cancel_delayed(identity))

    def reschedule_delayed(
        self, identity: MessageId | str, *, delay: Duration | None = None, deliver_at: Time | None = None
    ) -> datetime | None:
        """Give a delayed message another time."""
        return self._loop.wait(self._client.reschedule_delayed(identity, delay=delay, deliver_at=deliver_at))

    def schedule(
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
        return self._loop.wait(
            self._client.schedule(
                name, cron, topic, value, zone=zone, key=key, headers=headers, priority=priority, expires_in=expires_in
            )
        )

    def schedules(self) -> list[Schedule]:
        """Every schedule, by name."""
        return self._loop.wait(self._client.schedules())

    def pause_schedule(self, name: str) -> Schedule:
        """Stop a schedule from firing."""
        return self._loop.wait(self._client.pause_schedule(name))

    def resume_schedule(self, name: str) -> Schedule:
        """Let a paused schedule fire again."""
        return self._loop.wait(self._client.resume_schedule(name))

    def remove_schedule(self, name: str) -> None:
        """End a schedule."""
        return self._loop.wait(self._client.remove_schedule(name))

    def dead_letters(
        self, topic: str, *, filter: LetterChoice | None = None, limit: int | None = None
    ) -> list[DeadLetter]:
        """The dead letters of a topic, oldest first."""
        if filter is None:
            return self._loop.wait(self._client.dead_letters(topic, limit=limit))
        check_limit(limit)
        letters = itertools.chain.from_iterable(self._loop.iterate(self._client.letter_pages(topic, None)))
        return list(itertools.islice((letter for letter in letters if filter(letter)), limit))

    def dead_letter(self, identity: MessageId | str) -> DeadLetter:
        """One dead letter."""
        return self._loop.wait(self._client.dead_letter(identity))

    def redrive(
        self,
        topic: str,
        *,
        filter: LetterChoice | None = None,
        to: str | None = None,
        rate: float | None = None,
        dry_run: bool = False,
        progress: Callable[[int], object] | None = None,
    ) -> RedriveReport:
        """Send dead letters back, step by step: it may take as long as the rate asks for, and Ctrl-C ends it."""
        check_rate(rate)
        if dry_run:
            return self._loop.wait(self._client.count_redrive(topic, self._chosen(topic, filter), to))
        report = RedriveReport()
        for step in self.redrive_steps(topic, self._ids(topic, filter), to, rate):
            report.add(step)
            if progress is not None:
                progress(step.selected)
        return report

    def redrive_steps(self, topic: str, ids: list[str], to: str | None, rate: float | None) -> Iterator[RedriveReport]:
        """Send back the dead letters that are named, so many at a time; what each step did."""
        return self._loop.iterate(self._client.redrive_steps(topic, ids, to, rate))

    def purge_dead_letters(self, topic: str, *, filter: LetterChoice | None = None) -> int:
        """Let dead letters go for good."""
        return self.purge_chosen(topic, self._chosen(topic, filter))

    def purge_chosen(self, topic: str, ids: list[str] | None) -> int:
        """Let dead letters go: all of them, or those that are named."""
        return self._loop.wait(self._client.purge_chosen(topic, ids))

    def _chosen(self, topic: str, filter: LetterChoice | None) -> list[str] | None:
        return None if filter is None else self._ids(topic, filter)

    def _ids(self, topic: str, filter: LetterChoice | None) -> list[str]:
        if isinstance(filter, ByName):
            return sorted(map(str, filter.ids))
        pages = self._loop.iterate(self._client.letter_pages(topic, None))
        return [str(letter.id) for letters in pages for letter in letters if filter is None or filter(letter)]

    def replay(
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
        """A window of the past once more; a function is called here, in this thread."""
        replaying = Replaying(topic, to, from_time, to_time, from_offset, to_offset, partition, filter, rate)
        for page in self._loop.iterate(self._client.replay_pages(replaying)):
            for message in replaying.chosen(page):
                time.sleep(replaying.ahead_s())
                replaying.take(message)
        return self._loop.wait(self._client.end_replay(replaying))

    def trace(self, identity: MessageId | str) -> Trace:
        """The life of a message."""
        return self._loop.wait(self._client.trace(identity))

    def report_pipeline(self, report: PipelineReport) -> None:
        """Tell the server what a pipeline is doing; it keeps the newest report, for a day."""
        return self._loop.wait(self._client.report_pipeline(report))

    def pipelines(self) -> list[PipelineReport]:
        """What every pipeline has reported last, by name; `silent` are those that ought to have reported again."""
        return self._loop.wait(self._client.pipelines())
