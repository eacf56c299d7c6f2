"""Many messages on their way to the broker: lines as they come, batches, and what became of them."""

from __future__ import annotations

import io
import select
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

from penstock.cli.errors import REFUSED, CommandError
from penstock.cli.interrupts import Interrupts
from penstock.cli.output import Format, counted, show
from penstock.cli.progress import Counter
from penstock.model.errors import LimitExceeded, Overloaded, PenstockError

if TYPE_CHECKING:
    from penstock import Message, MessageId, MessageIds
    from penstock.api.operations import BrokerOperations

AT_ONCE = 5000
AT_ONCE_BYTES = 1 << 20
_LINE_BYTES_MAX = 64 << 20
_PATIENCE_S = 30.0
_RUNS_SHOWN = 8

Batch = list["Message | bytes | str"]


class Published:
    """Which offsets the messages of a topic got."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.count = 0
        self._runs: list[tuple[int, int, int]] = []  # partition, first offset, count
        self._newest: dict[int, int] = {}  # the place of each partition's last run

    def add(self, ids: MessageIds) -> None:
        """What a batch got."""
        self.count += len(ids)
        for partition, base, count in ids.runs:
            place = self._newest.get(partition)
            if place is not None:
                _, first, known = self._runs[place]
                if first + known == base:
                    self._runs[place] = (partition, first, known + count)
                    continue
            self._newest[partition] = len(self._runs)
            self._runs.append((partition, base, count))

    def told(self) -> str:
        """How many there are, in words."""
        return f"{counted(self.count, 'message')} {'was' if self.count == 1 else 'were'} published"

    def show(self, output: Format) -> None:
        """Tell it to whoever called the command."""
        shown = [
            f"{self.topic}/{partition}/{first}" + (f"..{first + count - 1}" if count > 1 else "")
            for partition, first, count in self._runs
        ]
        more = len(shown) - _RUNS_SHOWN
        lines = (
            [*shown[:_RUNS_SHOWN], f"and {more} more runs of offsets (-o json lists them all)"] if more > 0 else shown
        )
        runs = [{"partition": run[0], "first_offset": run[1], "count": run[2]} for run in self._runs]
        answer = {"topic": self.topic, "count": self.count, "runs": runs}
        show(answer, output, *lines, self.told())


def show_published(identity: MessageId, output: Format) -> None:
    """Tell the id of the one message that was published."""
    run = {"partition": identity.partition, "first_offset": identity.offset, "count": 1}
    answer = {"topic": identity.topic, "count": 1, "runs": [run], "id": str(identity)}
    show(answer, output, str(identity))


def send(broker: BrokerOperations, published: Published, batches: Iterable[Batch], interrupts: Interrupts) -> None:
    """Publish one batch after the other; Ctrl-C comes between two of them."""
    with Counter("publishing") as counter:
        try:
            for batch in batches:
                interrupts.check()
                for ids in _send_batch(broker, published.topic, batch, interrupts):
                    published.add(ids)
                    counter.add(len(ids))
        except PenstockError as error:
            error.add_note(f"{published.told()} before")
            raise
        interrupts.check()


def _send_batch(broker: BrokerOperations, topic: str, batch: Batch, interrupts: Interrupts) -> Iterator[MessageIds]:
    """All of a batch; where it is too much at once, in parts, so that only what is too large itself is refused."""
    give_up_s = time.monotonic() + _PATIENCE_S
    pause_s = 0.05
    while True:
        try:
            yield broker.publish_many(topic, batch)
        except LimitExceeded:
            if len(batch) == 1:
                raise
            half = len(batch) // 2
            yield from _send_batch(broker, topic, batch[:half], interrupts)
            yield from _send_batch(broker, topic, batch[half:], interrupts)
        except Overloaded:  # we are faster than the broker, or than its consumers
            if time.monotonic() > give_up_s:
                raise
            with interrupts.waiting():
                time.sleep(pause_s)
            pause_s = min(1.0, pause_s * 2)
            continue
        return


def read_lines(interrupts: Interrupts) -> Iterator[list[bytes]]:
    """The lines of standard input, as many as there are by now and not too many at once."""
    rest: list[bytes] = []  # of a line whose end has not come yet
    for chunk in _read_chunks(interrupts):
        rest.append(chunk)
        if b"\n" not in chunk:
            if sum(map(len, rest)) > _LINE_BYTES_MAX:
                text = "a line is longer than any message may be"
                raise CommandError(text, "publish a file as one message: --file FILE", REFUSED)
            continue
        *lines, end = b"".join(rest).split(b"\n")
        rest = [end] if end else []
        for start in range(0, len(lines), AT_ONCE):
            yield lines[start : start + AT_ONCE]
    if rest:
        yield [b"".join(rest)]


def standard_input() -> BinaryIO:
    """The bytes of standard input, which may have been closed."""
    if sys.stdin is None:
        raise CommandError("there is no standard input", "give the value, or --file")
    return sys.stdin.buffer


def _read_chunks(interrupts: Interrupts) -> Iterator[bytes]:
    stream = standard_input()
    raw: Any = getattr(stream, "raw", stream)
    while True:
        with interrupts.waiting():
            chunk = raw.read(AT_ONCE_BYTES)
        if not chunk:
            return
        chunks = [chunk]
        while sum(map(len, chunks)) < AT_ONCE_BYTES and _is_ready(raw):
            more = raw.read(AT_ONCE_BYTES)
            if not more:
                break
            chunks.append(more)
        yield b"".join(chunks)


def _is_ready(stream: Any) -> bool:
    """Whether reading would not wait."""
    try:
        return bool(select.select([stream], [], [], 0)[0])
    except (io.UnsupportedOperation, OSError, ValueError):
        return False
