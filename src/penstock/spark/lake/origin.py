"""Where a lake may be, and a lake as Spark's tables see it: topics with segments, and nothing unsettled."""

from __future__ import annotations

from penstock.cluster.directory import DIVISION
from penstock.model.errors import CorruptData, InvalidArgument
from penstock.model.layout import TopicLayout
from penstock.shard.checkpoint_files import COPIES
from penstock.spark.lake.layout import LOG, TABLES
from penstock.spark.lake.log import LakeState, lake_topics, read_state
from penstock.spark.origins import ArchiveOrigin, settled_log
from penstock.spark.paths import AnyPath, path_of
from penstock.storage.buckets import is_bucket


def is_lake(root: AnyPath) -> bool:
    """Whether a directory is a lake."""
    return any(root.glob(f"*/{LOG}"))


class LakeOrigin(ArchiveOrigin):
    """What the commits of a lake say, as they are when a topic is first looked at."""

    kind = "lake"

    def topic_names(self) -> list[str]:
        return lake_topics(self.root)

    def read_layout(self, topic: str) -> TopicLayout:
        state = whole_state(self.root, topic)
        logs = state.logs()
        messages, events = (
            tuple(
                settled_log(number, [file.place(state.topic_root) for file in logs.get((table, number), [])])
                for number in range(state.partitions)
            )
            for table in TABLES
        )
        return TopicLayout(topic, messages, events)


def whole_state(root: AnyPath, topic: str) -> LakeState:
    """The state of a topic, with all its files there; waits out a job that is replacing some of them."""
    while True:
        state = read_state(root, topic)
        try:
            state.check()
        except CorruptData:
            if read_state(root, topic).commits == state.commits:
                raise
        else:
            return state


def lake_root(lake: str) -> AnyPath:
    """Where a lake is that is written to, which need not be there yet; never something else."""
    if "://" in lake and not is_bucket(lake):
        raise InvalidArgument(
            f"a lake is a directory that all machines of the cluster see, or s3://bucket/place: not {lake!r}"
        )
    root = path_of(lake)
    if root.exists() and not root.is_dir():
        raise InvalidArgument(f"{root} is a file: a lake is a directory")
    if is_lake(root):  # a topic may be called as a file of a data directory is
        return root
    if _is_data_directory(root):
        raise InvalidArgument(f"{root} is a data directory of a broker: give another one for the lake")
    if any(root.glob("*/messages")):
        raise InvalidArgument(f"{root} is an archive of a broker, which still reads it: give another one for the lake")
    return root


def _is_data_directory(root: AnyPath) -> bool:
    """Whether a directory that is no lake is one of a broker, divided or not."""
    return any((root / name).exists() for name in (*COPIES, "journal", DIVISION))


def known_lake(lake: str) -> AnyPath:
    """Where a lake is that must be there."""
    root = path_of(lake)
    if root.is_dir() and is_lake(root) and lake_topics(root):
        return root
    if any(root.glob("*/messages")) or _is_data_directory(root):
        raise InvalidArgument(
            f"{root} is no lake: a broker reads these segments by its own list of them, so that they must stay as they "
            "are; archive the topics into a lake first (`penstock job archive`)"
        )
    raise InvalidArgument(f"{root} is no lake: it has no <topic>/_log; `penstock job archive` makes one")
