"""A process that makes segments for a broker, so that settling does not slow down the interpreter that serves.

It reads journal files and writes segments under temporary names; only the broker publishes them. Orders and answers go
through its standard input and output, one after the other. It ends when its input ends, so it outlives the broker by at
most one segment. That file is in nobody's way, because its temporary name has the epoch of the broker, and is removed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from typing import IO

import msgspec

from penstock.model.errors import CorruptData
from penstock.model.stored import SegmentInfo
from penstock.shard.upkeep.segmenting import SegmentOrder, journal_opened, stage_segment
from penstock.storage import FileStorage

_log = logging.getLogger("penstock")
_LENGTH_BYTES = 4


class _Answer(msgspec.Struct, array_like=True):
    """The outcome of an order: one of these."""

    info: SegmentInfo | None = None
    corrupt: tuple[str, int, str] | None = None
    failed: tuple[int, str, str | None] | None = None
    """The number and the text of an OSError, and the file."""


class SegmentProcess:
    """Makes segments in a separate process, which is started when it is first needed; for all shards of a broker."""

    def __init__(self, readable_by: str = "owner") -> None:
        self._readable_by = readable_by
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()  # the broker may be closed during settling
        self._closed = False

    def stage(self, path: str, order: SegmentOrder) -> SegmentInfo | None:
        """As `stage_segment`, in the directory of a shard; None if the process failed, and the caller has to do it."""
        with self._lock:
            if self._closed:
                return None
            try:
                answer = self._ask(path, order)
            except (OSError, EOFError, msgspec.MsgspecError) as error:
                _log.warning("the process that settles is gone (%s): it is started again with the next segment", error)
                self._end()
                return None
        if answer.corrupt is not None:
            raise CorruptData(*answer.corrupt)
        if answer.failed is not None:
            raise OSError(*answer.failed)
        return answer.info

    def _ask(self, path: str, order: SegmentOrder) -> _Answer:
        if self._process is None:
            # It uses the modules of this process, not those of the current directory.
            command = [sys.executable, "-P", "-m", "penstock.shard.upkeep.segment_process", self._readable_by]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.curdir for path in sys.path)}
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        _send(self._process.stdin, msgspec.msgpack.encode((path, order)))
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
            path, order = msgspec.msgpack.decode(_receive(sys.stdin.buffer), type=tuple[str, SegmentOrder])
            storage = FileStorage(path, readable_by)
            try:
                _send(sys.stdout.buffer, msgspec.msgpack.encode(_answer(storage, order)))
            except BrokenPipeError:  # the broker is gone and cannot publish it
                storage.remove(order.name + order.temporary)
                break
    os._exit(0)


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
