"""A lake as Spark's tables see it: a topic with segments, and nothing unsettled."""

from __future__ import annotations

from pathlib import Path

from penstock.model.errors import CorruptData, TopicNotFound
from penstock.model.layout import LogLayout, TopicLayout
from penstock.spark.lake.layout import TABLES, LakeFile
from penstock.spark.lake.log import LOG, LakeState, lake_topics, read_state
from penstock.spark.origins import ArchiveOrigin


def is_lake(root: Path) -> bool:
    """Whether a directory is a lake."""
    return any(root.glob(f"*/{LOG}"))


class LakeOrigin(ArchiveOrigin):
    """What the commits of a lake say, as they are when a topic is first looked at."""

    def topic_names(self) -> list[str]:
        return lake_topics(self.root)

    def layout(self, topic: str, segments: bool = True) -> TopicLayout:
        if topic not in self.layouts:
            if topic not in self.topic_names():
                raise TopicNotFound(f"there is no topic {topic!r} in the lake {self.root}")
            state = whole_state(self.root, topic)
            logs = state.logs()
            messages, events = (
                tuple(_log(state, number, logs.get((table, number), [])) for number in range(state.partitions))
                for table in TABLES
            )
            self.layouts[topic] = TopicLayout(topic, messages, events)
        return self.layouts[topic]


def whole_state(root: Path, topic: str) -> LakeState:
    """The state of a topic whose files are all there; a job that replaces some at this moment is no harm."""
    while True:
        state = read_state(root, topic)
        try:
            state.check()
        except CorruptData:
            if read_state(root, topic).commits == state.commits:
                raise
        else:
            return state


def _log(state: LakeState, partition: int, files: list[LakeFile]) -> LogLayout:
    if not files:
        return LogLayout(partition, 0, 0, 0, ())
    end = files[-1].end
    return LogLayout(partition, files[0].base, end, end, tuple(file.place(state.topic_root) for file in files))
