"""Groups as JSON."""

from __future__ import annotations

import msgspec

from penstock.model.info import GroupInfo, MemberInfo
from penstock.views.listing import ListedGroup


class MemberView(msgspec.Struct):
    """One consumer of a group."""

    name: str
    mode: str
    in_flight: int
    partitions: list[int]
    """What it is assigned, in `assigned` mode."""

    @classmethod
    def of(cls, member: MemberInfo) -> MemberView:
        """As JSON."""
        return cls(member.name, member.mode, member.in_flight, list(member.partitions))


class GroupView(msgspec.Struct):
    """A group of a topic, in numbers: `published` is the sum of what became of the messages."""

    group: str
    topic: str
    kind: str
    """`consumers`; or `checkpoint`: it shows how far a reader is that keeps its own position."""
    published: int
    acked: int
    ready: int | None
    """Null in a list, as `delayed`, where nobody has used the group since the server started."""
    leased: int
    delayed: int | None
    retrying: int
    dead: int
    lapsed: int
    withdrawn: int
    skipped: int
    lost: int
    lag: int
    """Messages that are not done: ready, leased, delayed or retrying."""
    oldest_unacked_s: float | None
    positions: list[int]
    """The first offset that is not done, partition by partition."""
    members: list[MemberView]
    settings: dict[str, bool | float]
    """Those that it has beside its topic's."""


def group_view(info: GroupInfo, *, in_use: bool = True) -> GroupView:
    """A group as JSON; what is ready and what is delayed is told apart only if it is in use."""
    return GroupView(
        group=info.name,
        topic=info.topic,
        kind=info.kind,
        published=info.published,
        acked=info.acked,
        ready=info.ready if in_use else None,
        leased=info.leased,
        delayed=info.delayed if in_use else None,
        retrying=info.retrying,
        dead=info.dead,
        lapsed=info.lapsed,
        withdrawn=info.withdrawn,
        skipped=info.skipped,
        lost=info.lost,
        lag=info.lag,
        oldest_unacked_s=info.oldest_unacked_s,
        positions=list(info.positions),
        members=[MemberView.of(member) for member in info.members],
        settings=info.settings.shown(),
    )


def listed_view(listed: ListedGroup) -> GroupView:
    """A group of a list as JSON."""
    return group_view(listed.info, in_use=listed.in_use)
