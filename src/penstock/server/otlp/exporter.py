"""Sends the traces of messages to a collector, from a thread that follows the two logs behind everybody else.

The logs are its buffer: while the collector is away, nothing is read and nothing piles up but one batch. When it is
back, what happened meanwhile is read and sent; if that is too much, the oldest is passed over and counted. Publishing
pays for noting which logs have something new, and nothing else; the thread rests four times as long as it works.

Traces begin with the server, and each span is taken up once: what a crash interrupts is not sent. A batch that a
collector took without being able to say so is sent again; its spans have the same ids as before.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator

from penstock.log.partition_log import Log
from penstock.model.errors import InvalidArgument
from penstock.server.otlp.lives import Lives
from penstock.server.otlp.posting import Collector
from penstock.server.otlp.spans import Contexts, Span
from penstock.server.settings.options import ServerConfig
from penstock.shard.shard import Shard
from penstock.views.changes import Changes, Stretch

_GATHER_S = 1.0
_BATCH_SPANS = 1000
_BEHIND_SPANS = 200_000  # how far it may be behind, in spans, as far as records of the logs tell their number
_PERCENT_MIN = 10  # of a smaller share that many records are allowed for, too: some come with sampled traces
_RESTS = 4.0
_REST_MAX_S = 1.0
_TIMEOUT_S = 10.0
_RETRY_S, _RETRY_MAX_S = 0.5, 30.0
_STOP_S = 5.0
_QUIET_S = 60.0
_TOO_LATE = "the collector did not answer before the server stopped"
_log = logging.getLogger("penstock.server.otlp")


class TraceExporter:
    """Exports from `start` to `stop`; `exported` and `dropped` count spans."""

    def __init__(self, shard: Shard, config: ServerConfig) -> None:
        if config.otlp_endpoint is None:
            raise InvalidArgument("there is no otlp_endpoint to send traces to")
        try:
            from penstock.server.otlp.encoding import Encoder
        except ImportError as error:
            raise InvalidArgument(
                f"otlp_endpoint needs the extra otel: pip install 'penstock[otel]' ({error})"
            ) from error
        self._shard = shard
        self._collector = Collector(config.otlp_endpoint)
        self._encoder = Encoder(shard.broker_id.hex())
        self._changes = Changes(shard, _BEHIND_SPANS * 100 // max(config.otlp_percent, _PERCENT_MIN))
        self._lives = Lives(shard, Contexts(shard.broker_id, config.otlp_percent))
        self._thread = threading.Thread(target=self._run, name="penstock-otlp", daemon=True)
        self._stopping = threading.Event()
        self._batch: list[Span] = []
        self._rested_s = 0.0
        self._complained_s: float | None = None
        self._away = False  # whether the collector did not answer when it was last asked
        self._told_away = False
        self.exported = 0
        """Spans that the collector has taken."""
        self.dropped = 0
        """Spans, and records of the logs that would have been some, that it never gets."""

    def start(self) -> None:
        """Begin with what is committed from now on."""
        self._changes.follow()
        self._thread.start()

    async def stop(self) -> None:
        """Send what happened until now, if the collector takes it within a few seconds; the broker is still open."""
        if self._thread.ident is None:
            return
        self._stopping.set()
        self._changes.noticed.set()
        await asyncio.to_thread(self._thread.join, _STOP_S)
        if self._thread.is_alive():
            self._collector.give_up()
            await asyncio.to_thread(self._thread.join, 1.0)

    # In the thread.

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._changes.noticed.wait()
            self._stopping.wait(_GATHER_S)
            self._export_news()
        try:
            self._shard.flush()  # what nobody waits for, such as leases given back by those who went
        except Exception as error:  # noqa: BLE001 - the disk failed: what is known until now is sent
            _log.debug("the last events are not exported: %s", error)
        self._changes.unfollow()
        self._export_news()
        self._drop(self._lives.open, "deliveries were under way when the server stopped")

    def _export_news(self) -> None:
        news = self._changes.take()
        if news.deleted:
            self._lives.prune(news.deleted)
        if news.passed_over:
            self._drop(news.passed_over, "more is happening than can be exported: a smaller otlp_percent would help")
        for stretch in news.stretches:
            if self._hopeless:
                self._drop(stretch.end - stretch.start, _TOO_LATE)
                continue
            try:
                self._export(stretch, news.committed_us)
            except Exception as error:  # noqa: BLE001 - whatever it is, it must not end the export of all others
                self._drop(stretch.end - stretch.start, f"{stretch.log.topic.name} could not be followed: {error!r}")
        self._send()
        lost, self._lives.lost = self._lives.lost, 0
        self._drop(lost, "the ends of deliveries were not seen")

    def _export(self, stretch: Stretch, committed_us: dict[tuple[Log, int], int]) -> None:
        for spans in self._spans(stretch, committed_us):
            if self._hopeless:
                self._drop(stretch.end - stretch.start, _TOO_LATE)  # at most so many
                return
            for span in spans:
                self._batch.append(span)
                if len(self._batch) >= _BATCH_SPANS:
                    self._send()
            self._rest()

    def _spans(self, stretch: Stretch, committed_us: dict[tuple[Log, int], int]) -> Iterator[list[Span]]:
        log, start, end, passed_over = stretch
        if log.table == "messages":
            return self._lives.published(log, start, end, committed_us)
        if passed_over:
            self._lives.forget(log)
        return self._lives.happened(log, start, end)

    @property
    def _hopeless(self) -> bool:
        """Whether the server is stopping and the collector does not answer."""
        return self._away and self._stopping.is_set()

    def _send(self) -> None:
        """Send the batch, as often as it takes; once, and no more after a failure, when the server is stopping."""
        batch, self._batch = self._batch, []
        if not batch:
            return
        if self._hopeless:
            self._drop(len(batch), _TOO_LATE)
            return
        try:
            body = self._encoder.encode(batch)
        except (ValueError, TypeError) as error:
            self._drop(len(batch), f"spans could not be encoded: {error}")
            return
        retry_s = _RETRY_S
        while True:
            last = self._stopping.is_set()
            answer = self._collector.post(body, _TIMEOUT_S)
            if answer.accepted:
                self._taken(len(batch), answer.body)
                return
            self._away = answer.again
            if last or not answer.again:
                self._drop(len(batch), answer.reason)
                return
            self._told_away = self._complain(answer.reason) or self._told_away
            self._stopping.wait(max(retry_s, answer.wait_s))
            retry_s = min(retry_s * 2, _RETRY_MAX_S)

    def _taken(self, count: int, reply: bytes) -> None:
        rejected, reason = self._encoder.rejected(reply)
        rejected = max(0, min(rejected, count))
        self.exported += count - rejected
        self._drop(rejected, f"the collector rejected some: {reason}")
        if self._told_away:
            _log.info("traces are exported again", extra={"exported": self.exported, "dropped": self.dropped})
        self._away = self._told_away = False

    def _rest(self) -> None:
        """Leave the processor to others for longer than it was used here."""
        worked_s = time.thread_time() - self._rested_s
        self._stopping.wait(min(worked_s * _RESTS, _REST_MAX_S))
        self._rested_s = time.thread_time()

    def _drop(self, count: int, reason: str) -> None:
        if count:
            self.dropped += count
            self._complain(reason)

    def _complain(self, reason: str) -> bool:
        """Say what is wrong, once in a while; whether it was said."""
        now_s = time.monotonic()
        if self._complained_s is not None and now_s - self._complained_s < _QUIET_S:
            return False
        self._complained_s = now_s
        _log.warning("traces are not exported: %s", reason, extra={"dropped": self.dropped})
        return True
