"""The journal's files: the one that is written, the sealed ones that are still needed, and the spares."""

from __future__ import annotations

from penstock.journal.layout import FILE_HEADER_BYTES, FileHeader, body_crc, encode_file_header, file_name, mark_of
from penstock.model.errors import CorruptData
from penstock.storage import File, Storage

SPARES_MAX = 2
SPARE = ".spare"
RESERVE_BYTES = 1 << 20
_ZEROS = bytes(RESERVE_BYTES)


class JournalFile:
    """One file, its ends, and how many read it; hold the state lock to pin, unpin or retire it."""

    __slots__ = (
        "_pins",
        "_retired",
        "end",
        "groups",
        "handle",
        "mark",
        "reserved_end",
        "sequence",
        "synced_end",
    )

    def __init__(self, handle: File, sequence: int, mark: int, end: int, groups: int = 0) -> None:
        self.handle = handle
        self.sequence = sequence
        self.mark = mark
        self.end = end  # after the last group
        self.groups = groups  # how many it has
        self.synced_end = end
        self.reserved_end = end  # up to here, space on disk is allocated: writing there syncs faster
        self._pins = 0
        self._retired = False

    def reserve(self, end: int) -> None:
        """Fill the file with zeros ahead of small writes, so that it does not grow with every sync."""
        if end > self.reserved_end and end - self.end <= RESERVE_BYTES // 16 and self.handle.overwrites:
            self.reserved_end = self.handle.write(max(self.reserved_end, end), [_ZEROS])

    def pin(self) -> None:
        """Keep the bytes readable."""
        self._pins += 1

    def unpin(self) -> None:
        """Undo a pin; the last reader closes a file that was retired meanwhile."""
        self._pins -= 1
        if self._retired and self._pins == 0:
            self.handle.close()

    def retire(self) -> bool:
        """Close it unless somebody reads it; whether its space can be reused."""
        self._retired = True
        if self._pins == 0:
            self.handle.close()
            return self.handle.overwrites
        return False


def read_body(handle: File, sequence: int, position: int, length: int, crc: int) -> bytes:
    """A committed body of a file, checked."""
    body = handle.read(position, length)
    if body_crc([body]) != crc:
        raise CorruptData(f"journal file {sequence}", position, "a block does not match its checksum")
    return body


class JournalFiles:
    """The files that are needed, by sequence."""

    def __init__(self, files: dict[int, JournalFile]) -> None:
        self.files = files

    def read_body(self, file: JournalFile, position: int, length: int, crc: int) -> bytes:
        """A committed body, checked; the caller has pinned the file."""
        return read_body(file.handle, file.sequence, position, length, crc)


class JournalDirectory:
    """Creates and removes journal files; some are kept and overwritten, which syncs faster than growing a file."""

    def __init__(self, storage: Storage, broker: bytes, file_bytes: int) -> None:
        self._storage = storage
        self._broker = broker
        self._file_bytes = file_bytes
        self._spares = [f"journal/{name}" for name in storage.list("journal") if name.endswith(SPARE)]

    def prove(self) -> None:
        """Return if the journal is this process's still; raises NotOwner otherwise."""
        self._storage.prove()

    def create(self, sequence: int, previous: JournalFile | None) -> JournalFile:
        """The next file, with its header on disk."""
        name = file_name(sequence)
        spare = self._spares[-1] if self._spares else None
        handle = self._storage.create(name) if spare is None else self._storage.open(spare)
        try:
            if spare is not None:
                self._storage.rename(spare, name)
                self._spares.pop()
            header = FileHeader(
                sequence,
                self._broker,
                previous.sequence if previous else 0,
                previous.end if previous else 0,
            )
            handle.write(0, [encode_file_header(header)])
            handle.sync()
            self._storage.sync_directory("journal")
        except OSError:
            handle.close()
            raise
        file = JournalFile(handle, sequence, mark_of(self._broker, sequence), FILE_HEADER_BYTES)
        file.reserved_end = handle.size()
        return file

    def remove(self, sequence: int, size_bytes: int, reusable: bool) -> None:
        """Remove a file for good, or keep its space for the next one."""
        name = file_name(sequence)
        if reusable and len(self._spares) < SPARES_MAX and size_bytes <= 2 * self._file_bytes:
            self._storage.rename(name, name + SPARE)
            self._spares.append(name + SPARE)
        else:
            self._storage.remove(name)
