"""Reports to the server, from a thread of their own: a server that is away holds up nobody."""

from __future__ import annotations

import logging
import threading
import time

from msgspec.structs import replace

from penstock.model.errors import PenstockError
from penstock.model.pipelines import PipelineReport
from penstock.spark.jobs.place import Place

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
