"""What a topic refuses to take: a backlog that only grows, and delays beyond its limit."""

from __future__ import annotations

import math

from penstock.broker.topics import Topic, first_offset
from penstock.model.config import TopicConfig
from penstock.model.errors import InvalidArgument, Overloaded
from penstock.model.units import format_duration


def check_flow(topic: Topic, count: int, latest_due_us: int, now_us: int) -> None:
    """Raise if a publish must be refused; under the state lock."""
    config = topic.config
    check_delay(topic.name, config, latest_due_us, now_us)
    if config.max_backlog is not None and (behind := backlog(topic)) + count > config.max_backlog:
        raise Overloaded(
            f"{topic.name} has a backlog of {behind} messages; the limit is {config.max_backlog} (max_backlog): "
            "publish again when its consumers have caught up"
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


def backlog(topic: Topic) -> int:
    """How many messages the slowest group has not finished with; all that are kept, while there is no group."""
    groups = {name for partition in topic.partitions if partition.state for name in partition.state.groups}
    if not groups:
        logs = [partition.messages for partition in topic.partitions]
        return sum(log.next_offset - first_offset(log) for log in logs)
    return max(
        sum(
            partition.state.groups[name].backlog(partition.messages.next_offset)
            for partition in topic.partitions
            if partition.state is not None and name in partition.state.groups
        )
        for name in groups
    )
