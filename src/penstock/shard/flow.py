"""What a topic refuses to take: a backlog that only grows, and delays beyond its limit."""

from __future__ import annotations

import math

from penstock.log.partition_log import first_offset
from penstock.log.topics import Topic
from penstock.model.config import TopicConfig
from penstock.model.errors import InvalidArgument, LimitExceeded, Overloaded
from penstock.model.group_settings import GroupSettings
from penstock.model.units import format_duration

_LIVE, _CHECKPOINT, _REPLAY = range(3)


def check_flow(topic: Topic, count: int, latest_due_us: int, now_us: int) -> None:
    """Raise if a publish must be refused."""
    config = topic.config
    check_delay(topic.name, config, latest_due_us, now_us)
    if config.max_backlog is None:
        return
    limit = topic.share(config.max_backlog)
    told = f"{limit} (max_backlog" + (f", shared by {config.spread} shards)" if config.spread > 1 else ")")
    if count > limit:
        raise LimitExceeded(
            f"{topic.name} never takes {count} messages at once: its limit is {told}, "
            "also with no backlog; publish them in smaller batches"
        )
    behind, group = slowest(topic)
    if behind + count > limit:
        raise Overloaded(
            f"{topic.name} has a backlog of {behind} messages{f' in the group {group!r}' if group else ''}; "
            f"the limit is {told}: publish again when "
            f"{'it has' if group else 'its consumers have'} caught up"
        )


def check_delay(topic_name: str, config: TopicConfig, latest_due_us: int, now_us: int) -> None:
    """Raise if a message would have to wait for longer than its topic allows."""
    if latest_due_us - now_us > config.max_delay * 1_000_000:
        delay_s = (latest_due_us - now_us) / 1_000_000
        shown_s = math.ceil(delay_s) if delay_s >= 60 else delay_s
        raise InvalidArgument(
            f"a delay of {format_duration(shown_s)} is too long for {topic_name}: "
            f"the limit is {format_duration(config.max_delay)} (max_delay)"
        )


def slowest(topic: Topic) -> tuple[int, str | None]:
    """How many messages the slowest group that counts has not finished with, and its name.

    Replays do not follow what is published, and the readers of checkpoint groups keep their own position: they count
    only with `backlog_groups="all"`, or (checkpoints) where nobody else consumes. With no group, all messages count.
    """
    behind: dict[str, int] = {}
    rank: dict[str, int] = {}
    for partition in topic.partitions:
        if partition.state is not None:
            for name, progress in partition.state.groups.items():
                behind[name] = behind.get(name, 0) + progress.backlog(partition.messages.next_offset)
                rank[name] = _rank(progress.settings)
    if topic.config.backlog_groups == "live":
        best = min(rank.values(), default=_REPLAY)
        behind = {name: count for name, count in behind.items() if rank[name] == best < _REPLAY}
    if not behind:
        logs = [partition.messages for partition in topic.partitions]
        return sum(log.next_offset - first_offset(log) for log in logs), None
    name = max(behind, key=lambda name: behind[name])
    return behind[name], name


def _rank(settings: GroupSettings) -> int:
    if settings.until is not None:
        return _REPLAY
    return _CHECKPOINT if settings.checkpoint else _LIVE
