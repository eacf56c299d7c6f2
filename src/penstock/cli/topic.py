"""`penstock topic`: make, list, show, change and delete topics."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.lazy import new_app
from penstock.cli.output import Format, FormatOption, counted, new_table, show
from penstock.cli.parameters import TopicArgument, YesOption, confirm
from penstock.cli.target import Target, targeted
from penstock.cli.values import parse_topic_options
from penstock.model.errors import TopicNotFound
from penstock.model.units import format_duration, format_size

if TYPE_CHECKING:
    from penstock import TopicInfo
    from penstock.api.operations import BrokerOperations

app = new_app("Make, list, show, change and delete topics.")

SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any other option; may be repeated.")
]


@app.command()
@targeted
def create(
    target: Target,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name.", show_default=False)],
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", metavar="NUMBER", help="How many ordered logs it has; stays so.")
    ] = None,
    retention_age: Annotated[
        str | None,
        typer.Option("--retention-age", "--retention", metavar="DURATION", help="What is older goes; none: never."),
    ] = None,
    retention_bytes: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Beyond this size the oldest goes, such as 10GB.")
    ] = None,
    visibility_timeout: Annotated[
        str | None, typer.Option(metavar="DURATION", help="How long a consumer holds what it receives.")
    ] = None,
    max_deliveries: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="After so many failures a message is a dead letter.")
    ] = None,
    lanes: Annotated[
        str | None, typer.Option(metavar="RULE", help="Which lane goes first: strict or weighted.")
    ] = None,
    order: Annotated[
        str | None, typer.Option(metavar="RULE", help="lane, or key: one message of a key at a time; stays so.")
    ] = None,
    spread: Annotated[
        int | None,
        typer.Option(metavar="NUMBER", help="Over how many shards the partitions are dealt; stays so."),
    ] = None,
    options: SetOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Make a topic with options of its own.

    All options are in docs/reference/configuration.md; what is not given is as the broker's `topic_defaults` say.

    For example:

        penstock topic create orders --partitions 4 --retention 7d
        penstock topic create clicks --partitions 8 --spread 4
        penstock topic create jobs --order key --max-deliveries 5
        penstock topic create mail --lanes weighted --set lane_weights=high=5,low=1 --set max_backlog=100000
    """
    flags = {
        "partitions": partitions,
        "retention_age": retention_age,
        "retention_bytes": retention_bytes,
        "visibility_timeout": visibility_timeout,
        "max_deliveries": max_deliveries,
        "lanes": lanes,
        "order": order,
        "spread": spread,
    }
    given = [*(options or ()), *(f"{flag}={value}" for flag, value in flags.items() if value is not None)]
    parsed = parse_topic_options(given)
    with target.open(new=True) as broker:
        _show_topic(broker.create_topic(name, **parsed), output)


@app.command("list")
@targeted
def list_topics(target: Target, output: FormatOption = Format.TABLE) -> None:
    """List all topics with what they hold.

    For example:

        penstock topic list
        penstock topic list -o json | jq -r '.[].name'
    """
    with target.open() as broker:
        topics = broker.topics()
    held = {topic.name: totals(topic) for topic in topics}
    columns = ("topic", ">partitions", ">messages", ">segments", ">size")
    rows = [
        [name, total["partitions"], total["messages"], total["segments"], format_size(total["bytes"])]
        for name, total in held.items()
    ]
    answer = [{"name": name, **total} for name, total in held.items()]
    show(answer, output, new_table(*columns, rows=rows) if rows else "there are no topics")


@app.command("show")
@targeted
def show_topic(target: Target, topic: TopicArgument, output: FormatOption = Format.TABLE) -> None:
    """Show a topic: its options, and the offsets that each partition holds.

    For example:

        penstock topic show orders
        penstock topic show orders -o yaml
    """
    with target.open() as broker:
        _show_topic(find_topic(broker, topic), output)


@app.command("set")
@targeted
def set_options(
    target: Target,
    topic: TopicArgument,
    options: Annotated[list[str], typer.Argument(metavar="NAME=VALUE", help="What to change.", show_default=False)],
    output: FormatOption = Format.TABLE,
) -> None:
    """Change options of a topic; consumers follow at once.

    `none` turns an option off. `partitions`, `order` and `spread` stay as they are.

    For example:

        penstock topic set orders retention_age=30d max_deliveries=5
        penstock topic set orders retention_bytes=none
    """
    parsed = parse_topic_options(options)
    with target.open() as broker:
        _show_topic(broker.configure_topic(topic, **parsed), output)


@app.command()
@targeted
def delete(target: Target, topic: TopicArgument, yes: YesOption = False, output: FormatOption = Format.TABLE) -> None:
    """Delete a topic with all its messages.

    For example:

        penstock topic delete orders
        penstock topic delete orders --yes
    """
    with target.open() as broker:
        held = totals(find_topic(broker, topic))["messages"]
        confirm(f"Delete {topic} with {counted(held, 'message')}?", yes)
        broker.delete_topic(topic)
    show({"deleted": topic, "messages": held}, output, f"{topic} is deleted, with {counted(held, 'message')}")


def find_topic(broker: BrokerOperations, name: str) -> TopicInfo:
    """The topic of this name."""
    for topic in broker.topics():
        if topic.name == name:
            return topic
    raise TopicNotFound(f"there is no topic {name!r}")


def totals(topic: TopicInfo) -> dict[str, int]:
    """What all partitions of a topic hold."""
    parts = topic.partitions
    return {
        "partitions": len(parts),
        "messages": sum(part.end_offset - part.first_offset for part in parts),
        "segments": sum(part.segments for part in parts),
        "bytes": sum(part.segment_bytes + part.journal_bytes for part in parts),
    }


def _show_topic(topic: TopicInfo, output: Format) -> None:
    partitions = new_table(
        ">partition",
        ">first",
        ">end",
        ">segments",
        ">size",
        rows=[
            [
                part.number,
                part.first_offset,
                part.end_offset,
                part.segments,
                format_size(part.segment_bytes + part.journal_bytes),
            ]
            for part in topic.partitions
        ],
    )
    options = new_table(
        "option",
        "value",
        rows=[(field.name, _option(getattr(topic.config, field.name))) for field in fields(topic.config)],
    )
    show(topic, output, f"topic {topic.name}\n", partitions, "", options)


def _option(value: object) -> str:
    """The value of an option as it is written on the command line."""
    if isinstance(value, tuple):
        return ",".join(f"{lane}={weight}" for lane, weight in value) or "none"
    if isinstance(value, float):
        return format_duration(value)
    return str(value).lower() if isinstance(value, bool | None) else str(value)
