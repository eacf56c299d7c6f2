"""What is still needed of each file of the journal: a file of which nothing is needed can go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.model.units import TIME_US_MAX

if TYPE_CHECKING:
    from penstock.log.partition_log import Log


class FileUsage:
    """What is needed of one file."""

    __slots__ = ("live_bytes", "oldest_us", "owners")

    def __init__(self) -> None:
        self.live_bytes = 0  # of blocks that are neither settled nor carried elsewhere
        self.oldest_us = TIME_US_MAX  # no block that is needed is older
        self.owners: dict[Log, None] = {}  # the logs that have, or had, blocks in it; a set that keeps its order


class Usage:
    """What is needed of all files, by their sequence."""

    __slots__ = ("_files",)

    def __init__(self) -> None:
        self._files: dict[int, FileUsage] = {}

    def of(self, sequence: int) -> FileUsage:
        """What is needed of a file."""
        found = self._files.get(sequence)
        if found is None:
            found = self._files[sequence] = FileUsage()
        return found

    def took(self, sequence: int, owner: Log, length: int, timestamp_us: int) -> None:
        """A block of this length was committed to the file."""
        file = self._files.get(sequence) or self.of(sequence)
        file.live_bytes += length
        if timestamp_us < file.oldest_us:
            file.oldest_us = timestamp_us
        file.owners[owner] = None

    def gave(self, sequence: int, length: int) -> None:
        """So many bytes of it are not needed any more."""
        file = self._files[sequence]
        file.live_bytes -= length
        assert file.live_bytes >= 0, f"more of journal file {sequence} was let go than it holds"

    def has_older(self, sequence: int, limit_us: int) -> bool:
        """Whether a block from before a time is needed of a file."""
        file = self.of(sequence)
        if file.oldest_us < limit_us:  # that block may be needed no longer
            times_us = (block.timestamp_us for log in file.owners for block in log.blocks_in(sequence))
            file.oldest_us = min(times_us, default=TIME_US_MAX)
        return file.oldest_us < limit_us

    def live_bytes(self) -> dict[int, int]:
        """How many bytes of each file are needed."""
        return {sequence: file.live_bytes for sequence, file in self._files.items()}

    def forget(self, sequence: int) -> None:
        """The file is gone."""
        self._files.pop(sequence, None)
