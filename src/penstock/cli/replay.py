"""`penstock replay`: a window of the past once more."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from penstock.cli.errors import CommandError, warn
from penstock.cli.output import Format, FormatOption, StreamFormat, counted, encode, encode_visibly, show
from penstock.cli.parameters import (
    FromOffsetOption,
    FromTimeOption,
    PartitionOption,
    RateOption,
    ToOffsetOption,
    TopicArgument,
    ToTimeOption,
)
from penstock.cli.progress import Counter
from penstock.cli.target import Target, targeted
from penstock.cli.terminal import is_terminal
from penstock.cli.values import parse_moment

if TYPE_CHECKING:
    from penstock import StoredMessage


@targeted
def replay(
    target: Target,
    topic: TopicArgument,
    to_group: Annotated[
        str | None, typer.Option("--to-group", metavar="GROUP", help="A new group, which gets just these messages.")
    ] = None,
    output_file: Annotated[
        Path | None,
        typer.Option(
            "--output-file", metavar="FILE", dir_okay=False, help="A file of JSON lines; - is standard output."
        ),
    ] = None,
    from_time: FromTimeOption = None,
    to_time: ToTimeOption = None,
    from_offset: FromOffsetOption = None,
    to_offset: ToOffsetOption = None,
    partition: PartitionOption = None,
    rate: RateOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Give a window of the past to a new group, or write it to a file.

    What was acked, what is dead and what is in the archive comes too; the other groups do not notice. A file is there
    when it is complete.

    For example:

        penstock replay orders --to-group again --from-time '1h ago'
        penstock replay orders --output-file hour.jsonl --from-time 2026-01-14T15:00Z --to-time 2026-01-14T16:00Z
        penstock replay orders --to-group slowly --from-offset 1000 --to-offset 2000 --rate 50
    """
    if (to_group is None) == (output_file is None):
        raise CommandError("it is not said where the messages are to go", "give --to-group or --output-file")
    window: dict[str, Any] = {
        "from_time": parse_moment(from_time),
        "to_time": parse_moment(to_time),
        "from_offset": from_offset,
        "to_offset": to_offset,
        "partition": partition,
        "rate": rate,
    }
    with target.open() as broker:
        if to_group is not None:
            count = broker.replay(topic, to_group, **window)
            answer = {"topic": topic, "group": to_group, "count": count}
            show(
                answer,
                output,
                f"{counted(count, 'message')} for the group {to_group}: penstock consume {topic} --group {to_group}",
            )
            return
        assert output_file is not None
        encoded = encode_visibly if str(output_file) == "-" and is_terminal("stdout") else encode
        with _written(output_file) as stream, Counter("replaying") as counter:

            def write(message: StoredMessage) -> None:
                stream.write(encoded(message, StreamFormat.JSON))
                counter.add()

            count = broker.replay(topic, write, **window)
    if str(output_file) == "-":
        warn(counted(count, "message"))
    else:
        show(
            {"topic": topic, "file": str(output_file), "count": count},
            output,
            f"{counted(count, 'message')} in {output_file}",
        )


@contextlib.contextmanager
def _written(file: Path) -> Iterator[BinaryIO]:
    """A file that is there when everything was written to it, and not before."""
    if str(file) == "-":
        yield sys.stdout.buffer
        return
    unfinished = file.with_name(f"{file.name}.part")
    try:
        with unfinished.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        unfinished.replace(file)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
