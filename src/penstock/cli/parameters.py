"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.completion import complete_group, complete_topic
from penstock.cli.errors import CommandError
from penstock.cli.terminal import is_terminal
from penstock.model.visible import visible

NewTopicArgument = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC", help="The topic; made if it is new.", show_default=False, autocompletion=complete_topic
    ),
]
TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False, autocompletion=complete_topic)
]
GroupArgument = Annotated[
    str, typer.Argument(metavar="GROUP", help="The group.", show_default=False, autocompletion=complete_group)
]
IdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The message, such as orders/2/45678.", show_default=False)
]

# A message.

KeyOption = Annotated[
    str | None, typer.Option("--key", "-k", metavar="TEXT", help="Its key; keeps messages of one key in order.")
]
HeaderOption = Annotated[
    list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header; may be repeated.")
]
PriorityOption = Annotated[
    str, typer.Option(metavar="LANE", help="0 (first) to 255, or critical, high, normal, low, background.")
]
DelayOption = Annotated[str | None, typer.Option(metavar="DURATION", help="Deliver it so much later, such as 20m.")]
AtOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Deliver it at this time, such as 2026-01-31T12:00:00Z.")
]
ExpiresOption = Annotated[str | None, typer.Option(metavar="DURATION", help="Not worth delivering after so long.")]

# A window of the past.

FromOffsetOption = Annotated[
    int | None, typer.Option(metavar="OFFSET", min=0, help="From this offset on, in each partition.")
]
FromTimeOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="From this time on: 2026-01-31T12:00:00Z, '15m ago'.")
]
ToOffsetOption = Annotated[
    int | None, typer.Option(metavar="OFFSET", min=0, help="Up to this offset, without it, in each partition.")
]
PartitionOption = Annotated[int | None, typer.Option(metavar="NUMBER", min=0, help="This partition only.")]
ToTimeOption = Annotated[str | None, typer.Option(metavar="TIME", help="Up to this time, without it.")]

# Others.

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking first.")]
RateOption = Annotated[float | None, typer.Option(metavar="NUMBER", help="At most so many messages a second.")]
LimitOption = Annotated[
    int | None, typer.Option("--limit", "-n", metavar="NUMBER", min=0, help="Not more than so many.")
]


def confirm(question: str, yes: bool) -> None:
    """Go on only if somebody says yes, here or by `--yes`."""
    if yes:
        return
    if not is_terminal("stdin"):
        raise CommandError(f"nobody is there to ask: {question}", "add --yes to do it without being asked")
    if not typer.confirm(visible(question), err=True):
        raise typer.Abort
