"""The messages of every benchmark: 64,000 distinct JSON values of 100 bytes, the same in every process."""

from __future__ import annotations

import random
from functools import cache

BATCH = 1000
VALUE_BYTES = 100
_BATCHES = 64


@cache
def values() -> list[bytes]:
    """All values; message `n` of a topic carries number `n` of them, over and over."""
    chance = random.Random(42)
    return [_value(number, chance) for number in range(BATCH * _BATCHES)]


def value_at(offset: int) -> bytes:
    """The value of the message at an offset."""
    return values()[offset % (BATCH * _BATCHES)]


def batch(number: int, size: int = BATCH) -> list[bytes]:
    """The values of the batch with this number, where all before had the same size."""
    made = _batches(size)
    return made[number % len(made)]


@cache
def _batches(size: int) -> list[list[bytes]]:
    every = values()
    return [every[start : start + size] for start in range(0, len(every), size)]


def _value(number: int, chance: random.Random) -> bytes:
    customer, cents = chance.randbytes(4).hex(), chance.randrange(100, 100_000)
    head = f'{{"order":{number},"customer":"{customer}","cents":{cents},"note":"'.encode()
    note = chance.randbytes(VALUE_BYTES).hex().encode()
    return head + note[: VALUE_BYTES - len(head) - 2] + b'"}'
