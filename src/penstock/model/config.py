"""The configuration of a broker and of a topic: every option, its default and what it means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from penstock.model.bounds import shown
from penstock.model.errors import InvalidArgument
from penstock.model.options import (
    choice,
    configure,
    duration,
    option,
    optional,
    size,
    text,
    weights,
    whole,
    yes_or_no,
)
from penstock.model.placement import SHARDS_MAX
from penstock.model.units import format_size

MIB = 1 << 20
GIB = 1 << 30
PARTITIONS_MAX = 65_536
CACHE_BYTES = 256 * MIB
_COMMIT_INTERVAL_MAX_S = 1.0  # whoever takes longer is taken for dead


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """How one topic is kept."""

    partitions: int = option(1, whole(1, PARTITIONS_MAX), "keys would go to other partitions than their older messages")
    """How many ordered logs the topic has; fixed when it is created."""
    retention_age: float | None = option(7 * 86400.0, optional(duration()))
    """Settled messages older than this go (None: never)."""
    retention_bytes: int | None = option(None, optional(size(0, 1 << 60)))
    """When the topic's segments take more than this, the oldest go (None: no limit)."""
    archive: str | None = option(None, optional(text))
    """A directory (relative to the data directory), or a place in the bucket, that expired segments move to."""
    dedupe_window: float = option(300.0, duration())
    """How long a dedupe id is remembered."""
    protect_unacked: bool = option(default=False, parse=yes_or_no)
    """Whether retention keeps what some group has not finished with (or everything, while there is no group)."""
    max_backlog: int | None = option(None, optional(whole(1, 1 << 60)))
    """Publishes are refused while the slowest group is so many messages behind (None: no limit)."""
    backlog_groups: str = option("live", choice("live", "all"))
    """Which groups `max_backlog` counts: those of consumers (`live`), or replays and checkpoint groups too (`all`)."""
    max_delay: float = option(7 * 86400.0, duration())
    """The longest delay that a message may have."""
    visibility_timeout: float = option(30.0, duration(0.001))
    """How long a delivered message is leased to its consumer."""
    max_deliveries: int = option(3, whole(1, 1_000_000))
    """After so many failed deliveries a message is dead-lettered."""
    retry_backoff: float = option(1.0, duration())
    """How long a failed message waits the first time; doubles with every failure."""
    retry_backoff_max: float = option(60.0, duration())
    """The longest that a failed message waits."""
    lanes: str = option("strict", choice("strict", "weighted"))
    """Which lane goes first: the lowest number always, or each by its weight."""
    lane_weights: tuple[tuple[int, int], ...] = option((), weights)
    """The weights of `lanes="weighted"`, by priority (others weigh 1)."""
    order: str = option("lane", choice("lane", "key"), "what is being delivered was handed out by the old order")
    """With `key`, at most one message of a key is leased at a time, and its followers wait for it."""
    dead_letter_lapsed: bool = option(default=False, parse=yes_or_no)
    """Whether a message whose time to live ended goes to the dead letters."""
    spread: int = option(1, whole(1, SHARDS_MAX), "messages would be in other shards than those of their keys")
    """Over how many shards the partitions are dealt; fixed when it is created."""

    @classmethod
    def parse(cls, options: Mapping[str, object], base: TopicConfig | None = None) -> TopicConfig:
        """The configuration with `options` set over `base` (or over the defaults)."""
        return configure(base or cls(), options, "topic options")

    def changed(self, options: Mapping[str, object]) -> TopicConfig:
        """The configuration of a topic that exists with `options` set over it; some cannot be changed any more."""
        return configure(self, options, "topic options", later=True)


def restore_topic_config(options: Mapping[str, Any], shared: TopicConfig) -> TopicConfig:
    """A configuration as it was stored; equal ones are one object, for there may be thousands."""
    weighted = tuple((lane, weight) for lane, weight in options.get("lane_weights", ()))
    config = TopicConfig(**{**options, "lane_weights": weighted})
    return shared if config == shared else config


def _topic_defaults(value: object) -> TopicConfig:
    if isinstance(value, TopicConfig | Mapping):
        config = TopicConfig.parse(asdict(value) if isinstance(value, TopicConfig) else value)
        if config.spread == 1:
            return config
        raise InvalidArgument("spread: a topic that the first publish makes is in one shard; make others by hand")
    raise InvalidArgument(f"{shown(value)} is not a mapping of topic options")


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """How one broker works; limits are there so that no buffer grows without end."""

    sync: str = option("always", choice("always", "interval", "never"))
    """A publish is acknowledged after fdatasync (`always`); or once written, with a sync now and then or never."""
    sync_interval: float = option(0.1, duration(0.001))
    """How often `sync="interval"` syncs."""
    commit_interval: float | None = option(None, optional(duration(0.0, _COMMIT_INTERVAL_MAX_S)))
    """How far commits are apart at least (None: 0.1 s on a bucket, where each is a request, and 0 on a disk)."""
    journal_file_bytes: int = option(64 * MIB, size(4096, GIB))
    """A journal file is sealed at this size and its messages are settled."""
    journal_files_max: int = option(8, whole(1, 1024))
    """With more sealed files than this, small partitions are settled too (docs/decisions/0003)."""
    segment_min_bytes: int = option(MIB, size(0, GIB))
    """A partition with less than this stays in the journal when others are settled."""
    segment_max_bytes: int = option(128 * MIB, size(1024, GIB))
    """A segment takes at most about this much journal."""
    settle_after: float = option(86400.0, duration(0.01))
    """Whatever is older than this is settled, however little it is."""
    max_value_bytes: int = option(16 * MIB, size(1, GIB))
    """The largest value of a message."""
    max_key_bytes: int = option(64 * 1024, size(1, GIB))
    """The largest key of a message."""
    max_headers_bytes: int = option(64 * 1024, size(1, GIB))
    """The most that the header names and values of a message may take together."""
    max_batch_bytes: int = option(64 * MIB, size(1, GIB))
    """The most that one batch may hold."""
    max_topics: int = option(100_000, whole(1, 1 << 40))
    """With so many topics no more are made; their dead letters have room beside them."""
    max_partitions: int = option(1024, whole(1, PARTITIONS_MAX))
    """The most partitions a topic may have."""
    max_unwritten_bytes: int = option(256 * MIB, size(1, 2 * GIB))
    """Messages waiting for the disk beyond this are refused."""
    max_unsettled_bytes: int = option(2 * GIB, size(4096, 1 << 50))
    """With this much journal waiting to be settled, publishes are refused."""
    min_free_bytes: int = option(64 * MIB, size(0, 1 << 50))
    """With less than this free on the disk, publishes are refused."""
    max_dedupe_ids: int = option(1_000_000, whole(1, 1 << 40))
    """Dedupe ids that a topic remembers; beyond it, publishes with a new id are refused."""
    max_producers: int = option(100_000, whole(1, 1 << 40))
    """Producers that a topic remembers; beyond it, the one idle for longest is forgotten."""
    readable_by: str = option("owner", choice("owner", "group", "all"))
    """Who may read new files and directories of the data: their owner (`owner`), a `group`, or `all` users."""
    cache_bytes: int = option(CACHE_BYTES, size(0, 1 << 50))
    """On a bucket: how much of what was read or written last is kept near, for all shards of the process."""
    cache_dir: str | None = option(None, optional(text))
    """On a bucket: the directory where that is kept, which only this process uses (None: in memory)."""
    topic_defaults: TopicConfig = option(TopicConfig(), _topic_defaults)
    """The configuration of topics that are created without one of their own."""

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> BrokerConfig:
        """The configuration with `options` set over the defaults."""
        config = configure(cls(), options, "broker options")
        needed = (config.journal_files_max + 2) * config.journal_file_bytes
        if config.max_unsettled_bytes < needed:
            raise InvalidArgument(
                f"broker options: max_unsettled_bytes ({format_size(config.max_unsettled_bytes)}) is less than the "
                f"journal may take before it is settled: {config.journal_files_max} + 2 files (journal_files_max) of "
                f"{format_size(config.journal_file_bytes)} (journal_file_bytes), {format_size(needed)}"
            )
        return config
