"""The threads of a shard beside the one that commits: one keeps time, one settles and keeps house."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from penstock.model.errors import BrokerClosed, PenstockError
from penstock.shard.operations.burying import bury
from penstock.shard.shard import Shard
from penstock.shard.upkeep.retention import retain
from penstock.shard.upkeep.segment_process import SegmentProcess
from penstock.shard.upkeep.settling import Settler, tidy

_log = logging.getLogger("penstock")
_HOUSEKEEPING_S = 5.0
_RETENTION_S = 60.0
_TICK_S = 0.001
_LOOK_AGAIN_S = 0.5  # the wall clock may be set while we sleep


class Background:
    """Starts the threads, and stops them without losing anything."""

    def __init__(self, shard: Shard, segment_process: SegmentProcess | None = None) -> None:
        self.shard = shard
        self.settler = Settler(shard, segment_process)
        self._stopping = False
        self._settle_wanted = threading.Event()
        self._alarm = threading.Event()
        shard.journal.on_sealed = self._settle_wanted.set
        shard.dispatcher.wake_timer = self._alarm.set
        self._threads = [
            threading.Thread(target=self._keep_house, name="penstock-settle", daemon=True),
            threading.Thread(target=self._keep_time, name="penstock-time", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Have the threads end after they have finished what they are doing."""
        self._stopping = True
        self._settle_wanted.set()
        self._alarm.set()

    def stop(self) -> None:
        """Stop the threads after they have finished what they are doing."""
        self.end()
        for thread in self._threads:
            thread.join()

    def _keep_time(self) -> None:
        """Expire leases and make delayed messages ready when they are due."""
        shard = self.shard
        while True:
            wait_s = _LOOK_AGAIN_S
            try:
                with shard.lock:
                    next_s = shard.keep_time()
                    self._alarm.clear()  # it is set with the lock held, so a later alarm is not missed
                if shard.dispatcher.dying:
                    bury(shard)
                wait_s = min(wait_s, next_s)
            except PenstockError as error:
                _log.warning("what is due will be tried again: %s", error)
            except Exception:  # noqa: BLE001 - not even a bug may end the thread
                _log.exception("keeping time failed; it will be tried again")
            if self._stopping:
                return
            self._alarm.wait(wait_s)
            if wait_s < _TICK_S:
                time.sleep(_TICK_S)  # messages that fall due together are handled together, and others get the lock

    def _keep_house(self) -> None:
        retained_s = self.shard.clock.monotonic_s()
        if self.shard.untidy:
            self._attempt("tidying", lambda: tidy(self.shard))
        self._attempt("staging", self.shard.staging.keep_house)
        while True:
            self._settle_wanted.wait(_HOUSEKEEPING_S)
            self._settle_wanted.clear()
            if self._stopping:
                return
            self._attempt("settling", self.settler.settle)
            if self.shard.clock.monotonic_s() - retained_s >= _RETENTION_S:
                self._attempt("retention", lambda: retain(self.shard))
                self._attempt("staging", self.shard.staging.keep_house)
                retained_s = self.shard.clock.monotonic_s()

    def _attempt(self, what: str, work: Callable[[], object]) -> None:
        """Do it; a failure is logged, and neither ends the thread nor prevents the rest."""
        try:
            work()
        except BrokerClosed:
            pass
        except Exception as error:  # noqa: BLE001 - not even a bug may end the thread
            self.shard.meters.upkeep_failures[what] += 1
            if isinstance(error, PenstockError | OSError):
                _log.warning("%s will be tried again: %s", what, error)
            else:
                _log.exception("%s failed; it will be tried again", what)
