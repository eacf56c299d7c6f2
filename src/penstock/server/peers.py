"""What concerns all topics, asked of all processes: each answers for its shards, and the answers become one.

An answer is put together in one place for each operation. Every process is asked for just the shards that the map says
it has, and refuses if it has others: a shard that is on its way would be left out by both, and nobody would notice that
a part of a list is missing, or that a part of a write was not done. Where a process refuses, or does not answer, for it
is being replaced, all are asked again for a moment; then the whole fails. Where one ended in the middle, nobody knows
whether it did its part: all are asked again only if that may be done twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import msgspec

from penstock.api.operation import ALL
from penstock.api.operations import OPERATIONS
from penstock.client.connection import Connection
from penstock.client.link import Link
from penstock.cluster.gathering import merge_statuses
from penstock.cluster.shards import Shards
from penstock.model.errors import (
    BrokerClosed,
    ConnectionLost,
    NotOwner,
    PenstockError,
    ScheduleNotFound,
    StageNotFound,
    TopicSpread,
)
from penstock.model.info import BrokerStatus, GroupInfo, TopicInfo
from penstock.model.merging import by, merge_groups, merge_topics
from penstock.model.message import MessageIds
from penstock.model.pipelines import PipelineReport
from penstock.model.placement import Spread
from penstock.model.schedules import Schedule
from penstock.protocol.frames import Command
from penstock.protocol.publishing import decode_published
from penstock.protocol.session import Call, encode
from penstock.protocol.slices import join, split
from penstock.server.membership import Membership

_PATIENCE_S = 3600.0
_REACH_S = 10.0
_AGAIN_S, _AGAIN_FOR_S = 0.05, 6.0  # while a process is replaced, or its shards are on their way

Answers = Sequence[Any]
Here = Callable[[Sequence[int]], Awaitable[Any]]
"""How this process answers for shards, by their numbers."""
SHARDS = "shards"
"""The argument by which one process tells another which shards it asks for."""
FLOOR = "floor"
"""The argument by which the process of a topic's home tells where a topic of its name begins at least."""
_LOCAL = frozenset({"create_token", "tokens", "revoke_token", "report_pipeline"})
_LOCAL_ABOUT = frozenset({"cluster", "move_shard", "drain_process", "balance_shards"})


def _topics(answers: Answers) -> list[TopicInfo]:
    """By name; each process has told of the slices that it has."""
    found = by(chain.from_iterable(answers), lambda topic: topic.name, merge_topics)
    return sorted(found, key=lambda topic: topic.name)


def _groups(answers: Answers) -> list[GroupInfo]:
    found = by(chain.from_iterable(answers), lambda group: (group.topic, group.name), merge_groups)
    return sorted(found, key=lambda group: (group.topic, group.name))


def _schedules(answers: Answers) -> list[Schedule]:
    return sorted(chain.from_iterable(answers), key=lambda schedule: schedule.name)


def _pipelines(answers: Answers) -> list[PipelineReport]:
    """The newest report of each."""
    found: dict[str, PipelineReport] = {}
    for report in sorted(chain.from_iterable(answers), key=lambda report: report.time_us):
        found[report.name] = report
    return [found[name] for name in sorted(found)]


def _least(answers: Answers) -> int | None:
    """What all of them know: what one does not know has to be done again."""
    return None if None in answers else min(answers)


def _none(_: Answers) -> None:
    return None


_TOGETHER: dict[str, tuple[Any, Callable[[Answers], Any]]] = {
    "topics": (list[TopicInfo], _topics),
    "groups": (list[GroupInfo], _groups),
    "status": (BrokerStatus, merge_statuses),
    "schedules": (list[Schedule], _schedules),
    "pause_schedule": (Schedule, lambda answers: answers[0]),
    "resume_schedule": (Schedule, lambda answers: answers[0]),
    "remove_schedule": (None, _none),
    "settle": (None, _none),
    "retain": (int, sum),
    "seal_stage": (int, sum),
    "publish_staged": (int, sum),
    "staged_sequence": (int | None, _least),
    "drop_staged": (None, _none),
    "pipelines": (list[PipelineReport], _pipelines),
}
"""The result of each operation on all topics, and how several become one."""
_ON_ONE = frozenset({"pause_schedule", "resume_schedule", "remove_schedule"})
"""Operations that one process can do, and others have nothing for."""
_SAFE_TWICE = {name for name in _TOGETHER if OPERATIONS[name].repeatable} | {
    "pause_schedule",
    "resume_schedule",
    "settle",
}
"""Operations that are done again if it is not known whether all have done their part.

Two are not: a schedule that was removed would be unknown the second time, and `retain` would count only the rest.
"""


class Interrupted(BrokerClosed):
    """A process ended in the middle: it is not known what was done."""


def do_with(shards: Shards, numbers: Sequence[int], work: Callable[[], Any]) -> Any:
    """The result of work on all shards of this process, if they are these from its beginning to its end."""
    held = dict(shards.items())
    if list(held) != list(numbers):
        raise _on_its_way()
    try:
        result = work()
    except NotOwner as error:
        raise _on_its_way() from error
    if dict(shards.items()) != held:
        raise _on_its_way()
    return result


def _on_its_way() -> BrokerClosed:
    return BrokerClosed("a shard is on its way to another process: try again")


class Peers:
    """Asks the other processes of a server."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._links: dict[int, Link] = {}
        membership.on_changed.append(self._forget_those_gone)

    def gathers(self, operation: str, arguments: Mapping[str, Any]) -> bool:
        """Whether all processes have to be asked."""
        if operation in _LOCAL or operation in _LOCAL_ABOUT:
            return False
        return OPERATIONS[operation].route == ALL or (operation == "groups" and arguments.get("topic") is None)

    async def gather(self, operation: str, arguments: Mapping[str, Any], here: Here) -> Any:
        """The answer of all processes; `here` is how this one answers."""
        attempt = partial(self._gather, operation, arguments, here)
        return await _until_all_answer(attempt, () if operation in _SAFE_TWICE else Interrupted)

    async def _gather(self, operation: str, arguments: Mapping[str, Any], here: Here) -> Any:
        own_number, held = self._membership.number, self.held()
        own = {**arguments, "staged": 0} if operation == "seal_stage" else arguments  # the sum is checked below
        result = _TOGETHER[operation][0]
        asked: list[Awaitable[Any]] = [here(held[own_number])] if own_number in held else []
        asked += [
            self.ask(process, operation, {**own, SHARDS: numbers}, result)
            for process, numbers in sorted(held.items())
            if process != own_number
        ]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        failed = [answer for answer in answers if isinstance(answer, BaseException)]
        if operation in _ON_ONE and len(failed) < len(answers):
            failed = [error for error in failed if not isinstance(error, ScheduleNotFound)]
        if failed:
            raise _gravest(failed)
        found = _TOGETHER[operation][1]([answer for answer in answers if not isinstance(answer, BaseException)])
        if operation == "seal_stage" and found < arguments.get("staged", 0):
            told = f"the stage was sealed with {found} messages, without the rest"
            raise StageNotFound(f"{told}: stage it again under another name")
        return found

    def held(self) -> dict[int, list[int]]:
        """The shards of each process; raises BrokerClosed while one is in none."""
        found: dict[int, list[int]] = {}
        for shard, place in enumerate(self._membership.map.shards):
            found.setdefault(place.process, []).append(shard)
        if -1 in found:
            raise _on_its_way()
        return found

    async def ask(self, process: int, operation: str, arguments: Mapping[str, Any], result: Any) -> Any:
        """What another process answers for its shards, of this type."""
        body = encode(Call(operation, dict(arguments)))
        link = await self._link(process)
        try:
            reply = await link.ask(Command.CALL, body, timeout_s=_PATIENCE_S)
        except ConnectionLost as error:
            told = f"process {process} ended in the middle: it is not known whether this was done"
            raise Interrupted(told) from error
        return msgspec.msgpack.decode(reply, type=result)

    async def remove_elsewhere(self, schedule: str, made_in: int) -> None:
        """Remove schedules of this name that other processes have: one of its name was made in this process."""
        await _until_all_answer(partial(self._remove_elsewhere, schedule, made_in), ())

    async def _remove_elsewhere(self, schedule: str, made_in: int) -> None:
        for process in self.held().keys() - {self._membership.number, made_in}:
            with contextlib.suppress(ScheduleNotFound):
                await self.ask(process, "remove_schedule", {"name": schedule}, None)

    async def publish(self, topic: str, body: bytes) -> MessageIds:
        """Publish to a topic of other processes; its messages have dedupe ids, so that it may be tried again."""
        try:
            reply = await _until_all_answer(partial(self._publish, topic, body), ())
        except TopicSpread as error:
            parts = split(Command.PUBLISH, body, topic, Spread(error.slices, error.partitions))
            asking = (_until_all_answer(partial(self._publish, part.topic, part.body), ()) for part in parts)
            replies = await asyncio.gather(*asking)
            reply = join(Command.PUBLISH, [(part.rows, each) for part, each in zip(parts, replies, strict=True)])
        return decode_published(reply).ids(topic)

    async def _publish(self, topic: str, body: bytes) -> bytes:
        process = self._membership.owner_of(topic)
        if process < 0:
            raise _on_its_way()
        link = await self._link(process)
        try:
            return await link.ask(Command.PUBLISH, body, repeatable=True, timeout_s=_AGAIN_FOR_S)
        except ConnectionLost as error:
            raise Interrupted(f"process {process} ended in the middle: it is asked again") from error

    async def _link(self, process: int) -> Link:
        link = self._links.get(process)
        if link is None or link.closed:
            link = Link(f"process {process}", None, _REACH_S, dial=partial(self._dial, process))
            try:
                await link.open()
            except PenstockError as error:
                link.drop()
                raise BrokerClosed(f"process {process} cannot be reached: try again") from error
            link.backoff_max_s = _AGAIN_S
            meanwhile = self._links.get(process)
            if meanwhile is not None and not meanwhile.closed:  # somebody else was quicker
                link.drop()
                link = meanwhile
            self._links[process] = link
        if not link.connected:  # it connects again by itself
            raise BrokerClosed(f"process {process} cannot be reached: try again")
        return link

    async def _dial(self, process: int, make: Callable[[], Connection]) -> Connection:
        return await self._membership.place_of(process).connect("native", make)

    def _forget_those_gone(self) -> None:
        """Connect no more to members that are gone for good."""
        for process in self._links.keys() - self._membership.map.addresses.keys():
            self._links.pop(process).drop(ConnectionLost(f"process {process} is gone"))

    def close(self) -> None:
        """Close the connections."""
        for link in self._links.values():
            link.drop()


async def _until_all_answer(attempt: Callable[[], Awaitable[Any]], final: type[BrokerClosed] | tuple[()]) -> Any:
    """What an attempt brings. One that fails is made again for a moment, unless what it raises is `final`."""
    loop = asyncio.get_running_loop()
    until_s: float | None = None
    while True:
        try:
            return await attempt()
        except BrokerClosed as error:
            until_s = until_s or loop.time() + _AGAIN_FOR_S
            if isinstance(error, final) or loop.time() > until_s:
                raise
        await asyncio.sleep(_AGAIN_S)


def _gravest(failed: Sequence[BaseException]) -> BaseException:
    """The failure that says least of what was done; where one did not answer, what the others lack is not told."""
    return min(failed, key=lambda error: (not isinstance(error, Interrupted), not isinstance(error, BrokerClosed)))
