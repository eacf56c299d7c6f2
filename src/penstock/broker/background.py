"""The threads of a broker: one commits, one settles and keeps house."""

from __future__ import annotations

import logging
import threading

from penstock.broker.engine import Engine
from penstock.broker.retention import retain
from penstock.broker.settling import Settler
from penstock.model.errors import PenstockError

_log = logging.getLogger("penstock")
_HOUSEKEEPING_S = 5.0
_RETENTION_S = 60.0


class Background:
    """Starts the threads, and ends them without losing anything."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.settler = Settler(engine)
        self._stopping = False
        self._flush_wanted = threading.Event()
        self._settle_wanted = threading.Event()
        engine.journal.wake_flusher = self._flush_wanted.set
        engine.journal.on_sealed = self._settle_wanted.set
        self._threads = [
            threading.Thread(target=self._commit, name="penstock-commit", daemon=True),
            threading.Thread(target=self._keep_house, name="penstock-settle", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End both threads; what they were doing is finished first."""
        self._stopping = True
        self._flush_wanted.set()
        self._settle_wanted.set()
        for thread in self._threads:
            thread.join()

    def _commit(self) -> None:
        config, journal = self._engine.config, self._engine.journal
        interval_s = config.sync_interval if config.sync == "interval" else None
        while not self._stopping:
            self._flush_wanted.wait(interval_s)
            self._flush_wanted.clear()
            journal.flush()
            if interval_s is not None:
                journal.sync()

    def _keep_house(self) -> None:
        retained_s = self._engine.clock.monotonic_s()
        while True:
            self._settle_wanted.wait(_HOUSEKEEPING_S)
            self._settle_wanted.clear()
            if self._stopping:
                return
            try:
                self.settler.settle()
                if self._engine.clock.monotonic_s() - retained_s >= _RETENTION_S:
                    retain(self._engine)
                    retained_s = self._engine.clock.monotonic_s()
            except (PenstockError, OSError) as error:
                _log.warning("settling will be tried again: %s", error)
            except Exception:  # noqa: BLE001 - a bug must not end the thread
                _log.exception("settling failed; it will be tried again")
