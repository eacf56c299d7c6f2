"""The ids of many messages at once, as text."""

from __future__ import annotations

from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

_DIGITS = 4
_ROUND = 10**_DIGITS


def message_ids(topic: str, partition: int, offsets: pa.Array) -> pa.Array:
    """`orders/2/45678` for each offset; consecutive ones are made by the ten thousand, which is much cheaper."""
    count = len(offsets)
    if not count:
        return pa.array([], pa.string())
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    if first < _ROUND or last - first != count - 1:
        return pc.binary_join_element_wise(f"{topic}/{partition}/", pc.cast(offsets, pa.string()), "")
    runs = [
        _run(
            f"{topic}/{partition}/{high}".encode(), max(first - high * _ROUND, 0), min(last - high * _ROUND + 1, _ROUND)
        )
        for high in range(first // _ROUND, last // _ROUND + 1)
    ]
    return runs[0] if len(runs) == 1 else pa.concat_arrays(runs)


def _run(beginning: bytes, start: int, end: int) -> pa.Array:
    """The ids with the same beginning: all have the same length, and only the last digits count up."""
    text = beginning + beginning.join(_endings()[start:end])
    starts = _starts(len(beginning) + _DIGITS)
    return pa.Array.from_buffers(pa.string(), end - start, [None, starts, pa.py_buffer(text)])


@cache
def _endings() -> list[bytes]:
    return [b"%04d" % number for number in range(_ROUND)]


@cache
def _starts(length: int) -> pa.Buffer:
    """Where texts of one length begin, one after the other."""
    return pa.array(range(0, (_ROUND + 1) * length, length), pa.int32()).buffers()[1]
