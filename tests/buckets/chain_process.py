"""A process that owns a chain on a bucket whenever it can, and notes what was acknowledged.

python -m tests.buckets.chain_process NUMBER ADDRESS NOTES
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
from pathlib import Path

import msgspec

from penstock.journal.chain import Chain, Fenced, Found
from penstock.journal.conversing import carry_out
from penstock.storage.buckets import open_objects
from penstock.storage.objects import ObjectStore

Value = tuple[int, int, int]
"""Which process wrote it, in which epoch, and its number there."""


def values_of(found: Found) -> list[Value]:
    """What a chain holds."""
    values = [] if found.checkpoint is None else msgspec.msgpack.decode(found.checkpoint, type=list[Value])
    return values + [msgspec.msgpack.decode(piece.body, type=Value) for piece in found.pieces]


def pause(attempt: int) -> None:
    time.sleep(min(0.5, 0.01 * 2**attempt))


def own(chain: Chain, store: ObjectStore, number: int, notes: Path, chance: random.Random) -> None:
    """Take the chain over, and write to it for a while."""
    values = values_of(carry_out(chain.claim(), store, pause))
    with notes.open("ab", buffering=0) as file:
        for written in range(chance.randrange(20, 80)):
            if chance.random() < 0.9:
                value = (number, chain.epoch, written)
                carry_out(chain.append(1, written, msgspec.msgpack.encode(value)), store, pause)
                file.write(b"%d %d %d\n" % value)
                values.append(value)
            else:
                carry_out(chain.checkpoint(msgspec.msgpack.encode(values), chain.end), store, pause)
            for name in chain.take_needless():
                store.delete([name])


def main(number: int, address: str, notes: Path) -> None:
    chance, store = random.Random(number), open_objects(address)
    chain = Chain(0, number.to_bytes(16), f"process {number}")
    while True:
        with contextlib.suppress(Fenced):
            own(chain, store, number, notes, chance)
        time.sleep(chance.random() / 5)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
