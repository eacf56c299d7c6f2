"""Operations on a topic whose slices are in several processes: each is asked about what it has, and answers become one.

The process of the topic's home does this, for it knows how the topic is spread. What changes the topic is done at home
last: whoever is interrupted finds it undone there, and does it again. What concerns one message or partition is asked
of the process that has it.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

from penstock.api.operations import OPERATIONS
from penstock.cluster.shards import Shards
from penstock.cluster.slices import held_slices, spread_of
from penstock.cluster.topics import spread_of_new
from penstock.model.errors import BrokerClosed, GroupNotFound, NotOwner, ScheduleNotFound, TopicNotFound, TopicSpread
from penstock.model.info import GroupInfo, TopicInfo
from penstock.model.layout import TopicLayout
from penstock.model.letters import DeadLetter, RedriveReport
from penstock.model.merging import by, merge_groups, merge_layouts, merge_topics
from penstock.model.message import MessageId
from penstock.model.placement import Spread, is_slice, part_name, shards_of, slice_name
from penstock.model.schedules import DelayedMessage, Schedule
from penstock.model.traces import Trace
from penstock.server.membership import Membership
from penstock.server.operations import LETTERS_BYTES
from penstock.server.peer_places import Place
from penstock.server.peers import FLOOR, SHARDS, Peers

Answers = Sequence[Any]
Arguments = Mapping[str, Any]
Here = Callable[[str, Arguments], Awaitable[Any]]
"""Do an operation in this process, with these arguments."""


class Scattered(NamedTuple):
    """A topic whose slices are in several processes."""

    topic: str
    spread: Spread
    argument: str
    """The argument that names it."""


def _nothing(_: Answers, __: Arguments) -> None:
    return None


def _of_groups(merge: Callable[[Sequence[GroupInfo]], GroupInfo]) -> Callable[[Answers, Arguments], GroupInfo]:
    return lambda answers, _: merge(answers)


def _groups(answers: Answers, _: Arguments) -> list[GroupInfo]:
    found = by(chain.from_iterable(answers), lambda group: group.name, merge_groups)
    return sorted(found, key=lambda group: group.name)


def _delayed(answers: Answers, arguments: Arguments) -> list[DelayedMessage]:
    found = heapq.merge(*answers, key=lambda message: (message.due_us, message.id))
    return list(found)[: arguments.get("limit")]


def _letters(answers: Answers, arguments: Arguments) -> list[DeadLetter]:
    """A page ends where the first of the pages ends that were full, for that one may have more behind it."""
    limit = arguments.get("limit")
    full = [
        page[-1].id
        for page in answers
        if page and (len(page) == limit or sum(len(letter.value) for letter in page) >= LETTERS_BYTES)
    ]
    end = min(full, default=None)
    found = [
        letter for letter in heapq.merge(*answers, key=lambda letter: letter.id) if end is None or letter.id <= end
    ]
    return found[:limit]


def _reports(answers: Answers, _: Arguments) -> RedriveReport:
    whole = RedriveReport(dry_run=answers[0].dry_run)
    for report in answers:
        whole.add(report)
    return whole


_TOGETHER: dict[str, tuple[Any, Callable[[Answers, Arguments], Any]]] = {
    "create_topic": (TopicInfo, lambda answers, _: merge_topics(answers)),
    "configure_topic": (TopicInfo, lambda answers, _: merge_topics(answers)),
    "delete_topic": (None, _nothing),
    "layout": (TopicLayout, lambda answers, _: merge_layouts(answers)),
    "trim": (int, lambda answers, _: sum(answers)),
    "create_group": (GroupInfo, _of_groups(merge_groups)),
    "groups": (list[GroupInfo], _groups),
    "group": (GroupInfo, _of_groups(merge_groups)),
    "seek_group": (None, _nothing),
    "reset_group": (None, _nothing),
    "pause_group": (GroupInfo, _of_groups(merge_groups)),
    "resume_group": (GroupInfo, _of_groups(merge_groups)),
    "checkpoint_group": (None, _nothing),
    "delete_group": (None, _nothing),
    "delayed": (list[DelayedMessage], _delayed),
    "dead_letters": (list[DeadLetter], _letters),
    "redrive": (RedriveReport, _reports),
    "purge_dead_letters": (int, lambda answers, _: sum(answers)),
    "replay": (int, lambda answers, _: sum(answers)),
}
"""The result of each operation, and how several become one."""
_AT_ONE: dict[str, Any] = {
    "offset_at": int,
    "cancel_delayed": bool,
    "reschedule_delayed": datetime | None,
    "dead_letter": DeadLetter,
    "trace": Trace,
    "schedule": Schedule,
}
"""The result of each operation that is about one message, one partition or one key."""
_MISSING = (TopicNotFound, GroupNotFound)
"""What some processes may say as long as another one does it: they have slices without dead letters, or a group that
somebody was interrupted in making or deleting."""


class ScatteredTopics:
    """Asks all processes that have slices of a topic."""

    def __init__(self, shards: Shards, membership: Membership, peers: Peers) -> None:
        self._shards, self._membership, self._peers = shards, membership, peers

    def find(self, operation: str, arguments: Arguments) -> Scattered | None:
        """The topic of an operation, if its home is here and other slices of it are elsewhere."""
        if operation not in _TOGETHER and operation not in _AT_ONE:
            return None
        argument = OPERATIONS[operation].route
        given = arguments.get(argument)
        if given is None or is_slice(given):
            return None
        topic = MessageId.parse(str(given)).topic if argument == "identity" else str(given)
        if operation != "create_topic":
            known = self.spread_of(topic)
            return None if known is None else Scattered(topic, known, argument)
        if self._membership.is_elsewhere(topic):
            return None
        spread = spread_of_new(self._shards, topic, arguments)
        return None if spread is None or self._is_here(topic, spread) else Scattered(topic, spread, argument)

    def spread_of(self, topic: str) -> Spread | None:
        """How a topic is spread, if its home is here and other slices of it are elsewhere."""
        if is_slice(topic) or self._membership.is_elsewhere(topic):
            return None
        spread = spread_of(self._shards, topic)
        return None if spread is None or self._is_here(topic, spread) else spread

    def is_scattered(self, topic: str) -> bool:
        """Whether the home of a topic is here, and other slices of it are elsewhere."""
        return self.spread_of(topic) is not None

    def name_here(self, topic: str) -> str:
        """The name by which a topic is asked for in this process alone: `orders#` where others have slices of it."""
        try:
            held = held_slices(self._shards, topic)
        except TopicNotFound:  # it is not spread
            return topic
        return topic if len(held) == held[0].topic(topic).config.spread else part_name(topic)

    def check_in_one(self, topic: str) -> None:
        """Raise TopicSpread where a member that is in one process cannot have all of a topic."""
        if self.is_scattered(topic):
            told = "a member by HTTP is in one: use receive, or a native client"
            raise TopicSpread(f"{topic} has slices in several processes, and {told}", topic)

    def owner_of(self, topic: str, spread: Spread, number: int) -> int:
        """The process that has a slice; -1 while it is on its way."""
        return self._membership.map.shards[self._numbers(topic, spread)[number]].process

    def is_here(self, process: int) -> bool:
        """Whether a process is this one."""
        return process == self._membership.number

    def place_of(self, process: int) -> Place | None:
        """Where a process is reached."""
        return self._membership.place_of(process)

    def processes(self, topic: str, spread: Spread) -> set[int]:
        """The processes that have slices of a topic; raises BrokerClosed while one is on its way."""
        found = {self.owner_of(topic, spread, number) for number in range(spread.slices)}
        if -1 in found:
            raise _on_its_way()
        return found

    async def do(self, scattered: Scattered, operation: str, arguments: Arguments, here: Here) -> Any:
        """The answer of all processes that have something of a topic."""
        try:
            return await self._do(scattered, operation, arguments, here)
        except NotOwner as error:  # a slice is on its way; who asked is at the right place all the same
            raise BrokerClosed(f"{error}: try again") from error

    async def _do(self, scattered: Scattered, operation: str, arguments: Arguments, here: Here) -> Any:
        if operation in _AT_ONE:
            return await self._at_one(scattered, operation, arguments, here)
        result, merge = _TOGETHER[operation]
        if operation == "create_topic":  # as it was found out here, which others cannot
            spread = scattered.spread
            floor = self._shards.of(scattered.topic).catalog.floors.get(scattered.topic, 0)
            arguments = {**arguments, "spread": spread.slices, "partitions": spread.partitions, FLOOR: floor}
        elif operation == "delete_topic":
            asked = {"topic": scattered.topic, "segments": False}
            layout: TopicLayout = await self._do(scattered._replace(argument="topic"), "layout", asked, here)
            arguments = {**arguments, FLOOR: max(log.end for log in layout.messages)}
        own, held = self._membership.number, self._peers.held()
        places = self.processes(scattered.topic, scattered.spread)
        of_part = {**arguments, scattered.argument: part_name(scattered.topic)}
        asking = (
            self._peers.ask(process, operation, {**of_part, SHARDS: held[process]}, result)
            for process in sorted(places - {own})
        )
        answers: list[Any] = await asyncio.gather(*asking, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, _MISSING):
                raise answer
        try:
            name = slice_name(scattered.topic, 0) if operation == "create_topic" else part_name(scattered.topic)
            answers.append(await here(operation, {**arguments, scattered.argument: name, SHARDS: held[own]}))
        except _MISSING as error:
            answers.append(error)
        found = [answer for answer in answers if not isinstance(answer, BaseException)]
        if not found:
            raise answers[-1]
        return merge(found, arguments)

    async def schedule(self, scattered: Scattered, arguments: Arguments, here: Here) -> Schedule:
        """Make a schedule in the slice of its key, and remove those of its name elsewhere."""
        number = self._slice_of(scattered, "schedule", arguments)
        process = self._process_of(scattered, number)
        made: Schedule = await self._at_one(scattered, "schedule", arguments, here)
        if process != self._membership.number:
            with contextlib.suppress(ScheduleNotFound):
                await here("remove_schedule", {"name": arguments["name"]})
        await self._peers.remove_elsewhere(str(arguments["name"]), process)
        return made

    async def _at_one(self, scattered: Scattered, operation: str, arguments: Arguments, here: Here) -> Any:
        """The answer of the process that has a message, a partition or a key."""
        number, argument = self._slice_of(scattered, operation, arguments), scattered.argument
        process = self._process_of(scattered, number)
        asked = arguments if argument == "identity" else {**arguments, argument: slice_name(scattered.topic, number)}
        if process == self._membership.number:
            return await here(operation, asked)
        return await self._peers.ask(process, operation, asked, _AT_ONE[operation])

    @staticmethod
    def _slice_of(scattered: Scattered, operation: str, arguments: Arguments) -> int:
        _, spread, argument = scattered
        if argument == "identity":
            return spread.of_partition(MessageId.parse(str(arguments[argument])).partition)
        if operation == "schedule":
            key = arguments.get("key")
            return 0 if key is None else spread.of_key(key.encode() if isinstance(key, str) else bytes(key))
        partition = arguments.get("partition") or 0
        return spread.of_partition(partition) if isinstance(partition, int) else 0

    def _process_of(self, scattered: Scattered, number: int) -> int:
        process = self.owner_of(scattered.topic, scattered.spread, number)
        if process < 0:
            raise _on_its_way()
        return process

    def _is_here(self, topic: str, spread: Spread) -> bool:
        return all(number in self._shards for number in self._numbers(topic, spread))

    def _numbers(self, topic: str, spread: Spread) -> Sequence[int]:
        return shards_of(topic, spread.slices, self._shards.count)


def _on_its_way() -> BrokerClosed:
    return BrokerClosed("a shard is in no process now: try again")
