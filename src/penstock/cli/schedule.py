"""`penstock schedule`: messages that are published again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.lazy import new_app
from penstock.cli.output import Format, FormatOption, contents, new_table, readable, shortened, show, show_time
from penstock.cli.parameters import ExpiresOption, HeaderOption, KeyOption, NewTopicArgument, PriorityOption
from penstock.cli.target import Target, targeted
from penstock.cli.values import parse_headers, parse_lane, parse_length, to_bytes
from penstock.model.visible import visible

if TYPE_CHECKING:
    from penstock import Schedule

app = new_app("Publish messages again and again, by the clock.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The schedule.", show_default=False)]
_VALUE_SHOWN = 40


@app.command()
@targeted
def add(
    target: Target,
    name: NameArgument,
    cron: Annotated[
        str,
        typer.Argument(metavar="CRON", help="Minute, hour, day, month, weekday: '30 8 * * 1-5'.", show_default=False),
    ],
    topic: NewTopicArgument,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="The value of each message.", show_default=False)],
    zone: Annotated[str, typer.Option(metavar="ZONE", help="The time zone of the clock.")] = "UTC",
    key: KeyOption = None,
    header: HeaderOption = None,
    priority: PriorityOption = "normal",
    expires_in: ExpiresOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Publish a message whenever a cron expression says so; a schedule of the same name is replaced.

    What was missed while the broker was closed is published once.

    For example:

        penstock schedule add menu "30 8 * * 1-5" kitchen "print the menu" --zone Europe/Paris
        penstock schedule add heartbeat "* * * * *" health ping --expires-in 30s
    """
    headers, lane, life_s = parse_headers(header), parse_lane(priority), parse_length(expires_in)
    with target.open() as broker:
        made = broker.schedule(
            name,
            cron,
            topic,
            to_bytes(value),
            zone=zone,
            key=None if key is None else to_bytes(key),
            headers=headers,
            priority=lane,
            expires_in=life_s,
        )
    _show_changed(made, output)


@app.command("list")
@targeted
def list_schedules(target: Target, output: FormatOption = Format.TABLE) -> None:
    """List all schedules, and when they fire next.

    For example:

        penstock schedule list
        penstock schedule list -o yaml
    """
    with target.open() as broker:
        found = broker.schedules()
    rows = [
        [
            schedule.name,
            schedule.cron,
            schedule.zone,
            schedule.topic,
            "paused" if schedule.next_at is None else schedule.next_at,
            shortened(visible(readable(schedule.message.value)[0]), _VALUE_SHOWN),
        ]
        for schedule in found
    ]
    table = new_table("name", "cron", "zone", "topic", "next", "value", rows=rows)
    show([_answer(schedule) for schedule in found], output, table if rows else "there are no schedules")


@app.command()
@targeted
def pause(target: Target, name: NameArgument, output: FormatOption = Format.TABLE) -> None:
    """Stop a schedule from firing.

    For example:

        penstock schedule pause menu
        penstock schedule pause menu --server queue:9000
    """
    with target.open() as broker:
        changed = broker.pause_schedule(name)
    _show_changed(changed, output)


@app.command()
@targeted
def resume(target: Target, name: NameArgument, output: FormatOption = Format.TABLE) -> None:
    """Let a paused schedule fire again, from now on.

    For example:

        penstock schedule resume menu
        penstock schedule resume menu -o json | jq -r .next_at
    """
    with target.open() as broker:
        changed = broker.resume_schedule(name)
    _show_changed(changed, output)


@app.command()
@targeted
def remove(target: Target, name: NameArgument, output: FormatOption = Format.TABLE) -> None:
    """End a schedule.

    For example:

        penstock schedule remove menu
        penstock schedule remove menu --server queue:9000
    """
    with target.open() as broker:
        broker.remove_schedule(name)
    show({"removed": name}, output, f"{name} is removed")


def _show_changed(schedule: Schedule, output: Format) -> None:
    when = "is paused" if schedule.next_at is None else f"fires next at {show_time(schedule.next_at)}"
    show(_answer(schedule), output, f"{schedule.name} {when}")


def _answer(schedule: Schedule) -> dict[str, Any]:
    message = schedule.message
    return {
        "name": schedule.name,
        "cron": schedule.cron,
        "zone": schedule.zone,
        "topic": schedule.topic,
        "paused": schedule.paused,
        "next_at": schedule.next_at,
        "message": {
            **contents(message.value, message.key),
            "headers": message.headers or {},
            "priority": message.priority,
        },
    }
