"""For development: a worker in its own process, which is restarted when a source file changes."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import monotonic, sleep

from penstock.worker.running import on_signals

_TICK_S = 0.1
_LOOK_S = 0.5
_LEAVE_S = 15.0
_SKIPPED = ("__pycache__", "node_modules", "site-packages")

Files = dict[str, tuple[int, int]]


class Reloader:
    """Keeps a command running, and restarts it when a source file has changed."""

    def __init__(
        self, command: Sequence[str], sources: Sequence[Path], grace_s: float, say: Callable[[str], None]
    ) -> None:
        self._command = command
        self._sources = sources
        self._patience_s = grace_s + _LEAVE_S
        self._say = say
        self._came: list[int] = []

    def run(self) -> int:
        """Run until a signal comes or the command succeeds; its exit code."""
        uncached = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}  # cached bytecode misses changes within a second
        with on_signals(self._came.append, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            while True:
                before = find_files(self._sources)
                child = subprocess.Popen(self._command, env=uncached, start_new_session=True)  # we pass signals on
                changed = self._watch(child, before)
                if changed is None:
                    return self._stop(child, self._came[0] if self._came else signal.SIGTERM)
                self._say(f"{os.path.relpath(changed)} has changed: starting again")
                code = self._stop(child, signal.SIGTERM)
                if self._came:
                    return code

    def _watch(self, child: subprocess.Popen[bytes], before: Files) -> str | None:
        """Wait until a file has changed; None if the command has ended or a signal came."""
        failed, look_s = False, monotonic() + _LOOK_S
        while not self._came:
            sleep(_TICK_S)
            if not failed and (code := child.poll()) is not None:
                if code == 0:
                    return None
                failed = True
                self._say(f"the worker ended with exit code {code}: it starts again when a file has changed")
            if monotonic() >= look_s:
                if changes := sorted(dict(before.items() ^ find_files(self._sources).items())):
                    return changes[0]
                look_s = monotonic() + _LOOK_S
        return None

    def _stop(self, child: subprocess.Popen[bytes], number: int) -> int:
        """Stop the command gracefully, or at once if another signal comes; its exit code."""
        heard, late_s = len(self._came), monotonic() + self._patience_s
        child.send_signal(number)
        while child.poll() is None:
            sleep(_TICK_S)
            if len(self._came) > heard:
                heard = len(self._came)
                child.send_signal(self._came[-1])
            if monotonic() > late_s:
                child.kill()
        return child.returncode if child.returncode >= 0 else 128 - child.returncode


def sources_of(module: str) -> list[Path]:
    """What to watch for a worker of this module: the current directory, and the package if it is elsewhere."""
    here = Path.cwd()
    found = importlib.util.find_spec(module.partition(".")[0])
    if found is None:
        return [here]
    places = found.submodule_search_locations or ([found.origin] if found.has_location and found.origin else [])
    return [here, *(path for path in map(Path, places) if not path.resolve().is_relative_to(here))]


def find_files(sources: Sequence[Path]) -> Files:
    """Every Python file in these places, with its time and size; virtual environments are left out."""
    found: Files = {}
    for path in (path for source in sources for path in _python_files(source)):
        try:
            status = os.stat(path)
        except OSError:
            continue  # it was removed meanwhile
        found[path] = (status.st_mtime_ns, status.st_size)
    return found


def _python_files(source: Path) -> Iterator[str]:
    if source.is_file():
        yield str(source)
    for folder, folders, files in os.walk(source):
        if "pyvenv.cfg" in files:
            folders.clear()
            continue
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _SKIPPED]
        yield from (os.path.join(folder, name) for name in files if name.endswith(".py"))
