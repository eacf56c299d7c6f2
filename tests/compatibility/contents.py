"""What lies in the files of a data directory: blocks of the journal, kinds of events, parts of the checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import msgspec

from penstock.journal import BlockKind, scan_journal
from penstock.journal.layout import BlockEntry, bodies, decode_file_header
from penstock.log.checkpoint import Checkpoint, decode_checkpoint
from penstock.model.events import decode_events
from penstock.shard.checkpoint_files import COPIES
from tests.compatibility.stopping import journal_files


class Block(NamedTuple):
    """A block of the journal, and whether the checkpoint knows nothing of it."""

    entry: BlockEntry
    body: bytes
    is_new: bool


def checkpoint_of(data: Path) -> Checkpoint:
    """The checkpoint, of which both copies are there."""
    first, second = (decode_checkpoint((data / name).read_bytes()) for name in COPIES)
    assert first is not None
    assert first == second
    return first


def blocks_of(data: Path) -> Iterator[Block]:
    """Every block of the journal, oldest first."""
    checkpoint = checkpoint_of(data)
    for file in journal_files(data):
        content = file.read_bytes()
        header = decode_file_header(content)
        assert header is not None
        for group in scan_journal(content, header.broker, header.sequence).groups:
            is_new = (header.sequence, group.position) >= (checkpoint.sequence, checkpoint.position)
            for entry, place in bodies(group):
                yield Block(entry, content[place : place + entry.length], is_new)


def void_groups(data: Path) -> int:
    """How many groups of the journal a repair has emptied."""
    count = 0
    for file in journal_files(data):
        content = file.read_bytes()
        header = decode_file_header(content)
        assert header is not None
        count += sum(not group.entries for group in scan_journal(content, header.broker, header.sequence).groups)
    return count


def kinds_of_events(blocks: Iterable[Block]) -> set[str]:
    """The kinds of events in blocks of the journal."""
    bodies_of_events = [block.body for block in blocks if block.entry.kind == BlockKind.EVENTS]
    return {str(event.kind) for body in bodies_of_events for event in decode_events(body)}


def events_in_parquet(home: Path) -> set[str]:
    """The kinds of events in segments, with those in the archive."""
    return {row[0] for row in query(f"select distinct kind from '{home}/*/**/events/*/*.parquet'")}


def query(sql: str) -> list[tuple[Any, ...]]:
    """What DuckDB answers."""
    with duckdb.connect() as connection:
        return list(connection.execute(sql).fetchall())


def fields_in_use(value: object) -> set[str]:
    """The fields of structs, `Struct.field`, that hold something else than nothing, at any depth."""
    found: set[str] = set()
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            one = getattr(value, name)
            if one:
                found |= {f"{type(value).__name__}.{name}"} | fields_in_use(one)
    elif isinstance(value, dict):
        found = found.union(*map(fields_in_use, value.values()))
    elif isinstance(value, list | tuple):
        found = found.union(*map(fields_in_use, value))
    return found
