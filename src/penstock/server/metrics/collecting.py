"""From meters and state to the metrics of the catalogue, at the moment somebody asks."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from penstock.cluster.gathering import recovery
from penstock.model.histograms import Histogram
from penstock.model.pipelines import PipelineState, QueryReport
from penstock.server.metrics.catalogue import METRICS
from penstock.server.metrics.member import MemberMeter
from penstock.server.metrics.process import cpu_seconds, open_files, resident_bytes
from penstock.shard.metering.meters import COUNTED
from penstock.shard.metering.totals import Totals
from penstock.storage.counted import BucketMeter
from penstock.version import __version__
from penstock.views.figures import Figures, GroupFigures, TopicFigures, take_figures
from penstock.views.info import journal_size

if TYPE_CHECKING:
    from penstock.cluster.shards import Shards
    from penstock.server.metrics.metrics import Metrics


class _Page:
    """The metrics of the catalogue, being filled."""

    def __init__(self) -> None:
        self.metrics = {
            name: Metric(name.removesuffix("_total") if spec.kind == "counter" else name, spec.help, spec.kind)
            for name, spec in METRICS.items()
        }

    def put(self, name: str, value: float, *labels: str) -> None:
        """The value of a counter or a gauge, with the values of its labels in order."""
        named = dict(zip(METRICS[name].labels, labels, strict=True))
        self.metrics[name].samples.append(Sample(name, named, value))

    def put_histogram(self, name: str, histogram: Histogram, *labels: str) -> None:
        """All samples of a histogram."""
        named = dict(zip(METRICS[name].labels, labels, strict=True))
        counts, total = list(histogram.counts), 0
        samples = self.metrics[name].samples
        for bound, count in zip((*map(repr, map(float, histogram.bounds)), "+Inf"), counts, strict=True):
            total += count
            samples.append(Sample(f"{name}_bucket", {**named, "le": bound}, total))
        samples.append(Sample(f"{name}_sum", named, histogram.sum))
        samples.append(Sample(f"{name}_count", named, total))


def collect(metrics: Metrics) -> Iterable[Metric]:
    """Every metric of the catalogue, in its order."""
    page, shards = _Page(), metrics.shards
    figures, meters = take_figures(shards), Totals.of([shard.meters for shard in shards])
    now_us = shards.clock.wall_us()
    page.put("penstock_start_time_seconds", metrics.opened_s)
    _put_broker(page, shards, figures, metrics.broker_id())
    for topic, shown in figures.topics.items():
        _put_topic(page, topic, shown)
        for group, of_group in shown.groups.items():
            _put_group(page, topic, group, of_group, now_us)
    _put_pipelines(page, metrics)
    _put_latencies(page, meters)
    _put_storage(page, shards, meters)
    if metrics.bucket is not None:
        _put_bucket(page, metrics.bucket)
    if metrics.member is not None:
        _put_member(page, metrics.member, shards)
    _put_server(page, metrics)
    page.put("penstock_process_resident_bytes", resident_bytes())
    page.put("penstock_process_cpu_seconds_total", cpu_seconds())
    page.put("penstock_process_open_files", open_files())
    page.put("penstock_process_threads", threading.active_count())
    page.put("penstock_scrape_seconds", metrics.scrape_s)
    return page.metrics.values()


def _put_broker(page: _Page, shards: Shards, figures: Figures, broker_id: str) -> None:
    page.put("penstock_build_info", 1, __version__, broker_id, shards.config.sync)
    page.put("penstock_frozen", any(shard.frozen is not None for shard in shards))
    page.put("penstock_topics", figures.topic_count)
    page.put("penstock_partitions", figures.partition_count)
    page.put("penstock_groups", figures.group_count)
    report = recovery([shard.recovery for shard in shards])
    page.put("penstock_recovery_seconds", report.seconds)
    page.put("penstock_recovery_journal_bytes", report.journal_bytes)
    page.put("penstock_recovery_messages", report.messages)
    page.put("penstock_recovery_torn_bytes", report.torn_bytes)


def _put_topic(page: _Page, topic: str, shown: TopicFigures) -> None:
    page.put("penstock_topic_published_total", shown.published, topic)
    page.put("penstock_topic_published_bytes_total", shown.published_bytes, topic)
    page.put("penstock_topic_messages", shown.messages, topic)
    page.put("penstock_topic_journal_bytes", shown.journal_bytes, topic)
    page.put("penstock_topic_segments", shown.segments, topic)
    page.put("penstock_topic_segment_bytes", shown.segment_bytes, topic)


def _put_group(page: _Page, topic: str, group: str, shown: GroupFigures, now_us: int) -> None:
    for what, count in zip(COUNTED, shown.counts, strict=True):
        page.put(f"penstock_group_{what}_total", count, topic, group)
    age_s = 0.0 if shown.oldest_us is None else max(0, now_us - shown.oldest_us) / 1_000_000
    page.put("penstock_group_acked_bytes_total", shown.acked_bytes, topic, group)
    page.put("penstock_group_end_to_end_seconds_total", shown.end_to_end_s, topic, group)
    standing = shown.standing
    page.put("penstock_group_lag", standing.lag, topic, group)
    page.put("penstock_group_leased", standing.leased, topic, group)
    page.put("penstock_group_retrying", standing.retrying, topic, group)
    page.put("penstock_group_oldest_unacked_seconds", age_s, topic, group)
    page.put("penstock_group_members", shown.members, topic, group)
    page.put("penstock_group_lost", standing.lost, topic, group)
    for setting, value in shown.settings.shown().items():
        page.put("penstock_group_setting", value, topic, group, setting)
    if standing.is_indexed:
        page.put("penstock_group_ready", standing.ready, topic, group)
        page.put("penstock_group_delayed", standing.delayed, topic, group)


def _put_pipelines(page: _Page, metrics: Metrics) -> None:
    """All of them by state, and so many of them and of their queries by name: those that reported first."""
    known = metrics.pipelines.listed()
    states = Counter(report.state for report in known)
    for state in PipelineState:
        page.put("penstock_pipelines", states[state], state)
    named = known[: metrics.named_max]
    for report in named:
        up = report.state in (PipelineState.STARTING, PipelineState.RUNNING)
        page.put("penstock_pipeline_up", up, report.name)
        page.put("penstock_pipeline_restarts_total", report.restarts, report.name)
        for state in PipelineState:
            page.put("penstock_pipeline_state", report.state is state, report.name, state)
    queries = ((report.name, query) for report in named for query in report.queries)
    for pipeline, query in itertools.islice(queries, metrics.named_max):
        _put_query(page, pipeline, query)


def _put_query(page: _Page, pipeline: str, query: QueryReport) -> None:
    page.put("penstock_pipeline_batches_total", query.batches, pipeline, query.name)
    page.put("penstock_pipeline_rows_total", query.rows, pipeline, query.name)
    page.put("penstock_pipeline_batch_seconds", query.batch_seconds, pipeline, query.name)
    page.put("penstock_pipeline_state_rows", query.state_rows, pipeline, query.name)
    if query.lag is not None:
        page.put("penstock_pipeline_lag", query.lag, pipeline, query.name)


def _put_latencies(page: _Page, meters: Totals) -> None:
    page.put_histogram("penstock_publish_seconds", meters.publish_s)
    page.put_histogram("penstock_fsync_seconds", meters.fsync_s)
    for cause, seconds in meters.commit_s.items():
        page.put_histogram("penstock_commit_seconds", seconds, cause)
    page.put_histogram("penstock_commit_bytes", meters.commit_bytes)
    page.put_histogram("penstock_commit_messages", meters.commit_messages)
    page.put_histogram("penstock_fetch_seconds", meters.fetch_s)
    page.put_histogram("penstock_content_read_seconds", meters.content_read_s)
    page.put_histogram("penstock_end_to_end_seconds", meters.end_to_end_s)
    page.put_histogram("penstock_due_lateness_seconds", meters.due_lateness_s)


def _put_storage(page: _Page, shards: Shards, meters: Totals) -> None:
    journals, config = [journal_size(shard) for shard in shards], shards.config
    page.put("penstock_journal_bytes", sum(journal.size_bytes for journal in journals))
    page.put("penstock_journal_limit_bytes", len(shards) * config.max_unsettled_bytes)
    page.put("penstock_journal_files", sum(journal.files for journal in journals))
    page.put("penstock_journal_unwritten_bytes", sum(journal.unwritten_bytes for journal in journals))
    page.put("penstock_journal_commits_total", meters.commits)
    page.put("penstock_journal_refused_total", meters.refused_commits)
    page.put("penstock_journal_written_bytes_total", meters.written_bytes)
    page.put_histogram("penstock_settle_seconds", meters.settle_s)
    page.put("penstock_settled_segments_total", meters.settled_segments)
    page.put("penstock_settled_bytes_total", meters.settled_bytes)
    page.put("penstock_carried_bytes_total", meters.carried_bytes)
    for action, count in meters.retained.items():
        page.put("penstock_retention_segments_total", count, action)
    page.put_histogram("penstock_checkpoint_seconds", meters.checkpoint_s)
    for work, count in meters.upkeep_failures.items():
        page.put("penstock_upkeep_failures_total", count, work)
    page.put("penstock_disk_free_bytes", shards.storage.free_bytes())
    page.put("penstock_disk_reserved_bytes", config.min_free_bytes)


def _put_bucket(page: _Page, bucket: BucketMeter) -> None:
    for (operation, outcome), count in list(bucket.requests.items()):
        page.put("penstock_bucket_requests_total", count, operation, outcome)
    page.put("penstock_bucket_retries_total", bucket.retries)
    for (direction, kind), size_bytes in list(bucket.bytes.items()):
        page.put("penstock_bucket_bytes_total", size_bytes, direction, kind)
    for operation, times in list(bucket.request_s.items()):
        page.put_histogram("penstock_bucket_request_seconds", times, operation)
    page.put("penstock_bucket_cache_hits_total", bucket.cache_hits)
    page.put("penstock_bucket_cache_misses_total", bucket.cache_misses)
    page.put("penstock_bucket_cache_bytes", bucket.cache_bytes)


def _put_member(page: _Page, member: MemberMeter, shards: Shards) -> None:
    page.put("penstock_bucket_members", member.members())
    page.put("penstock_bucket_tenure_left_seconds", member.tenure_left_s())
    for outcome, count in list(member.claims.items()):
        page.put("penstock_bucket_claims_total", count, outcome)
    page.put("penstock_bucket_handed_over_total", member.handed_over)
    page.put("penstock_bucket_lost_total", member.lost)
    for number, shard in shards.items():
        page.put("penstock_bucket_shard_epoch", shard.storage.epoch, str(number))


def _put_server(page: _Page, metrics: Metrics) -> None:
    for port, meter in metrics.ports.items():
        page.put("penstock_connections", meter.open, port)
        page.put("penstock_connections_opened_total", meter.opened, port)
        for operation, times in list(meter.requests.items()):
            page.put_histogram("penstock_request_seconds", times, port, operation)
        for operation, count in list(meter.failures.items()):
            page.put("penstock_request_failures_total", count, port, operation)
    page.put("penstock_peers_refused_total", metrics.peers_refused)
    page.put_histogram("penstock_event_loop_delay_seconds", metrics.loop_delay.delays_s)
