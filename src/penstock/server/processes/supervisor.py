"""The parent of a server's processes: forks them, watches them, deals shards out to them, and stops them in order.

It is one thread that waits at sockets, and opens no shard itself: so it can fork whenever it needs to, and a new
process is there at once, with everything loaded. What a child does not say within three seconds it is killed for; what
it had is opened by its successor. When the supervisor itself is killed, its children notice that nobody is at the
other end any more, and stop in order.

| what ends | what is left | what follows |
| --- | --- | --- |
| a process, at any moment | shards with no owner; their locks are free | its successor opens them |
| a process that was letting a shard go | the same | the process that was to have it opens it |
| a process that hangs | its shards, held | it is killed after `HANG_S`, then as above |
| the supervisor | processes without one | they stop, each as by SIGTERM |
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import selectors
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from penstock.model.errors import InvalidArgument, PenstockError
from penstock.model.processes import ClusterInfo
from penstock.server.access.starting import StartRefused
from penstock.server.access.tls import server_context
from penstock.server.processes import orders
from penstock.server.processes.children import OFTEN, Child, divided
from penstock.server.processes.placing import Placing
from penstock.server.processes.ports import number_of, reserve
from penstock.server.server import renewed
from penstock.server.settings.options import ServerConfig
from penstock.storage import FileStorage

_log = logging.getLogger("penstock.server")
HANG_S = 3.0
"""A process that says nothing for so long is killed."""
DRAIN_S = 0.5
"""How long a shard that is to move waits for its messages to be finished, handing out no more."""
_LOOK_S = 0.1
_OFTEN_S = 60.0  # in which so many ends of a process are told loudly
_PAUSE_S = 5.0  # before one that ends so often is started again
_IMPATIENT_S = 0.5  # a second signal later than this after the first one is meant as such
_PORTS = ("native", "http", "line")

RunChild = Callable[[Child, ServerConfig], NoReturn]


@dataclass(slots=True)
class _Pending:
    """A wish of somebody who waits until it is fulfilled."""

    child: Child
    number: int
    shard: int


class Supervisor:
    """Runs the processes of one server."""

    def __init__(self, config: ServerConfig, run_child: RunChild, read_again: Callable[[], ServerConfig]) -> None:
        self._run_child, self._read_again = run_child, read_again
        self._root = FileStorage(config.data_dir, config.broker.readable_by)
        self.shards = divided(self._root, config)
        self._selector = selectors.DefaultSelector()
        self._sockets = Path(tempfile.mkdtemp(prefix="penstock-"))
        self._kept: list[socket.socket] = []
        try:
            self.config = self._reserved(config)
            self.children = [
                Child(number, self._keep(config.host, 0, "native-port")) for number in range(config.processes)
            ]
        except BaseException:
            self._let_go()
            raise
        self.placing = Placing.of(self.shards, range(config.processes))
        self.addresses: dict[str, tuple[str, int]] = {}
        self._broker_id = ""
        self._pending: list[_Pending] = []
        self._told = self.placing.map({})
        self._signals: list[int] = []
        self._stop_s: float | None = None
        self._ready = False

    @property
    def sockets(self) -> Path:
        """The directory with the sockets by which processes reach one another."""
        return self._sockets

    def _reserved(self, config: ServerConfig) -> ServerConfig:
        """The configuration with the numbers of ports that were free."""
        numbers: dict[str, Any] = {
            f"{name}_port": self._keep(config.host, port, f"{name}-port")
            for name in _PORTS
            if (port := getattr(config, f"{name}_port")) is not None
        }
        return replace(config, shards=None, **numbers)

    def _keep(self, host: str, port: int, option: str) -> int:
        kept = reserve(host, port, option)
        self._kept += kept
        return number_of(kept)

    # The loop.

    def run(self, on_ready: Callable[[Supervisor], None]) -> None:
        """Serve until SIGINT or SIGTERM; raises what keeps it from starting."""
        self._listen_to_signals()
        try:
            for child in self.children:
                self._start(child)
            while not self._has_ended():
                self._step()
                if not self._ready and self._is_ready():
                    self._ready = True
                    on_ready(self)
        finally:
            self._kill_all()
            self._let_go()

    def _step(self) -> None:
        for key, _ in self._selector.select(_LOOK_S):
            if isinstance(key.data, Child):
                self._hear(key.data)
            else:
                os.read(key.fd, 4096)  # a signal has come
        now_s = time.monotonic()
        self._heed_signals(now_s)
        for child in self.children:
            self._look_after(child, now_s)
        for process, order in self.placing.orders(now_s, DRAIN_S) if self._stop_s is None else ():
            self._send(self.children[process], order)
        self._tell_map()
        self._answer_pending()

    def _is_ready(self) -> bool:
        return self.placing.is_complete and all(child.state == "up" for child in self.children)

    def _has_ended(self) -> bool:
        return self._stop_s is not None and all(child.state == "gone" for child in self.children)

    # Processes.

    def _start(self, child: Child) -> None:
        """Fork a process."""
        mine, its = orders.pair()
        gc.freeze()  # what is here is shared with the child until either writes to it
        pid = os.fork()
        if pid == 0:
            mine.close()
            child.end = its
            self._become(child)
        its.close()
        mine.settimeout(0)
        now_s = time.monotonic()
        child.end, child.pid, child.state = mine, pid, "starting"
        child.heard_s, child.since_s = now_s, time.time()
        child.restarts += 1
        self._selector.register(mine, selectors.EVENT_READ, child)

    def _become(self, child: Child) -> NoReturn:
        """What a forked process does: it keeps nothing of the supervisor but its directory, and serves."""
        self._selector.close()
        for other in self.children:
            if other is not child and other.end is not None:
                other.end.close()
        for kept in self._kept:
            kept.close()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        try:
            self._run_child(child, self.config)
        finally:
            os._exit(1)

    def _look_after(self, child: Child, now_s: float) -> None:
        if child.state == "gone":
            if self._stop_s is None and now_s >= child.start_again_s:
                self._start(child)
            return
        if now_s - child.heard_s > HANG_S:
            _log.error("process %d said nothing for %.0f s: it is killed", child.number, HANG_S, extra=child.fields)
            child.heard_s = now_s
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
        pid, status = os.waitpid(child.pid, os.WNOHANG)
        if pid:
            self._ended(child, os.waitstatus_to_exitcode(status), now_s)

    def _ended(self, child: Child, code: int, now_s: float) -> None:
        while child.end is not None and self._hear(child):
            pass  # what it said before it ended
        self._cut(child)
        child.state = "gone"
        self.placing.ended(child.number)
        self._pending = [pending for pending in self._pending if pending.child is not child]
        if self._stop_s is not None:
            return
        how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        if not self._ready:
            raise StartRefused(f"process {child.number} {how} while it started", "its log tells why")
        child.ends_s.append(now_s)
        if len(child.ends_s) == OFTEN and now_s - child.ends_s[0] < _OFTEN_S:
            child.start_again_s = now_s + _PAUSE_S
            _log.critical(
                "process %d %s, %d times in a minute: others get its shards, and it is started again in %.0f s",
                *(child.number, how, OFTEN, _PAUSE_S),
                extra=child.fields,
            )
            self.placing.give_up(child.number)
        else:
            _log.error("process %d %s: it is replaced", child.number, how, extra=child.fields)

    def _hear(self, child: Child) -> bool:
        """Take what a process says; whether it said anything."""
        assert child.end is not None
        try:
            packet = orders.receive(child.end)
        except BlockingIOError:
            return False
        except OSError:
            packet = b""
        if not packet:
            self._cut(child)
            return False
        now_s = child.heard_s = time.monotonic()
        match orders.decode_report(packet):
            case orders.Started():
                self.placing.started(child.number, now_s)
                if self._ready:
                    self._send(child, orders.NewMap(self._told, self._broker_id))  # it may be long until the next one
            case orders.Beat() as beat:
                child.beat = beat
            case orders.Opened(shard, epoch, broker_id):
                self.placing.opened(child.number, shard, epoch, now_s, time.time())
                self._broker_id = broker_id if shard == 0 or not self._broker_id else self._broker_id
            case orders.NotOpened(shard, problem):
                if not self._ready:
                    raise PenstockError(problem)
                self.placing.not_opened(child.number, shard, problem, now_s)
            case orders.Released(shard):
                self.placing.released(child.number, shard, now_s)
            case orders.Ready(addresses):
                child.state, self.addresses = "up", addresses
            case orders.Refused(problem, hint):
                if not self._ready:
                    raise StartRefused(problem, hint)
                _log.error("process %d cannot start: %s; %s", child.number, problem, hint, extra=child.fields)
            case orders.Asked() as asked:
                self._asked(child, asked)
        return True

    def _cut(self, child: Child) -> None:
        """It says no more: it has ended, or is about to."""
        if child.end is not None:
            self._selector.unregister(child.end)
            child.end.close()
            child.end = None

    def _send(self, child: Child, order: orders.Order) -> None:
        if child.end is not None:
            with contextlib.suppress(OSError):  # it has ended, or hangs: both are noticed
                orders.send(child.end, order)

    def _tell_map(self) -> None:
        """Tell all processes where the shards are, if that has changed."""
        started = {child.number: f":{child.own_port}" for child in self.children}
        newest = self.placing.map(started)
        if newest == self._told or not (newest.is_complete or self._ready):
            return
        self._told = newest
        for child in self.children:
            self._send(child, orders.NewMap(newest, self._broker_id))

    # Wishes.

    def _asked(self, child: Child, asked: orders.Asked) -> None:
        try:
            match asked.question:
                case "move":
                    self.placing.move(asked.shard, asked.process)
                case "drain":
                    self.placing.drain(asked.process)
                case "balance":
                    self.placing.balance()
        except InvalidArgument as error:
            self._send(child, orders.Answer(asked.number, problem=str(error)))
            return
        if asked.question == "show":
            self._send(child, orders.Answer(asked.number, self.info()))
        else:
            self._pending.append(_Pending(child, asked.number, asked.shard))

    def _answer_pending(self) -> None:
        """Answer those whose wish is fulfilled."""
        for pending in list(self._pending):
            if self.placing.is_at_home(pending.shard):
                self._pending.remove(pending)
                self._send(pending.child, orders.Answer(pending.number, self.info()))

    def info(self) -> ClusterInfo:
        """All processes and shards, as they are shown."""
        shards = self.placing.infos()
        processes = [
            child.info([shard.number for shard in shards if shard.process == child.number], self.placing.draining)
            for child in self.children
        ]
        return ClusterInfo(processes=processes, shards=shards, moves=list(self.placing.moves))

    # Signals, and the end.

    def _listen_to_signals(self) -> None:
        reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writing)
        self._selector.register(reading, selectors.EVENT_READ)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._note_signal)
        signal.signal(signal.SIGCHLD, _do_nothing)  # it only wakes

    def _note_signal(self, number: int, _: FrameType | None) -> None:
        self._signals.append(number)

    def _heed_signals(self, now_s: float) -> None:
        signals, self._signals = self._signals, []
        for number in signals:
            if number == signal.SIGHUP:
                self._reload()
            elif self._stop_s is None:
                _log.info("stopping")
                self._stop_s = now_s
                for child in self.children:
                    self._send(child, orders.Stop())
            elif now_s - self._stop_s > _IMPATIENT_S:
                self._kill_all()
                os._exit(128 + number)  # somebody does not want to wait; what was acknowledged is on disk

    def _reload(self) -> None:
        """Have all processes read again what they may, and those that are started from now on begin with it."""
        try:
            config = renewed(self.config, self._read_again())
            server_context(config)  # what is wrong with its files is told before anything is done
        except (PenstockError, OSError) as error:
            _log.error("the configuration was not taken: %s", error)
            return
        self.config = config
        for child in self.children:
            self._send(child, orders.Reload())

    def _kill_all(self) -> None:
        for child in self.children:
            if child.state != "gone":
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.kill(child.pid, signal.SIGKILL)
                    os.waitpid(child.pid, 0)

    def _let_go(self) -> None:
        for kept in self._kept:
            kept.close()
        shutil.rmtree(self._sockets, ignore_errors=True)
        self._root.close()


def _do_nothing(_: int, __: FrameType | None) -> None:
    pass
