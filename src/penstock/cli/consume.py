"""`penstock consume`: messages of a topic on standard output, read from the log or received for a group."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.completion import complete_group
from penstock.cli.errors import CommandError
from penstock.cli.interrupts import Interrupts
from penstock.cli.output import StreamFormat, StreamFormatOption
from penstock.cli.parameters import FromOffsetOption, FromTimeOption, TopicArgument, ToTimeOption
from penstock.cli.printing import Past, Printer, follow_log, look, print_all, print_log, print_received
from penstock.cli.target import Target, flaw_of, targeted
from penstock.cli.topic import find_topic
from penstock.cli.values import parse_end, parse_moment
from penstock.model.errors import Forbidden, InvalidArgument
from penstock.model.units import TIME_US_MAX, parse_time_us

if TYPE_CHECKING:
    from penstock import StoredMessage
    from penstock.model.layout import LogLayout
    from penstock.segments.window import Window


@targeted
def consume(
    target: Target,
    topic: TopicArgument,
    partition: Annotated[
        int | None, typer.Argument(metavar="PARTITION", help="This partition only.", min=0, show_default=False)
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", metavar="GROUP", help="Receive for this group.", autocompletion=complete_group),
    ] = None,
    maximum: Annotated[
        int | None, typer.Option("--max", "-n", metavar="NUMBER", min=1, help="Stop after so many messages.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-F", help="Wait for more, until Ctrl-C.")] = False,
    from_offset: FromOffsetOption = None,
    from_time: FromTimeOption = None,
    to_time: ToTimeOption = None,
    from_snapshot: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="As it was at this time, or at the end of this day: with the archive."),
    ] = None,
    include_deleted: Annotated[
        bool, typer.Option("--include-deleted", help="Also what retention moved to the archive.")
    ] = False,
    no_ack: Annotated[bool, typer.Option("--no-ack", help="Only look: give everything back to the group.")] = False,
    output: StreamFormatOption = StreamFormat.LINES,
) -> None:
    """Print the messages of a topic, and ack them for a group.

    Without a group it reads the log, and changes nothing: it prints cancelled messages and those not due yet, too, and
    says on standard error how many these are. With one it receives what is ready, best lanes first, and acks each
    message when it was printed, or when the reader of the pipe has taken it: Ctrl-C and `| head` lose nothing. A window
    (`--from-…`, `--to-time`, `--include-deleted`) with a group is a replay into a new group.

    A snapshot is everything that was published by then and is still there, also what retention moved to the archive.
    With it, `--dir` may be an archive or a lake, too.

    For example:

        penstock consume orders --group kitchen --follow
        penstock consume orders --group kitchen --max 10 -o json
        penstock consume orders --from-time '15m ago' -o raw | grep coffee
        penstock consume orders --group again --from-time 2026-01-14T15:00:00Z --to-time 2026-01-14T16:00:00Z
        penstock consume orders --from-snapshot 2026-01-14 --dir /lake
    """
    if from_snapshot is not None and to_time is not None:
        raise CommandError("--from-snapshot and --to-time are two ends", "leave one of them out")
    end = parse_moment(to_time) if from_snapshot is None else parse_end(from_snapshot)
    deleted = include_deleted or from_snapshot is not None
    past = Past(partition, from_offset, parse_moment(from_time), end, deleted)
    _check(past, group, follow, no_ack)
    if follow and target.bucket is not None:
        raise CommandError(
            "nothing is added to a bucket that is only looked at", "leave out --follow, or give --server"
        )
    directory = target.directory
    if from_snapshot is not None and directory is not None and directory.is_dir() and flaw_of(directory) is not None:
        if group is not None:
            raise CommandError("an archive has no groups", "leave out --group")
        with Interrupts() as interrupts:
            printer = Printer(output, maximum, interrupts)
            print_all(_read_archive(directory, topic, past, maximum), printer)
        return
    with target.open() as broker, Interrupts() as interrupts:
        printer = Printer(output, maximum, interrupts)
        if group is None and follow:
            follow_log(broker, topic, past, printer)
        elif group is None:
            print_log(broker, topic, past, printer)
        else:
            with contextlib.suppress(Forbidden):  # by a token that is only for receiving
                find_topic(broker, topic)  # a consumer would make it, and wait for messages of a misspelt name
            if past.is_window:
                broker.replay(
                    topic,
                    group,
                    from_time=past.from_time,
                    to_time=past.to_time,
                    from_offset=past.from_offset,
                    partition=past.partition,
                )
            if no_ack:
                look(broker, topic, group, printer)
            else:
                print_received(broker, topic, group, follow, printer)


def _check(past: Past, group: str | None, follow: bool, no_ack: bool) -> None:
    """Refuse what contradicts itself."""
    if follow and past.to_time is not None:
        raise CommandError("--follow never ends, and the window does", "leave out --to-time or --from-snapshot")
    if group is None and no_ack:
        raise CommandError("--no-ack is for groups", "without --group nothing is acked anyway")
    if group is not None and follow and (no_ack or past.is_window):
        raise CommandError("--follow is for a group that goes on", "leave out --no-ack and the window of the past")
    if group is not None and past.partition is not None and not past.is_window:
        raise CommandError("a group gets messages of all partitions", "leave out PARTITION, or give --from-offset 0")


def _read_archive(directory: Path, topic: str, past: Past, limit: int | None) -> Iterator[StoredMessage]:
    """What an archive or a lake has of a topic, partition after partition, each in the order of its offsets."""
    from penstock.segments.window import Window
    from penstock.spark.finding import origin_at
    from penstock.spark.options import Secrets

    logs = origin_at(None, str(directory), Secrets()).layout(topic).messages
    if past.partition is not None:
        if past.partition >= len(logs):
            raise InvalidArgument(f"{topic} has no partition {past.partition}: it has {len(logs)}")
        logs = (logs[past.partition],)
    from_us = 0 if past.from_time is None else parse_time_us(past.from_time)
    to_us = TIME_US_MAX + 1 if past.to_time is None else parse_time_us(past.to_time)
    window = Window(past.from_offset or 0, from_us=from_us, to_us=to_us)
    found = itertools.chain.from_iterable(_messages(topic, log, window) for log in logs)
    return itertools.islice(found, limit)


def _messages(topic: str, log: LogLayout, window: Window) -> Iterator[StoredMessage]:
    from penstock.segments.schema import messages_from_arrow
    from penstock.shard.reading.log_reader import to_messages
    from penstock.spark.origins import open_segment

    for segment in log.segments:
        if window.meets(segment.base, segment.end - 1, segment.first_us, segment.last_us):
            with open_segment(segment, "messages") as reader:
                for table in reader.tables(window):
                    yield from to_messages(topic, log.partition, messages_from_arrow(table))
