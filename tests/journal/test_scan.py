"""Reading a journal file: what was acknowledged is found, what was not is cut, what was damaged is said."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from penstock.journal.layout import (
    FILE_HEADER_BYTES,
    BlockEntry,
    BlockKind,
    FileHeader,
    Group,
    bodies,
    body_crc,
    encode_file_header,
    encode_group,
    encode_void,
    mark_of,
)
from penstock.journal.scan import scan_journal

BROKER = bytes(range(16))
SEQUENCE = 7
MARK = mark_of(BROKER, SEQUENCE)


@dataclass
class Journal:
    """A journal file in memory, written group by group."""

    data: bytes
    ends: list[int]

    @classmethod
    def of(cls, groups: list[list[bytes]], *, synced: bool = True) -> Journal:
        data = encode_file_header(FileHeader(SEQUENCE, BROKER, 0, 0))
        ends = []
        for number, group in enumerate(groups):
            entries = [
                BlockEntry(BlockKind.MESSAGES, 0, 0, 1, 10 * number, 1_000, 1, len(body), body_crc([body]))
                for body in group
            ]
            data += encode_group(MARK, len(data), len(data) if synced else 0, entries) + b"".join(group)
            ends.append(len(data))
        return cls(data, ends)


def contents(data: bytes, groups: list[Group]) -> list[list[bytes]]:
    return [[data[place : place + entry.length] for entry, place in bodies(group)] for group in groups]


SMALL = [[b"first"], [b"second", b"with two blocks"], [b""], [b"fourth" * 9]]


def test_a_journal_gives_back_the_groups_that_were_written() -> None:
    journal = Journal.of(SMALL)
    scan = scan_journal(journal.data, BROKER, SEQUENCE)
    assert contents(journal.data, scan.groups) == SMALL
    assert (scan.end, scan.torn_bytes, scan.damage) == (len(journal.data), 0, [])


@pytest.mark.parametrize("rest", [b"", bytes(4096), b"\xff" * 999], ids=["end of file", "zeros", "rubbish"])
def test_L8_a_journal_cut_at_every_byte_recovers_exactly_the_groups_before_the_cut(rest: bytes) -> None:
    journal = Journal.of(SMALL)
    for cut in range(len(journal.data) + 1):
        data = journal.data[:cut] + rest
        scan = scan_journal(data, BROKER, SEQUENCE)
        whole = [end for end in journal.ends if data[:end] == journal.data[:end]]
        assert contents(data, scan.groups) == SMALL[: len(whole)], cut
        assert scan.damage == [], cut
        if data[:FILE_HEADER_BYTES] != journal.data[:FILE_HEADER_BYTES]:
            assert scan.end == 0, cut
        else:
            assert scan.end == (whole[-1] if whole else FILE_HEADER_BYTES), cut


def test_L9_a_bit_flipped_at_every_byte_is_detected_and_cuts_no_good_group_behind_it() -> None:
    journal = Journal.of(SMALL)
    for position in range(len(journal.data)):
        for bit in range(8):
            data = bytearray(journal.data)
            data[position] ^= 1 << bit
            scan = scan_journal(bytes(data), BROKER, SEQUENCE)
            hit = sum(end <= position for end in journal.ends)
            found = contents(bytes(data), scan.groups)
            if position < FILE_HEADER_BYTES:
                assert scan.damage, (position, bit)
                assert found == SMALL, (position, bit)
            elif hit == len(SMALL) - 1:
                # The last group has none behind it to tell that it was on disk: it is cut, not served.
                assert found == SMALL[:-1], (position, bit)
            else:
                assert scan.damage, (position, bit)
                assert scan.damage[0].position == (journal.ends[hit - 1] if hit else FILE_HEADER_BYTES)
                assert found == SMALL[:hit] + SMALL[hit + 1 :], (position, bit)


def test_L9_damage_to_the_last_group_is_seen_when_something_else_knows_that_it_was_on_disk() -> None:
    journal = Journal.of(SMALL)
    for position in range(journal.ends[-2], len(journal.data)):
        data = bytearray(journal.data)
        data[position] ^= 1
        scan = scan_journal(bytes(data), BROKER, SEQUENCE, durable_end=len(journal.data))
        assert scan.damage, position
        assert scan.damage[0].position == journal.ends[-2]


def test_a_group_lost_among_unsynced_ones_is_a_torn_tail_and_not_damage() -> None:
    journal = Journal.of(SMALL, synced=False)
    data = bytearray(journal.data)
    data[journal.ends[0] + 5] ^= 1
    scan = scan_journal(bytes(data), BROKER, SEQUENCE)
    assert contents(bytes(data), scan.groups) == SMALL[:1]
    assert scan.damage == []
    assert scan.torn_bytes == journal.ends[1] - journal.ends[0]


def test_the_groups_of_a_recycled_file_are_never_taken_for_new_ones() -> None:
    old = Journal.of([[b"x" * 20]] * 10)
    header = encode_file_header(FileHeader(SEQUENCE + 1, BROKER, SEQUENCE, len(old.data)))
    scan = scan_journal(header + old.data[len(header) :], BROKER, SEQUENCE + 1)
    assert (scan.groups, scan.damage, scan.torn_bytes) == ([], [], 0)


def test_a_published_copy_of_a_journal_is_not_mistaken_for_the_journal() -> None:
    inner = Journal.of([[b"secret"]])
    journal = Journal.of([[b"before"], [inner.data * 3]])
    torn = journal.data[:-1]
    scan = scan_journal(torn, BROKER, SEQUENCE)
    assert contents(torn, scan.groups) == [[b"before"]]
    assert scan.damage == []


def test_a_void_group_is_stepped_over() -> None:
    journal = Journal.of(SMALL)
    start, end = journal.ends[0], journal.ends[1]
    void = encode_void(MARK, start, end)
    data = journal.data[:start] + void + b"?" * (end - start - len(void)) + journal.data[end:]
    scan = scan_journal(data, BROKER, SEQUENCE)
    assert contents(data, scan.groups) == [SMALL[0], [], *SMALL[2:]]
    assert scan.damage == []
