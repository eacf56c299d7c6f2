"""How often a server syncs for each message, seen from outside by strace: in a short run of its own, after all others.

A write to a file that was opened to sync each write counts as well.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import monotonic, sleep

from benchmarks.peers.plans import Consume, Publish
from benchmarks.peers.processes import NotStarted
from benchmarks.peers.processor import tree_of
from benchmarks.peers.systems.system import RAW, System

_CALLS = "fsync,fdatasync,sync_file_range,msync,write,pwrite64,writev,pwritev,pwritev2"
_CALL = re.compile(r"\b(\w+)\((\d*)")
_SYNCS = ("fsync", "fdatasync", "sync_file_range", "msync")
_ATTACHED_S = 10.0
_SECONDS = 0.5
_MESSAGES = 300


def syncs_of(system: System, directory: Path) -> dict[str, float]:
    """Syncs for each message, one at a time: published, and received and acked."""
    directory.mkdir()
    with system.start(directory) as peer:
        raw = peer.drivers[RAW]
        peer.make(["seen"])
        raw.publish(Publish(), ["seen"], 0.1)
        published = _seen(peer.pid, directory, lambda: raw.publish(Publish(), ["seen"], _SECONDS).messages)
        peer.fill("seen", 1, _MESSAGES, 10.0)
        raw.consume(Consume(), "seen", 1, 0.1)
        received = _seen(peer.pid, directory, lambda: raw.consume(Consume(), "seen", _MESSAGES // 2, _SECONDS).messages)
    return {"publish": published, "receive": received}


def _seen(pid: int, directory: Path, run: Callable[[], int]) -> float:
    """The syncs of a server for each message, while something runs."""
    trace = directory / "strace.txt"
    with _tracing(pid, trace):
        messages = run()
        synced = _descriptors_that_sync(pid)
    return count_syncs(trace.read_text(errors="replace").splitlines(), synced) / messages


@contextlib.contextmanager
def _tracing(pid: int, trace: Path) -> Iterator[None]:
    pids = [word for found in sorted(tree_of(pid)) for word in ("-p", str(found))]
    command = ["strace", "-f", "-qq", "-e", f"trace={_CALLS}", "-e", "signal=none", "-o", str(trace), *pids]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = monotonic() + _ATTACHED_S
        while "TracerPid:\t0\n" in Path(f"/proc/{pid}/status").read_text():
            if monotonic() > until or process.poll() is not None:
                raise NotStarted("strace could not attach to the server")
            sleep(0.05)
        sleep(0.3)  # its threads and children follow
        yield
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(10)
        finally:
            process.kill()
            process.wait()


def count_syncs(lines: Iterable[str], synced: set[int]) -> int:
    """The calls in a trace that sync: those that are for that, and writes to descriptors that sync.

    >>> count_syncs(["7 fdatasync(3) = 0", "7 fsync(4 <unfinished ...>", "7 <... fsync resumed>) = 0"], set())
    2
    >>> count_syncs(["7 write(3, 'x', 1) = 1", "7 pwrite64(5, 'fsync(5)', 8, 0) = 8"], {5})
    1
    """
    count = 0
    for line in lines:
        found = _CALL.search(line)
        if found is not None and (found[1] in _SYNCS or (found[2] and int(found[2]) in synced)):
            count += 1
    return count


def _descriptors_that_sync(pid: int) -> set[int]:
    """The descriptors of a server whose files were opened with O_SYNC or O_DSYNC."""
    found = set()
    for process in tree_of(pid):
        with contextlib.suppress(OSError):
            for path in Path(f"/proc/{process}/fdinfo").iterdir():
                with contextlib.suppress(OSError):
                    flags = int(re.findall(r"flags:\s+(\d+)", path.read_text())[0], 8)
                    if flags & os.O_DSYNC:
                        found.add(int(path.name))
    return found
