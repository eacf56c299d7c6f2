"""A data directory or a bucket read with no broker, divided or not: a snapshot of each shard, shown as one."""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self, overload

from penstock.cluster.directory import part_name, shards_of
from penstock.journal.bucket_reading import open_root_for_reading
from penstock.model.info import TopicInfo
from penstock.model.layout import TopicLayout
from penstock.model.letters import DeadLetter
from penstock.model.merging import by, merge_layouts, merge_topics
from penstock.model.names import DEAD_LETTERS, check_topic_name
from penstock.model.placement import Place, shard_of
from penstock.shard.reading.layouts import topic_layout
from penstock.storage.read_only import ReadableStorage
from penstock.views.snapshot import GroupProgress, Snapshot

_SUMS = ("published", "acked", "retrying", "dead", "lapsed", "withdrawn", "skipped", "lost", "lag")


class Snapshots:
    """The shards of a directory as the broker that is opened next would find them; close it, or use it as a context."""

    def __init__(self, path: str | os.PathLike[str] | ReadableStorage) -> None:
        """`path`: of a directory, or the address of a bucket, which brokers may have open."""
        root = open_root_for_reading(path) if isinstance(path, str | os.PathLike) else path
        count = shards_of(root)
        if count is not None or root.is_shared:
            root.check_readable()
        self._parts = _Parts(root, count)
        if not root.is_shared:  # a directory is shown as it is now
            try:
                list(self._parts)
            except BaseException:
                self.close()
                raise

    def of(self, topic: str, partition: int = 0) -> Snapshot:
        """The shard that has a partition of a topic; its home, if none has."""
        slices = self.slices(topic)
        for part in slices:
            known = part.catalog.by_name.get(topic)
            if known is not None and partition in known.own_partitions:
                return part
        return slices[0]

    def slices(self, topic: str) -> Sequence[Snapshot]:
        """The shards that have something of a topic: one, unless it is spread."""
        home = self._parts[shard_of(check_topic_name(topic), len(self._parts))]
        known = home.catalog.by_name.get(topic)
        is_spread = topic.endswith(DEAD_LETTERS) if known is None else known.config.spread > 1
        if len(self._parts) == 1 or not is_spread:
            return [home]
        found = (part.catalog.by_name.get(topic) for part in self._parts)
        numbers = {one.slice: part for one, part in zip(found, self._parts, strict=True) if one is not None}
        return [numbers[number] for number in sorted(numbers)] or [home]

    def topics(self) -> list[TopicInfo]:
        """Every topic, by name, with its partitions."""
        found = [info for part in self._parts for info in part.topics() if part in self.slices(info.name)]
        return sorted(by(found, lambda info: info.name, merge_topics), key=lambda info: info.name)

    def layout(self, topic: str) -> TopicLayout:
        """Where the messages and events of a topic lie."""
        return merge_layouts([topic_layout(part.catalog.topic(topic), part.storage) for part in self.slices(topic)])

    def groups(self, topic: str | None = None) -> list[GroupProgress]:
        """Every group, or those of one topic, as far as they were."""
        parts = self._parts if topic is None else self.slices(topic)
        found = [group for part in parts for group in part.groups(topic) if part in self.slices(group.topic)]
        return sorted(by(found, _topic_and_name, _merge_groups), key=_topic_and_name)

    def dead_letters(self, topic: str) -> Iterator[DeadLetter]:
        """The dead letters of a topic that were neither redriven nor purged, oldest first."""
        return heapq.merge(*(part.dead_letters(topic) for part in self.slices(topic)), key=lambda letter: letter.id)

    def close(self) -> None:
        """Close the files; closing twice is harmless."""
        for part in self._parts.opened:
            part.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


class _Parts(Sequence[Snapshot]):
    """The snapshots of shards, each made when it is first asked for: most questions are about one."""

    def __init__(self, root: ReadableStorage, count: int | None) -> None:
        """`count`: of shards; None for a directory that is not divided."""
        self._root, self._count = root, count
        self._made: dict[int, Snapshot] = {}

    def __len__(self) -> int:
        return self._count or 1

    @overload
    def __getitem__(self, number: int) -> Snapshot: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Snapshot]: ...
    def __getitem__(self, number: int | slice) -> Snapshot | Sequence[Snapshot]:
        if isinstance(number, slice):
            return [self[each] for each in range(len(self))[number]]
        place = range(len(self))[number]
        if place not in self._made:
            storage = self._root if self._count is None else self._root.part(part_name(place))
            self._made[place] = Snapshot(storage, Place(place, len(self)))
        return self._made[place]

    @property
    def opened(self) -> list[Snapshot]:
        """Those that were made."""
        return list(self._made.values())


def _topic_and_name(group: GroupProgress) -> tuple[str, str]:
    return group.topic, group.name


def _merge_groups(slices: Sequence[GroupProgress]) -> GroupProgress:
    """A group, with what each slice counts; it stands at the beginning of partitions that a slice does not have."""
    sums = {name: sum(getattr(one, name) for one in slices) for name in _SUMS}
    return replace(slices[0], **sums, positions=tuple(map(max, *(one.positions for one in slices))))
