"""What a pipeline asks the server before its queries are planned, and what it reports to it.

Reports are sent from a thread of their own: a server that is away holds up nobody.
"""

from __future__ import annotations

import logging
import threading
import time

from msgspec.structs import replace

from penstock.model.errors import Forbidden, PenstockError, TopicExists
from penstock.model.info import TopicInfo
from penstock.model.pipelines import PipelineReport
from penstock.spark.jobs.place import Place
from penstock.spark.pipelines.sinks import Limits
from penstock.spark.pipelines.spec import Pipeline

_log = logging.getLogger("penstock.spark")
_AT_LEAST_S = 10.0
_AT_MOST_S = 0.5
_AGAIN_S = 2.0
_LAST_WORDS_S = 5.0


class Reports:
    """Sends the newest report of each pipeline, and again before the server takes it for silent."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._known: dict[str, PipelineReport] = {}
        self._news: set[str] = set()
        self._woken, self._closed = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="penstock-reports", daemon=True)
        self._thread.start()

    def put(self, report: PipelineReport) -> None:
        """Have this sent soon, in place of the one before."""
        with self._lock:
            self._known[report.name] = report
            self._news.add(report.name)
        self._woken.set()

    def close(self) -> None:
        """Send what is left, if the server takes it."""
        self._closed.set()
        self._woken.set()
        self._thread.join(_LAST_WORDS_S)

    def _work(self) -> None:
        while True:
            self._woken.wait(_AT_LEAST_S)
            self._woken.clear()
            closed = self._closed.is_set()
            with self._lock:
                sent = [self._known[name] for name in sorted(self._news or self._known)]
                self._news = set()
            taken = self._send(sent)
            if closed:
                return
            self._closed.wait(_AT_MOST_S if taken else _AGAIN_S)

    def _send(self, reports: list[PipelineReport]) -> bool:
        try:
            client = self._place.client("reporting")
            for report in reports:
                client.report_pipeline(replace(report, time_us=time.time_ns() // 1000))
        except (PenstockError, OSError) as error:
            _log.debug("the server was not told of %d pipelines: %s", len(reports), error)
            with self._lock:
                self._news |= {report.name for report in reports}
            self._woken.set()
            return False
        return True


def missing_topics(pipeline: Pipeline, place: Place) -> list[str]:
    """The topics that a pipeline reads and that are not there."""
    read = {name for source in pipeline.sources.values() for name in (source.topic, source.events) if name is not None}
    return sorted(read - set(_topics(place)))


def _topics(place: Place) -> dict[str, TopicInfo]:
    """The topics that are there, as far as the token may know."""
    try:
        return {topic.name: topic for topic in place.client("a pipeline").topics()}
    except Forbidden:
        return {}


def make_topics(pipeline: Pipeline, place: Place) -> list[str]:
    """Make the topics that are to be read; who may not leaves it to whoever publishes first."""
    made = []
    for name in missing_topics(pipeline, place):
        try:
            place.client("a pipeline").create_topic(name)
            made.append(name)
        except (Forbidden, TopicExists):
            continue
    return made


def limits_of(pipeline: Pipeline, place: Place) -> dict[str, Limits]:
    """What the broker takes for each topic that a pipeline writes to."""
    client = place.client("a pipeline")
    delays = {name: topic.config.max_delay for name, topic in _topics(place).items()}
    written = {sink.topic for sink in pipeline.sinks.values() if sink.topic is not None}
    written |= {source.topic for source in pipeline.sources.values() if source.topic is not None}
    taken, default = client.limits, Limits()
    return {
        name: Limits(
            taken.max_value_bytes,
            taken.max_key_bytes,
            taken.max_headers_bytes,
            delays.get(name, default.delay_s),
        )
        for name in written
    }
