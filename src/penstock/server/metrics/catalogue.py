"""Every metric: its name, its type, its labels and what it tells. Nothing is exported that is not listed here."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]
Rule = Literal["sum", "max", "min"]
"""What processes tell together that have the same metric with the same labels."""


class Metric(NamedTuple):
    """One metric of `/metrics`."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    together: Rule = "sum"


def _counter(name: str, text: str, labels: tuple[str, ...] = (), together: Rule = "sum") -> Metric:
    return Metric(name, "counter", labels, text, together)


def _gauge(name: str, text: str, labels: tuple[str, ...] = (), together: Rule = "sum") -> Metric:
    return Metric(name, "gauge", labels, text, together)


def _histogram(name: str, text: str, labels: tuple[str, ...] = ()) -> Metric:
    return Metric(name, "histogram", labels, text)


_TOPIC = ("topic",)
_GROUP = ("topic", "group")
_REQUEST = ("port", "operation")
_PIPELINE = ("pipeline",)
_QUERY = ("pipeline", "query")

_METRICS = (
    # The broker as a whole.
    _gauge(
        "penstock_build_info",
        "Always 1: which version, broker and sync.",
        ("version", "broker", "sync"),
        together="max",
    ),
    _gauge("penstock_start_time_seconds", "When the broker was opened, in seconds since 1970.", together="min"),
    _gauge(
        "penstock_frozen", "1 once the disk failed: nothing is written until the broker is restarted.", together="max"
    ),
    _gauge("penstock_topics", "Topics that exist."),
    _gauge("penstock_partitions", "Partitions of all topics."),
    _gauge("penstock_groups", "Groups of all topics."),
    # Topics.
    _counter("penstock_topic_published_total", "Messages that were published and are durable.", _TOPIC),
    _counter("penstock_topic_published_bytes_total", "Their bytes in the journal: keys, values, headers.", _TOPIC),
    _gauge("penstock_topic_messages", "Messages that can be read: published and not yet let go.", _TOPIC),
    _gauge("penstock_topic_journal_bytes", "Bytes in the journal that are not settled yet.", _TOPIC),
    _gauge("penstock_topic_segments", "Parquet files of messages and events, without the archive.", _TOPIC),
    _gauge("penstock_topic_segment_bytes", "The size of these files.", _TOPIC),
    # Groups.
    _counter("penstock_group_delivered_total", "Messages handed to consumers, those that came again too.", _GROUP),
    _counter("penstock_group_redelivered_total", "Of these, messages that had been delivered before.", _GROUP),
    _counter("penstock_group_acked_total", "Messages that are done.", _GROUP),
    _counter("penstock_group_acked_bytes_total", "Their bytes on disk, by their share of block or file.", _GROUP),
    _counter("penstock_group_failed_total", "Deliveries that consumers said had failed.", _GROUP),
    _counter("penstock_group_expired_total", "Deliveries whose lease ran out; they count as failures.", _GROUP),
    _counter("penstock_group_released_total", "Messages given back unprocessed; that is no failure.", _GROUP),
    _counter("penstock_group_dead_total", "Messages that failed too often or were killed: see the topic .dlq.", _GROUP),
    _counter("penstock_group_lapsed_total", "Messages whose time to live ended before they were done.", _GROUP),
    _counter("penstock_group_redriven_total", "Dead letters that were sent back to the group.", _GROUP),
    _counter(
        "penstock_group_end_to_end_seconds_total",
        "The time from publish to ack, summed over acked messages: divided by acked, the average.",
        _GROUP,
    ),
    _gauge("penstock_group_lag", "Messages that are not done: ready, leased, delayed or to be tried again.", _GROUP),
    _gauge(
        "penstock_group_ready", "Messages that a consumer would get now; absent while nobody used the group.", _GROUP
    ),
    _gauge("penstock_group_leased", "Messages that consumers hold, or whose outcome is being written.", _GROUP),
    _gauge("penstock_group_delayed", "Messages that are not due yet; absent while nobody used the group.", _GROUP),
    _gauge("penstock_group_retrying", "Messages that failed and wait for their next try.", _GROUP),
    _gauge(
        "penstock_group_oldest_unacked_seconds",
        "How long ago the oldest message that is not done was published; 0 if all are done.",
        _GROUP,
        together="max",
    ),
    _gauge("penstock_group_members", "Consumers of the group.", _GROUP, together="max"),
    _gauge(
        "penstock_group_lost",
        "Messages that retention removed before the group was done with them, since it began; they are in no lag.",
        _GROUP,
    ),
    _gauge(
        "penstock_group_setting",
        "The settings that the group has beside its topic's, by name; 1 for one that is switched on.",
        (*_GROUP, "setting"),
        together="max",
    ),
    # Pipelines, as they tell of themselves.
    _gauge("penstock_pipelines", "Pipelines that were heard of within a day, by state.", ("state",)),
    _gauge(
        "penstock_pipeline_up",
        "1 while it runs or starts; 0 if it waits, has ended or is silent.",
        _PIPELINE,
        together="max",
    ),
    _gauge(
        "penstock_pipeline_state",
        "1 for the state that it is in, 0 for the others.",
        ("pipeline", "state"),
        together="max",
    ),
    _counter(
        "penstock_pipeline_restarts_total", "How often it failed and was started again.", _PIPELINE, together="max"
    ),
    _counter("penstock_pipeline_batches_total", "Micro-batches that are done.", _QUERY, together="max"),
    _counter("penstock_pipeline_rows_total", "Rows that went into them.", _QUERY, together="max"),
    _gauge("penstock_pipeline_batch_seconds", "How long the last of them took.", _QUERY, together="max"),
    _gauge(
        "penstock_pipeline_lag",
        "Messages that are there and were not read yet; absent where the sources cannot tell.",
        _QUERY,
        together="max",
    ),
    _gauge("penstock_pipeline_state_rows", "Rows that it keeps, for aggregates and joins.", _QUERY, together="max"),
    # Latencies.
    _histogram("penstock_publish_seconds", "From taking messages to their being durable: how long publishers wait."),
    _histogram("penstock_fsync_seconds", "How long the disk took to make the journal durable."),
    _histogram(
        "penstock_commit_seconds",
        "From the first request of a commit to its end, by what took longest of it.",
        ("cause",),
    ),
    _histogram("penstock_commit_bytes", "Bytes that were written and synced together."),
    _histogram("penstock_commit_messages", "Published messages that were committed together."),
    _histogram("penstock_fetch_seconds", "How long choosing and leasing messages took, where some were ready."),
    _histogram(
        "penstock_content_read_seconds",
        "Reading and decoding a block or row group that consumers needed and that was not in memory.",
    ),
    _histogram("penstock_end_to_end_seconds", "From publish to ack, for each message and group, delays included."),
    _histogram("penstock_due_lateness_seconds", "How late delayed messages became ready."),
    # The disk.
    _gauge("penstock_journal_bytes", "The size of the journal, with what is settled and not yet removed."),
    _gauge("penstock_journal_limit_bytes", "The size from which on publishes are refused (max_unsettled_bytes)."),
    _gauge("penstock_journal_files", "Files of the journal."),
    _gauge("penstock_journal_unwritten_bytes", "What waits for the disk."),
    _counter("penstock_journal_commits_total", "Groups of writes that are durable."),
    _counter("penstock_journal_refused_total", "Groups of writes that failed, with everything in them."),
    _counter("penstock_journal_written_bytes_total", "Bytes written to the journal."),
    _histogram("penstock_settle_seconds", "Passes of settling that had something to do."),
    _counter("penstock_settled_segments_total", "Parquet files written from the journal."),
    _counter("penstock_settled_bytes_total", "The size of these files."),
    _counter("penstock_carried_bytes_total", "Bytes written to the journal again so that old files can go."),
    _counter("penstock_retention_segments_total", "Parquet files that retention archived or removed.", ("action",)),
    _histogram("penstock_checkpoint_seconds", "How long noting the state of everything took."),
    _counter("penstock_upkeep_failures_total", "Work in the background that failed and is tried again.", ("work",)),
    _gauge("penstock_disk_free_bytes", "What the file system of the data directory has left.", together="min"),
    _gauge(
        "penstock_disk_reserved_bytes",
        "With less than this left, publishes are refused (min_free_bytes).",
        together="max",
    ),
    # The bucket.
    _counter(
        "penstock_bucket_requests_total",
        "Requests to the bucket, by what became of them.",
        ("operation", "outcome"),
    ),
    _counter("penstock_bucket_retries_total", "Requests that were made again, as the ones before had failed."),
    _counter(
        "penstock_bucket_bytes_total",
        "Bytes of objects that were sent to the bucket or received, by what the objects are.",
        ("direction", "kind"),
    ),
    _histogram("penstock_bucket_request_seconds", "How long the bucket took to answer.", ("operation",)),
    _counter("penstock_bucket_cache_hits_total", "Parts of objects that were in the cache (cache_bytes)."),
    _counter("penstock_bucket_cache_misses_total", "Parts of objects that had to be read from the bucket."),
    _gauge("penstock_bucket_cache_bytes", "What the cache holds, in memory or in cache_dir."),
    _gauge("penstock_bucket_members", "Brokers on the bucket that live, as far as this one knows.", together="max"),
    _gauge(
        "penstock_bucket_tenure_left_seconds",
        "For how long messages are handed out if no heartbeat arrives any more; 2 when one has just arrived.",
        together="min",
    ),
    _counter("penstock_bucket_claims_total", "Shards that were claimed, by what became of it.", ("outcome",)),
    _counter("penstock_bucket_handed_over_total", "Shards that were handed over to other brokers."),
    _counter("penstock_bucket_lost_total", "Shards that other brokers have taken over from this one."),
    _gauge("penstock_bucket_shard_epoch", "How often a shard that is here had an owner.", ("shard",), together="max"),
    # The last start.
    _gauge("penstock_recovery_seconds", "How long it took to open the data directory.", together="max"),
    _gauge("penstock_recovery_journal_bytes", "How much of the journal was read for that."),
    _gauge("penstock_recovery_messages", "How many messages were found in it."),
    _gauge("penstock_recovery_torn_bytes", "The length of an unacknowledged write that was cut off."),
    # The server.
    _gauge("penstock_connections", "Connections that are open.", ("port",)),
    _counter("penstock_connections_opened_total", "Connections that were ever opened.", ("port",)),
    _histogram("penstock_request_seconds", "From a request to its reply; receiving may wait on purpose.", _REQUEST),
    _counter("penstock_request_failures_total", "Requests that were answered with an error.", _REQUEST),
    _counter(
        "penstock_peers_refused_total",
        "Connections that claimed to be of a member of this cluster, and could not prove it.",
    ),
    _histogram(
        "penstock_event_loop_delay_seconds", "How late the event loop was for an appointment four times a second."
    ),
    # The process.
    _gauge("penstock_process_resident_bytes", "Memory that the process takes."),
    _counter("penstock_process_cpu_seconds_total", "Processor time, of the user and of the system."),
    _gauge("penstock_process_open_files", "File descriptors in use."),
    _gauge("penstock_process_threads", "Threads of Python."),
    _gauge("penstock_scrape_seconds", "How long making the last answer to a scrape took.", together="max"),
)

METRICS = {metric.name: metric for metric in _METRICS}
"""All metrics by their names, in the order in which they are shown."""
