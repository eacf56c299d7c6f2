"""A data directory read with no broker, divided or not: a snapshot of each shard, shown as one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from penstock.cluster.directory import part_name, shards_of
from penstock.model.info import TopicInfo
from penstock.model.letters import DeadLetter
from penstock.model.names import check_topic_name
from penstock.model.placement import shard_of
from penstock.model.schedules import SCHEDULES
from penstock.storage.read_only import ReadOnlyStorage
from penstock.views.snapshot import GroupProgress, Snapshot


class Snapshots:
    """The shards of a directory as the broker that is opened next would find them; close it, or use it as a context."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        root = ReadOnlyStorage(path)
        count = shards_of(root)
        if count is not None:
            root.check_unlocked()
        self._parts: list[Snapshot] = []
        try:
            for number in range(count or 1):
                self._parts.append(Snapshot(root if count is None else root.part(part_name(number))))
        except BaseException:
            self.close()
            raise

    def of(self, topic: str) -> Snapshot:
        """The shard that a topic lives in."""
        return self._parts[shard_of(check_topic_name(topic), len(self._parts))]

    def topics(self) -> list[TopicInfo]:
        """Every topic, by name, with its partitions."""
        found = [info for part in self._parts for info in part.topics() if self._is_shown(part, info.name)]
        return sorted(found, key=lambda info: info.name)

    def groups(self, topic: str | None = None) -> list[GroupProgress]:
        """Every group, or those of one topic, as far as they were."""
        if topic is not None:
            return self.of(topic).groups(topic)
        found = [group for part in self._parts for group in part.groups()]
        return sorted(found, key=lambda group: (group.topic, group.name))

    def dead_letters(self, topic: str) -> Iterator[DeadLetter]:
        """The dead letters of a topic that were neither redriven nor purged, oldest first."""
        return self.of(topic).dead_letters(topic)

    def close(self) -> None:
        """Close the files; closing twice is harmless."""
        for part in self._parts:
            part.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def _is_shown(self, part: Snapshot, topic: str) -> bool:
        """Each shard keeps its schedules in a topic of one name: one of them is shown."""
        return topic != SCHEDULES or self.of(topic) is part


def path_of_topic(path: str, topic: str) -> str:
    """The directory in which the files of a topic are: that of its shard, where it is divided."""
    root = ReadOnlyStorage(path)
    count = shards_of(root)
    return path if count is None else root.part(part_name(shard_of(check_topic_name(topic), count))).path
