"""Where things are on disk: a body in the journal, a segment, and what is known of both without opening them."""

from __future__ import annotations

import msgspec

from penstock.model.names import check_topic_name

STAGES = "staging"
"""The directory of stages, in a data directory."""


Place = tuple[int, int, int, int]
"""Where the body of a committed record is in the journal: the number of the file, position, length, checksum."""


class SegmentInfo(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One Parquet file of one log."""

    base: int
    """The first offset in it."""
    end: int
    """The offset after the last one in it."""
    rows: int
    """Fewer than end - base only if a repair left a gap."""
    size_bytes: int
    first_us: int
    """The lowest timestamp in it (not always the first: clocks step back)."""
    last_us: int
    """The highest timestamp in it."""
    due_us: int
    """The latest delivery time of its messages; 0 if none was delayed."""
    footer_bytes: int
    """The file from here to its end counts as footer, with its own checksum."""
    footer_crc: int
    archived: bool = False
    """Whether it lies in an archive."""
    priority: int | None = None
    """Of messages: the priority of all rows; None if they differ."""
    low: int = 0
    """Of events: the lowest message offset that they are about."""
    high: int = 0
    """Of events: the highest one."""
    expires: bool = False
    """Of messages: whether any has a time to live."""
    archive: str | None = None
    """The archive that it is in; None for an archived segment: that of the topic (as earlier versions noted it)."""
    epoch: int = 0
    """Of the owner that made it, which its name carries where a process that was replaced could write it too."""


def segment_name(topic: str, table: str, partition: int, base: int, epoch: int = 0) -> str:
    """Where a segment is: `topics/orders/messages/2/00000000000000045678.parquet`; of an epoch `…45678-7.parquet`."""
    return f"topics/{archived_name(topic, table, partition, base, epoch)}"


def archived_name(topic: str, table: str, partition: int, base: int, epoch: int = 0) -> str:
    """Where it is below the archive directory."""
    written_in = f"-{epoch}" if epoch else ""
    return f"{check_topic_name(topic)}/{table}/{partition}/{base:020d}{written_in}.parquet"


def place_of_segment(
    info: SegmentInfo, topic: str, table: str, partition: int, topic_archive: str | None
) -> tuple[str | None, str]:
    """The archive that a segment is in (None: the data directory), and its name there."""
    archive = (info.archive or topic_archive) if info.archived else None
    return archive, (segment_name if archive is None else archived_name)(topic, table, partition, info.base, info.epoch)


def is_inside(name: str) -> bool:
    """Whether a name of a file stays in its directory."""
    return not (name.startswith("/") or "\0" in name or ".." in name.split("/"))
