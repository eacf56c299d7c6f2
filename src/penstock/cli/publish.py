"""`penstock publish` and `penstock produce`: messages from the command line, from a file, from standard input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import asdict, replace

from penstock.cli.errors import REFUSED, CommandError, warn
from penstock.cli.interrupts import Interrupts
from penstock.cli.output import Format, FormatOption
from penstock.cli.parameters import (
    AtOption,
    DelayOption,
    ExpiresOption,
    HeaderOption,
    KeyOption,
    NewTopicArgument,
    PriorityOption,
)
from penstock.cli.sending import (
    AT_ONCE,
    AT_ONCE_BYTES,
    Batch,
    Published,
    read_lines,
    send,
    show_published,
    standard_input,
)
from penstock.cli.target import Target, targeted
from penstock.cli.terminal import is_terminal
from penstock.cli.values import parse_headers, parse_lane, parse_length, parse_moment, to_bytes

if TYPE_CHECKING:
    from penstock import Message
    from penstock.api.operations import BrokerOperations

_VALUE_BYTES_MAX = 1 << 30  # more than any broker takes


@targeted
def publish(
    target: Target,
    topic: NewTopicArgument,
    value: Annotated[
        str | None,
        typer.Argument(metavar="VALUE", help="The value; without it, each line of standard input.", show_default=False),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", metavar="FILE", help="The whole file is the value; - is standard input."),
    ] = None,
    key: KeyOption = None,
    header: HeaderOption = None,
    priority: PriorityOption = "normal",
    delay: DelayOption = None,
    at: AtOption = None,
    partition: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="The partition, if not by key or in turn.")
    ] = None,
    count: Annotated[int, typer.Option(metavar="NUMBER", min=1, help="Publish the same message so often.")] = 1,
    dedupe_id: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Published again with this id, it is not taken again.")
    ] = None,
    expires_in: ExpiresOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Publish messages: a value, a file, or standard input by line.

    It returns when they are durable, and prints the id, or for many the offsets that they got. Lines go in batches,
    as they come: what was published is told also when it is interrupted.

    For example:

        penstock publish orders "two coffees" --key alex --priority high
        penstock publish orders "a cake" --delay 20m --header till=7
        penstock publish photos --file cat.jpg
        tail -f access.log | penstock publish requests
    """
    form = _form(key, header, priority, delay, at, partition, dedupe_id, expires_in)
    if value is not None and file is not None:
        raise CommandError("there is a value and a --file", "give one of them")
    if value is not None:
        _publish_value(target, topic, form, to_bytes(value), count, output)
    elif file is not None:
        _publish_value(target, topic, form, _read_file(file), count, output)
    elif count != 1:
        raise CommandError("--count repeats one message", "give its value, or --file")
    else:
        _publish_lines(target, topic, form, output)


@targeted
def produce(
    target: Target,
    topic: NewTopicArgument,
    partition: Annotated[
        int | None, typer.Argument(metavar="PARTITION", help="The partition, with a message.", show_default=False)
    ] = None,
    message: Annotated[str | None, typer.Argument(metavar="MESSAGE", help="Its value.", show_default=False)] = None,
    key: KeyOption = None,
    header: HeaderOption = None,
    priority: PriorityOption = "normal",
    delay: DelayOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Publish one message to a partition, or standard input by line.

    The short form of `penstock publish`, as other queues have it.

    For example:

        penstock produce user-signups 0 "new user: alex"
        echo '{"order_id": 123}' | penstock produce orders --key order-123
    """
    form = _form(key, header, priority, delay, None, partition, None, None)
    if message is not None:
        _publish_value(target, topic, form, to_bytes(message), 1, output)
    elif partition is not None:
        raise CommandError("there is a partition and no message", f"penstock produce {topic} {partition} MESSAGE")
    else:
        _publish_lines(target, topic, form, output)


def _form(
    key: str | None,
    header: list[str] | None,
    priority: str,
    delay: str | None,
    at: str | None,
    partition: int | None,
    dedupe_id: str | None,
    expires_in: str | None,
) -> Message:
    """A message that has everything but its value; what is wrong with it is known before anything is opened."""
    from penstock import Message

    if delay is not None and at is not None:
        raise CommandError("--delay and --at exclude each other", "leave one of them out")
    return Message(
        b"",
        None if key is None else to_bytes(key),
        parse_headers(header),
        parse_lane(priority),
        parse_length(delay),
        parse_moment(at),
        partition,
        dedupe_id,
        parse_length(expires_in),
    )


def _read_file(file: Path) -> bytes:
    try:
        with standard_input() if str(file) == "-" else file.open("rb") as stream:
            data = stream.read(_VALUE_BYTES_MAX + 1)
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}", "give a file that can be read") from error
    if len(data) > _VALUE_BYTES_MAX:
        raise CommandError(f"{file} is larger than any message may be", "publish it in parts", REFUSED)
    return data


def _publish_value(target: Target, topic: str, form: Message, value: bytes, count: int, output: Format) -> None:
    form.value = value
    if count > 1 and form.dedupe_id is not None:
        raise CommandError("--count with --dedupe-id would publish one message", "leave one of them out")
    with target.open(new=True) as broker:
        if count > 1:
            at_once = max(1, min(AT_ONCE, AT_ONCE_BYTES // max(1, len(value))))
            sizes = (min(at_once, count - done) for done in range(0, count, at_once))
            _publish_many(broker, topic, lambda _: ([form] * size for size in sizes), output)
        else:
            show_published(broker.publish(topic, **asdict(form)), output)


def _publish_lines(target: Target, topic: str, form: Message, output: Format) -> None:
    if form.dedupe_id is not None:
        raise CommandError("--dedupe-id names one message", "give its value, or --file")
    if is_terminal("stdin"):
        warn("each line that you type is a message; Ctrl-D ends")

    def batches(interrupts: Interrupts) -> Iterator[Batch]:
        for lines in read_lines(interrupts):
            yield [replace(form, value=line) for line in lines]

    with target.open(new=True) as broker:
        _publish_many(broker, topic, batches, output)


def _publish_many(
    broker: BrokerOperations, topic: str, batches: Callable[[Interrupts], Iterable[Batch]], output: Format
) -> None:
    published = Published(topic)
    with Interrupts() as interrupts:
        try:
            send(broker, published, batches(interrupts), interrupts)
        except KeyboardInterrupt:
            warn(f"interrupted: {published.told()}, durably")
            raise
    published.show(output)
