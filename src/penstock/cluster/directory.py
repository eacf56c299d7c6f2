"""How a data directory is divided: `penstock.json` says it, and only `resharding` changes it.

A directory without it is one shard, with its files where they have always been. With it, shard 3 has a directory of
its own, `shards/3`, with the same files.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from stat import S_IMODE

import msgspec

from penstock.model.bounds import shown
from penstock.model.errors import CorruptData, InvalidArgument
from penstock.model.options import whole
from penstock.model.placement import SHARDS_MAX
from penstock.shard.checkpoint_files import COPIES
from penstock.storage import Storage, put_file, read_file
from penstock.storage.files import READABLE_BY

DIVISION = "penstock.json"
_VERSION = 1
_UNDIVIDED = ("journal", "topics", *COPIES)  # what stands at the top of a directory that is one shard


class Step(StrEnum):
    """What is being done to a directory that gets another number of shards; nobody else may open it meanwhile."""

    COPYING = "copying"
    """It is a copy of another directory, which is not complete yet."""
    MOVING_OUT = "moving out"
    """The old shards are being moved out of the way; the new ones are complete."""
    MOVING_IN = "moving in"
    """The new shards are being put in their place."""


class Division(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What `penstock.json` says."""

    version: int
    shards: int
    resharding: Step | None = None
    before: int = 1
    """While old shards are moved: how many they are."""
    source: str = ""
    """While `penstock copy` fills it: where it copies from."""


def divide(storage: Storage, shards: int | None) -> list[Storage]:
    """The storage of each shard; a new directory is divided into so many (None: one), others are as they were made.

    One that is divided is locked as a whole, for whoever opens its shards.
    """
    wanted = None if shards is None else whole(1, SHARDS_MAX)(shards)
    if max(shards_of(storage) or 1, wanted or 1) == 1:
        return [storage]
    storage.lock()
    try:
        count = _division_of(storage, wanted)
    except BaseException:
        storage.close()
        raise
    return [storage.part(part_name(number)) for number in range(count)]


def parts_of(storage: Storage) -> list[Storage]:
    """The storage of each shard of a directory that is divided and locked already, by whoever keeps it for several."""
    count = shards_of(storage)
    if count is None:
        raise InvalidArgument("this directory is one shard: one process has it")
    return [storage.part(part_name(number)) for number in range(count)]


def part_name(number: int) -> str:
    """The directory of a shard."""
    return f"shards/{number}"


def _division_of(storage: Storage, wanted: int | None) -> int:
    """How many shards it has, once it is divided."""
    found = shards_of(storage)
    if wanted is not None and is_new(storage):
        write_division(storage, wanted)
        found = wanted
    if wanted not in (None, found):
        made_with = f"{found} shards" if found else "one shard"
        raise InvalidArgument(
            f"this directory was made with {made_with}, not with {wanted}: their number is fixed, until "
            f"`penstock reshard DIR --shards {wanted}` changes it"
        )
    assert found is not None
    return found


def is_new(storage: Storage) -> bool:
    """Whether nothing says yet how it is divided."""
    return shards_of(storage) is None and not set(_UNDIVIDED) & set(storage.list(""))


def shards_of(storage: Storage) -> int | None:
    """How many shards `penstock.json` speaks of; None if there is no such file."""
    division = read_division(storage)
    if division is None:
        return None
    if division.source:
        raise InvalidArgument(
            f"this is a copy of {shown(division.source)} that is not complete: `penstock copy` was interrupted, or is "
            "still running; run it again to finish it"
        )
    if division.resharding is not None:
        raise InvalidArgument(
            f"this directory is not complete: `penstock reshard --shards {division.shards}` was interrupted, or is "
            "still running; run it again to finish it"
        )
    return division.shards


def read_division(storage: Storage) -> Division | None:
    """What `penstock.json` says, whatever is being done to the directory; None if there is no such file."""
    try:
        data = read_file(storage, DIVISION)
    except FileNotFoundError:
        return None
    return decode_division(data)


def decode_division(data: bytes) -> Division:
    """What the bytes of `penstock.json` say."""
    try:
        division = msgspec.json.decode(data, type=Division)
    except msgspec.MsgspecError as error:
        raise CorruptData(DIVISION, 0, f"it does not say how the directory is divided: {error}") from error
    if division.version != _VERSION:
        raise CorruptData(DIVISION, 0, f"version {shown(division.version)} was written by a newer Penstock")
    if not 1 <= division.shards <= SHARDS_MAX:
        raise CorruptData(DIVISION, 0, f"{shown(division.shards)} is not a number of shards")
    return division


def write_division(
    storage: Storage, shards: int, resharding: Step | None = None, before: int = 1, source: str = ""
) -> None:
    """Put `penstock.json` on disk."""
    put_file(storage, DIVISION, [encode_division(shards, resharding, before, source)])


def encode_division(shards: int, resharding: Step | None = None, before: int = 1, source: str = "") -> bytes:
    """What is in `penstock.json`."""
    division = Division(version=_VERSION, shards=shards, resharding=resharding, before=before, source=source)
    return msgspec.json.format(msgspec.json.encode(division)) + b"\n"


def copying(source: str, shards: int) -> Division:
    """What `penstock.json` says while `penstock copy` fills a directory or a bucket."""
    return Division(version=_VERSION, shards=shards, resharding=Step.COPYING, source=source)


def settle_division(root: Storage, shards: int) -> None:
    """Say that a directory is complete; one that is a single shard says nothing."""
    if shards > 1:
        write_division(root, shards)
    else:
        root.remove(DIVISION)
        root.sync_directory("")


def readable_by(directory: Path) -> str:
    """Who may read the files of a directory: so it is with those that are made."""
    for name in (DIVISION, *COPIES):
        if (directory / name).exists():
            mode = S_IMODE((directory / name).stat().st_mode)
            return next((who for who, (file_mode, _) in READABLE_BY.items() if file_mode == mode), "owner")
    return "owner"
