"""A disk that stops a thread where it is, so that a directory can be copied in the middle of something."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from penstock.storage import FileStorage
from penstock.storage.files import OpenFile

_PATIENCE_S = 60.0


class Stop:
    """Makes one thread wait where it opens or creates certain files, as soon as something is so."""

    def __init__(self, thread: str, prefix: str, is_so: Callable[[], bool]) -> None:
        self._thread, self._prefix, self._is_so = thread, prefix, is_so
        self._reached, self._go_on = threading.Event(), threading.Event()

    def look(self, name: str) -> None:
        """Wait here, if this is the thread, the file and the time."""
        if threading.current_thread().name == self._thread and name.startswith(self._prefix) and self._is_so():
            self._reached.set()
            assert self._go_on.wait(_PATIENCE_S), f"nobody lets {self._thread} go on"

    def wait(self) -> None:
        """Return when the thread has come here."""
        assert self._reached.wait(_PATIENCE_S), f"{self._thread} never came to where it was to stop"

    def release(self) -> None:
        """Let the thread go on."""
        self._go_on.set()


class StoppableStorage(FileStorage):
    """A directory on whose files threads can be stopped."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.stops: list[Stop] = []

    def create(self, name: str) -> OpenFile:
        for stop in self.stops:
            stop.look(name)
        return super().create(name)

    def open(self, name: str) -> OpenFile:
        for stop in self.stops:
            stop.look(name)
        return super().open(name)

    def stop(self, thread: str, prefix: str, is_so: Callable[[], bool] = lambda: True) -> Stop:
        """Have a thread stop at files whose names begin so."""
        self.stops.append(Stop(thread, prefix, is_so))
        return self.stops[-1]


def until(is_so: Callable[[], object], what: str) -> None:
    """Return when something has happened that another thread does."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline_s, f"it did not happen: {what}"
        time.sleep(0.01)


def journal_files(data: Path) -> list[Path]:
    """The journal files of a directory, oldest first."""
    return sorted(data.glob("journal/*.journal"))
