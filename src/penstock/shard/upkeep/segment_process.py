"""A process that makes segments for a broker, so that settling does not slow down the interpreter that serves.

On a disk it reads journal files and writes segments under temporary names; only the broker publishes them. On a bucket
the broker gives it the blocks, most of which are in memory there, and gets the bytes of the segment: so it asks the
bucket for nothing, and needs no credentials. Orders and answers go through its standard input and output, one after the
other. It ends when its input ends, so it outlives the broker by at most one segment. That file is in nobody's way,
because its temporary name has the epoch of the broker, and is removed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO

import msgspec

from penstock.log.partition_log import BlockRef
from penstock.model.errors import CorruptData
from penstock.model.stored import SegmentInfo
from penstock.shard.upkeep.segmenting import (
    ReadBlocks,
    SegmentOrder,
    journal_opened,
    make_segment,
    runs_of,
    stage_segment,
)
from penstock.storage import FileStorage

_log = logging.getLogger("penstock")
_LENGTH_BYTES = 4


class _GivenUp(Exception):
    """The broker does not want the segment any more."""


class _Answer(msgspec.Struct, array_like=True):
    """The outcome of an order: one of these."""

    info: SegmentInfo | None = None
    corrupt: tuple[str, int, str] | None = None
    failed: tuple[int, str, str | None] | None = None
    """The number and the text of an OSError, and the file."""
    content: list[bytes] | None = None
    """The bytes of a segment whose blocks were given."""


class SegmentProcess:
    """Makes segments in a separate process, which is started when it is first needed; for all shards of a broker."""

    def __init__(self, readable_by: str = "owner") -> None:
        self._readable_by = readable_by
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()  # the broker may be closed during settling
        self._closed = False

    def stage(self, path: str, order: SegmentOrder) -> SegmentInfo | None:
        """As `stage_segment`, in the directory of a shard; None if the process failed, and the caller has to do it."""
        answer = self._answer(lambda stream: _send(stream, msgspec.msgpack.encode((path, order))))
        return None if answer is None else answer.info

    def make(self, order: SegmentOrder, read: ReadBlocks) -> tuple[list[bytes], SegmentInfo] | None:
        """As `make_segment`; None if the process failed, and the caller has to do it."""
        answer = self._answer(lambda stream: _give(stream, order, read))
        if answer is None or answer.info is None or answer.content is None:
            return None
        return answer.content, answer.info

    def _answer(self, ask: Callable[[IO[bytes]], None]) -> _Answer | None:
        """What the process answers; None if it is closed or failed."""
        with self._lock:
            if self._closed:
                return None
            try:
                answer = self._ask(ask)
            except (OSError, EOFError, msgspec.MsgspecError) as error:
                _log.warning("the process that settles is gone (%s): it is started again with the next segment", error)
                self._end()
                return None
        if answer.corrupt is not None:
            raise CorruptData(*answer.corrupt)
        if answer.failed is not None:
            raise OSError(*answer.failed)
        return answer

    def _ask(self, ask: Callable[[IO[bytes]], None]) -> _Answer:
        if self._process is None:
            # It uses the modules of this process, not those of the current directory.
            command = [sys.executable, "-P", "-m", "penstock.shard.upkeep.segment_process", self._readable_by]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.curdir for path in sys.path)}
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        ask(self._process.stdin)
        return msgspec.msgpack.decode(_receive(self._process.stdout), type=_Answer)

    def close(self) -> None:
        """End the process after its current segment; no other is started."""
        with self._lock:
            self._closed = True
            self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()  # nobody waits for its results
            with contextlib.suppress(OSError):
                process.communicate()


def _give(stream: IO[bytes], order: SegmentOrder, read: ReadBlocks) -> None:
    """Send an order with its blocks, a run at a time; nothing is sent for one that cannot be read."""
    _send(stream, msgspec.msgpack.encode((None, order)))
    for blocks in runs_of(order.blocks):
        try:
            bodies = read(blocks)
        except BaseException:
            _send(stream, b"")
            raise
        _send(stream, msgspec.msgpack.encode(bodies))


def _send(stream: IO[bytes], data: bytes) -> None:
    stream.write(len(data).to_bytes(_LENGTH_BYTES, "big") + data)
    stream.flush()


def _receive(stream: IO[bytes]) -> bytes:
    length = stream.read(_LENGTH_BYTES)
    data = stream.read(int.from_bytes(length, "big"))
    if len(length) < _LENGTH_BYTES or len(data) < int.from_bytes(length, "big"):
        raise EOFError("it ended")
    return data


def _make_segments(readable_by: str) -> None:
    """The process: answer orders until there are no more."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # these are meant for the broker, which handles them
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(EOFError, OSError):
        while True:
            path, order = msgspec.msgpack.decode(_receive(sys.stdin.buffer), type=tuple[str | None, SegmentOrder])
            if path is None:
                _make_of_given(order)
                continue
            storage = FileStorage(path, readable_by)
            try:
                _send(sys.stdout.buffer, msgspec.msgpack.encode(_answer(storage, order)))
            except BrokenPipeError:  # the broker is gone and cannot publish it
                storage.remove(order.name + order.temporary)
                break
    os._exit(0)


def _make_of_given(order: SegmentOrder) -> None:
    """Answer an order whose blocks follow it, unless the broker gives up."""

    def read(_: list[BlockRef]) -> list[bytes]:
        given = _receive(sys.stdin.buffer)
        if not given:
            raise _GivenUp
        return msgspec.msgpack.decode(given, type=list[bytes])

    with contextlib.suppress(_GivenUp):
        content, info = make_segment(order, read)
        _send(sys.stdout.buffer, msgspec.msgpack.encode(_Answer(info=info, content=content)))


def _answer(storage: FileStorage, order: SegmentOrder) -> _Answer:
    with journal_opened(storage) as read:
        try:
            return _Answer(info=stage_segment(storage, order, read))
        except CorruptData as error:
            return _Answer(corrupt=(error.name, error.position, error.problem))
        except OSError as error:
            return _Answer(failed=(error.errno or 0, error.strerror or str(error), error.filename))


if __name__ == "__main__":
    _make_segments(*sys.argv[1:])
