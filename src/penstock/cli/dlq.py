"""`penstock dlq`: dead letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import asdict

from penstock.cli.completion import complete_group, complete_topic
from penstock.cli.errors import CommandError, warn
from penstock.cli.lazy import new_app
from penstock.cli.output import Format, FormatOption, contents, counted, new_table, readable, shortened, show
from penstock.cli.parameters import LimitOption, RateOption, TopicArgument, YesOption, confirm
from penstock.cli.progress import Counter
from penstock.cli.target import Target, targeted
from penstock.cli.terminal import is_terminal
from penstock.model.letters import ByName
from penstock.model.message import MessageId
from penstock.model.names import DEAD_LETTERS
from penstock.model.visible import visible

if TYPE_CHECKING:
    from penstock import DeadLetter
    from penstock.api.operations import BrokerOperations

    Choice = Callable[[DeadLetter], bool] | None

app = new_app("List, show, redrive and purge dead letters.")

CauseOption = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Only those whose cause has this in it, in any case.")
]
GroupOption = Annotated[
    str | None,
    typer.Option(metavar="GROUP", help="Only those that this group gave up.", autocompletion=complete_group),
]
_SHOWN = 40


@app.command("list")
@targeted
def list_letters(
    target: Target,
    topic: TopicArgument,
    cause: CauseOption = None,
    group: GroupOption = None,
    limit: LimitOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List the dead letters of a topic, oldest first.

    For example:

        penstock dlq list orders
        penstock dlq list orders --cause timeout --limit 20
        penstock dlq list orders --group kitchen -o json
    """
    with target.open() as broker:
        letters = broker.dead_letters(topic, filter=_choice(cause, group), limit=limit)
    rows = [
        [
            letter.id,
            letter.origin,
            letter.group,
            letter.failures,
            letter.died_at,
            shortened(letter.cause, _SHOWN),
            shortened(readable(letter.value)[0], _SHOWN),
        ]
        for letter in letters
    ]
    table = new_table("id", "origin", "group", ">failures", "died", "cause", "value", rows=rows)
    show([_answer(letter) for letter in letters], output, table if rows else "there are no dead letters")


@app.command("show")
@targeted
def show_letter(
    target: Target,
    identity: Annotated[
        str, typer.Argument(metavar="ID", help="The dead letter, such as orders.dlq/0/7.", show_default=False)
    ],
    output: FormatOption = Format.TABLE,
) -> None:
    """Show a dead letter: the message, why it died, and its history.

    For example:

        penstock dlq show orders.dlq/0/7
        penstock dlq show orders.dlq/0/7 -o json | jq -r .value
    """
    with target.open() as broker:
        letter = broker.dead_letter(identity)
    answer = _answer(letter)
    rows = [(name, value) for name, value in answer.items() if name not in ("history", "headers", "value")]
    headers = [(f"header {name}", value) for name, value in (letter.headers or {}).items()]
    history = "\n".join(f"  {visible(line)}" for line in letter.history)
    value = visible(readable(letter.value)[0])
    show(
        answer,
        output,
        new_table("", "", rows=[*rows, *headers], heading=False),
        f"\nhistory\n{history}\n\nvalue\n  {value}",
    )


@app.command()
@targeted
def redrive(
    target: Target,
    topic: TopicArgument,
    identities: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID", help="Only these letters, such as orders.dlq/0/7.", show_default=False),
    ] = None,
    cause: CauseOption = None,
    group: GroupOption = None,
    to: Annotated[
        str | None,
        typer.Option(metavar="TOPIC", help="As new messages of this topic.", autocompletion=complete_topic),
    ] = None,
    rate: RateOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Send dead letters back to the groups that gave them up, or to another topic.

    Each goes once, also when this is interrupted and started again.

    For example:

        penstock dlq redrive orders
        penstock dlq redrive orders orders.dlq/0/7 orders.dlq/0/9
        penstock dlq redrive orders --cause timeout --rate 100
        penstock dlq redrive orders --group kitchen --to orders-by-hand --dry-run
    """
    chosen = _choice(cause, group) if not identities else _named(topic, identities, cause, group)
    with target.open() as broker:
        for identity in identities or ():
            broker.dead_letter(identity)  # or it says what is wrong, before anything is done
        try:
            if dry_run or not is_terminal("stderr"):  # nobody waits for a count that nobody would see
                report = broker.redrive(topic, filter=chosen, to=to, rate=rate, dry_run=dry_run)
            else:
                with Counter("redriving", _count(broker, topic, chosen)) as counter:
                    report = broker.redrive(topic, filter=chosen, to=to, rate=rate, progress=counter.add)
        except KeyboardInterrupt:
            warn("interrupted: what was sent back stays so; the same command goes on with the rest")
            raise
    did = "would be redriven" if dry_run else f"chosen: {report.redriven:,} sent back, {report.copied:,} copied"
    line = f"{counted(report.selected, 'dead letter')} {did}" + (
        f", {report.skipped:,} skipped" if report.skipped else ""
    )
    show(asdict(report), output, line)


@app.command()
@targeted
def purge(
    target: Target,
    topic: TopicArgument,
    cause: CauseOption = None,
    group: GroupOption = None,
    yes: YesOption = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Let dead letters go for good.

    For example:

        penstock dlq purge orders --cause "no such customer"
        penstock dlq purge orders --yes
    """
    chosen = _choice(cause, group)
    with target.open() as broker:
        if not yes:
            confirm(f"Purge {counted(_count(broker, topic, chosen), 'dead letter')} of {topic}?", yes)
        gone = broker.purge_dead_letters(topic, filter=chosen)
    show({"purged": gone}, output, f"purged {counted(gone, 'dead letter')}")


def _choice(cause: str | None, group: str | None) -> Choice:
    if cause is None and group is None:
        return None

    def is_chosen(letter: DeadLetter) -> bool:
        by_cause = cause is None or cause.casefold() in letter.cause.casefold()
        return by_cause and (group is None or letter.group == group)

    return is_chosen


def _named(topic: str, identities: list[str], cause: str | None, group: str | None) -> Choice:
    """The letters of these ids."""
    if cause is not None or group is not None:
        raise CommandError("letters are chosen by id, or by --cause and --group", "leave out one or the other")
    ids = [MessageId.parse(identity) for identity in identities]
    for identity in ids:
        if identity.topic != topic + DEAD_LETTERS:
            raise CommandError(f"{identity} is no dead letter of {topic}", f"`penstock dlq list {topic}` shows the ids")
    return ByName(ids)


def _count(broker: BrokerOperations, topic: str, chosen: Choice) -> int:
    return broker.redrive(topic, filter=chosen, dry_run=True).selected


def _answer(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": str(letter.id),
        "origin": str(letter.origin),
        "group": letter.group,
        "cause": letter.cause,
        "consumer": letter.consumer,
        "deliveries": letter.deliveries,
        "failures": letter.failures,
        "died_at": letter.died_at,
        "published_at": letter.published_at,
        **contents(letter.value, letter.key),
        "headers": letter.headers or {},
        "priority": letter.priority,
        "history": letter.history,
    }
