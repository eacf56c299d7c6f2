"""`penstock delayed`: messages that are not due yet."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from penstock.cli.errors import REFUSED, CommandError
from penstock.cli.lazy import new_app
from penstock.cli.output import Format, FormatOption, new_table, show, show_duration, show_time
from penstock.cli.parameters import AtOption, DelayOption, IdArgument, LimitOption, TopicArgument
from penstock.cli.target import Target, targeted
from penstock.cli.values import parse_length, parse_moment

app = new_app("List, cancel and reschedule messages that are not due yet.")

_TOO_LATE = "it was never delayed, is due by now, or was cancelled: `penstock trace {}` tells"


@app.command("list")
@targeted
def list_delayed(
    target: Target, topic: TopicArgument, limit: LimitOption = None, output: FormatOption = Format.TABLE
) -> None:
    """List what is not due yet, the next to fall due first.

    For example:

        penstock delayed list orders
        penstock delayed list orders --limit 10 -o json
    """
    with target.open() as broker:
        found = broker.delayed(topic, limit=limit)
    now = datetime.now(UTC)
    rows = [
        [message.id, message.due_at, show_duration(max(0.0, (message.due_at - now).total_seconds()))]
        for message in found
    ]
    answer = [{"id": str(message.id), "due_at": message.due_at} for message in found]
    show(answer, output, new_table("id", "due", ">in", rows=rows) if rows else "nothing is delayed")


@app.command()
@targeted
def cancel(
    target: Target,
    identities: Annotated[
        list[str], typer.Argument(metavar="ID", help="The messages, such as orders/2/45678.", show_default=False)
    ],
    output: FormatOption = Format.TABLE,
) -> None:
    """Withdraw delayed messages: nobody ever gets them.

    For example:

        penstock delayed cancel orders/0/7
        penstock delayed cancel orders/0/7 orders/1/3
    """
    with target.open() as broker:
        answer = {identity: broker.cancel_delayed(identity) for identity in identities}
    lines = [
        f"{identity} {'is cancelled' if done else 'is not delayed (any more)'}" for identity, done in answer.items()
    ]
    show([{"id": identity, "cancelled": done} for identity, done in answer.items()], output, *lines)
    if not all(answer.values()):
        late = next(identity for identity, done in answer.items() if not done)
        raise CommandError("not everything was cancelled", _TOO_LATE.format(late), REFUSED)


@app.command()
@targeted
def reschedule(
    target: Target,
    identity: IdArgument,
    delay: DelayOption = None,
    at: AtOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Give a delayed message another time.

    For example:

        penstock delayed reschedule orders/0/7 --delay 2h
        penstock delayed reschedule orders/0/7 --at 2026-01-31T12:00:00Z
    """
    if (delay is None) == (at is None):
        raise CommandError("the new time is missing, or there are two", "give --delay or --at")
    delay_s, moment = parse_length(delay), parse_moment(at)
    with target.open() as broker:
        due_at = broker.reschedule_delayed(identity, delay=delay_s, deliver_at=moment)
    if due_at is None:
        raise CommandError(f"{identity} is not delayed (any more)", _TOO_LATE.format(identity), REFUSED)
    show({"id": identity, "due_at": due_at}, output, f"{identity} falls due at {show_time(due_at)}")
