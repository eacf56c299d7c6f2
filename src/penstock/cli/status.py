"""`penstock status`: a broker on one screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli.errors import REFUSED, CommandError
from penstock.cli.group import group_table
from penstock.cli.output import Format, FormatOption, new_table, plain, show, show_duration
from penstock.cli.target import Target, targeted
from penstock.cli.topic import totals
from penstock.model.units import format_size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock import BrokerStatus, GroupInfo, TopicInfo

_SHOWN = 12


@targeted
def status(target: Target, output: FormatOption = Format.TABLE) -> None:
    """Show the broker, its topics and its groups on one screen.

    The topics with the largest backlog and the groups with the largest lag come first; `-o json` has them all.

    For example:

        penstock status
        penstock status --dir ./data
        penstock status -o json | jq '.groups[] | select(.lag > 1000)'
    """
    with target.open() as broker:
        found, topics, groups = broker.status(), broker.topics(), broker.groups()
    backlogs: dict[str, int] = {}
    for group in groups:
        backlogs[group.topic] = max(backlogs.get(group.topic, 0), group.lag)
    topics.sort(key=lambda topic: (-backlogs.get(topic.name, 0), topic.name))
    groups.sort(key=lambda group: (-group.lag, group.topic, group.name))
    answer = {
        "broker": plain(found),
        "topics": [{"name": topic.name, **totals(topic), "backlog": backlogs.get(topic.name, 0)} for topic in topics],
        "groups": groups,
    }
    show(answer, output, _heading(found), "", *_topics(topics, backlogs), "", *_groups(groups))
    if found.frozen is not None:
        raise CommandError(f"the broker cannot write: {found.frozen}", "look at its disk, then start it again", REFUSED)


def _heading(found: BrokerStatus) -> RenderableType:
    """Who the broker is, and how much it holds."""
    rows: list[tuple[str, object]] = [
        ("broker", f"{found.broker_id[:12]}, version {found.version}, opened {found.epoch:,} times"),
        ("data", found.directory),
        ("up for", show_duration(found.uptime_s)),
        ("sync", found.sync),
        ("journal", f"{format_size(found.journal_bytes)} in {found.journal_files:,} files"),
        ("segments", f"{format_size(found.segment_bytes)} in {found.segments:,} files"),
        ("holds", f"{found.topics:,} topics, {found.partitions:,} partitions, {found.groups:,} groups"),
    ]
    if found.recovery.torn_bytes:
        rows.append(("recovery", f"cut off {format_size(found.recovery.torn_bytes)} that were never acknowledged"))
    if found.frozen is not None:
        rows.append(("FROZEN", found.frozen))
    return new_table("", "", rows=rows, heading=False)


def _topics(topics: list[TopicInfo], backlogs: dict[str, int]) -> list[RenderableType]:
    if not topics:
        return ["there are no topics"]
    rows = []
    for topic in topics[:_SHOWN]:
        held = totals(topic)
        rows.append(
            [topic.name, held["partitions"], held["messages"], format_size(held["bytes"]), backlogs.get(topic.name)]
        )
    table = new_table("topic", ">partitions", ">messages", ">size", ">backlog", rows=rows)
    return [table, *_rest(len(topics), "topics")]


def _groups(groups: list[GroupInfo]) -> list[RenderableType]:
    if not groups:
        return ["there are no groups"]
    return [group_table(groups[:_SHOWN]), *_rest(len(groups), "groups")]


def _rest(count: int, what: str) -> list[RenderableType]:
    return [f"and {count - _SHOWN:,} {what} more"] if count > _SHOWN else []
