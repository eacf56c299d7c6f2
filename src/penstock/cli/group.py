"""`penstock group`: list, show, move, change and delete groups of consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.api.operation import Operation
from penstock.api.operations import OPERATIONS
from penstock.cli.completion import complete_topic
from penstock.cli.lazy import new_app
from penstock.cli.output import Format, FormatOption, new_table, show, show_duration
from penstock.cli.parameters import GroupArgument, TopicArgument
from penstock.cli.target import Target, targeted
from penstock.cli.values import parse_moment
from penstock.model.group_settings import in_words
from penstock.model.units import parse_digits

if TYPE_CHECKING:
    from rich.table import Table

    from penstock import GroupInfo

app = new_app("List, show, move and delete groups of consumers.")

_COUNTS = ("acked", "ready", "leased", "delayed", "retrying", "dead", "lapsed", "withdrawn", "skipped", "lost")

_NO_CONSUMERS = {"checkpoint": "no consumers: it shows how far a reader is that keeps its own position (a checkpoint)"}


@app.command("list")
@targeted
def list_groups(
    target: Target,
    topic: Annotated[
        str | None,
        typer.Argument(metavar="TOPIC", help="Of this topic only.", show_default=False, autocompletion=complete_topic),
    ] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List groups with their lag and what it consists of.

    For example:

        penstock group list
        penstock group list orders -o json
    """
    with target.open() as broker:
        groups = broker.groups(topic)
    show(groups, output, group_table(groups) if groups else "there are no groups")


@app.command("show")
@targeted
def show_group(target: Target, topic: TopicArgument, group: GroupArgument, output: FormatOption = Format.TABLE) -> None:
    """Show a group: its consumers, its positions, and what became of all messages.

    For example:

        penstock group show orders kitchen
        penstock group show orders kitchen -o json | jq .lag
    """
    with target.open() as broker:
        _show_group(broker.group(topic, group), output)


@app.command()
@targeted
def seek(
    target: Target,
    topic: TopicArgument,
    group: GroupArgument,
    to: Annotated[
        str,
        typer.Option(
            metavar="POSITION", help="earliest, latest, an offset, or a time such as '1h ago'.", show_default=False
        ),
    ],
    partition: Annotated[int | None, typer.Option(metavar="NUMBER", min=0, help="This partition only.")] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Move a group to another position; what its consumers hold is taken back.

    For example:

        penstock group seek orders kitchen --to earliest
        penstock group seek orders kitchen --to 45678 --partition 2
        penstock group seek orders kitchen --to 2026-01-31T12:00:00Z
    """
    position = _position(to)
    with target.open() as broker:
        broker.seek_group(topic, group, position, partition=partition)
        _show_group(broker.group(topic, group), output)


@app.command()
@targeted
def delete(target: Target, topic: TopicArgument, group: GroupArgument, output: FormatOption = Format.TABLE) -> None:
    """Forget a group and how far it was; it must have no consumers.

    For example:

        penstock group delete orders kitchen
        penstock group delete orders kitchen --server queue:9000
    """
    with target.open() as broker:
        broker.delete_group(topic, group)
    show({"deleted": {"topic": topic, "group": group}}, output, f"the group {group} of {topic} is forgotten")


def _add_verb(verb: str, operation: Operation) -> None:
    """A command for an operation that takes a group and answers with it."""

    def change(target: Target, topic: TopicArgument, group: GroupArgument, output: FormatOption = Format.TABLE) -> None:
        with target.open() as broker:
            _show_group(getattr(broker, operation.name)(topic, group), output)

    example = f"penstock group {verb} orders kitchen"
    change.__doc__ = f"{operation.summary}\n\nFor example:\n\n    {example}\n    {example} --server queue:9000\n"
    app.command(verb)(targeted(change))


for _operation in OPERATIONS.values():
    if _operation.group_verb is not None:
        _add_verb(_operation.group_verb, _operation)


def group_table(groups: list[GroupInfo]) -> Table:
    """Groups, a row for each."""
    columns = ["topic", "group", ">consumers", ">lag", ">ready", ">leased", ">delayed", ">retrying", ">dead", ">oldest"]
    rows = [
        [
            group.topic,
            group.name,
            group.kind if group.kind == "checkpoint" else len(group.members),
            group.lag,
            group.ready,
            group.leased,
            group.delayed,
            group.retrying,
            group.dead,
            None if group.oldest_unacked_s is None else show_duration(group.oldest_unacked_s),
        ]
        for group in groups
    ]
    if any(group.settings.shown() for group in groups):
        columns.append("settings")
        rows = [[*row, in_words(group.settings.shown())] for row, group in zip(rows, groups, strict=True)]
    return new_table(*columns, rows=rows)


def _show_group(group: GroupInfo, output: Format) -> None:
    age = (
        "" if group.oldest_unacked_s is None else f", the oldest published {show_duration(group.oldest_unacked_s)} ago"
    )
    counts = new_table(*(f">{name}" for name in _COUNTS), rows=[[getattr(group, name) for name in _COUNTS]])
    lost = f"{group.lost:,} of them were removed before they were acked, and are in no lag\n" if group.lost else ""
    settings = f"settings: {in_words(group.settings.shown())}\n" if group.settings.shown() else ""
    positions = new_table(">partition", ">position", rows=list(enumerate(group.positions)))
    members = new_table(
        "consumer",
        "mode",
        ">in flight",
        "partitions",
        rows=[
            [member.name, member.mode, member.in_flight, ",".join(map(str, member.partitions)) or "all"]
            for member in group.members
        ],
    )
    show(
        group,
        output,
        f"group {group.name} of {group.topic}: lag {group.lag:,} of {group.published:,}{age}\n{lost}{settings}",
        counts,
        "",
        positions,
        "",
        _NO_CONSUMERS.get(group.kind, "no consumers") if not group.members else members,
    )


def _position(text: str) -> int | float | str:
    if text in ("earliest", "latest"):
        return text
    number = parse_digits(text)
    return parse_moment(text) if number is None else number
