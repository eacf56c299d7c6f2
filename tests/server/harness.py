"""Servers for tests: one in a thread of its own, and one in a child process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Self

from penstock.embedded.broker import Broker
from penstock.model.config import BrokerConfig
from penstock.protocol.consuming import Delivery, Subscribe, decode_delivery, decode_subscribed
from penstock.protocol.failures import decode_failure
from penstock.protocol.frames import ERROR, HEADER, HEADER_BYTES, REPLY, VERSION, Command, frame
from penstock.protocol.publishing import encode_publish
from penstock.protocol.session import Hello, encode
from penstock.server.config import ServerConfig
from penstock.server.native.listener import NativeListener
from penstock.server.server import Server
from tests import patience, sharding

PATIENCE_S = patience.PATIENCE_S
until = patience.until
_PORTS_OF_SERVERS = range(12_000, 32_000)


async def soon(happened: Callable[[], Any], what: str = "what was waited for", patience_s: float = PATIENCE_S) -> Any:
    """As `until`, in an event loop."""
    deadline_s = time.monotonic() + patience_s
    while not (found := happened()):
        assert time.monotonic() < deadline_s, f"{what} did not happen"
        await asyncio.sleep(0.005)
    return found


def run(main: Coroutine[Any, Any, None], patience_s: float = 60) -> None:
    """A test that is a coroutine, which is over after a minute."""
    asyncio.run(asyncio.wait_for(main, patience_s))


def config_of(path: Path | str, port: int = 0, **options: Any) -> ServerConfig:
    """The configuration of a server; options of the broker inside are under `broker`."""
    broker = BrokerConfig.parse({"min_free_bytes": 0, **options.pop("broker", {})})
    return ServerConfig.parse(
        {
            "data_dir": str(path),
            "native_port": port,
            "http_port": "off",
            "line_port": "off",
            "broker": broker,
            **options,
        }
    )


class Running:
    """A server in a thread of its own; `with Running(path) as server` has it running inside."""

    def __init__(self, path: Path | str, port: int = 0, **options: Any) -> None:
        self._config = config_of(path, port, **options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="test-server", daemon=True)
        self.server = Server(self._config)

    @property
    def address(self) -> str:
        return "{}:{}".format(*self.server.address)

    @property
    def port(self) -> int:
        return self.server.address[1]

    @property
    def broker(self) -> Broker:
        return self.server.broker

    @property
    def connections(self) -> int:
        return len(self.native.connections)

    @property
    def native(self) -> NativeListener:
        native = self.server._listeners["native"]
        assert isinstance(native, NativeListener)
        return native

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run it in the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def call(self, work: Callable[[], Any]) -> Any:
        async def there() -> Any:
            return work()

        return self.do(there())

    def waiters(self, topic: str = "t", group: str = "g") -> int:
        """How many wait for messages of a group."""
        shard = self.broker.shards.of(topic)
        with shard.lock:
            active = shard.dispatcher.in_use.groups(shard.catalog.by_name[topic]).get(group)
            return 0 if active is None else len(active.waiters)

    def tasks(self) -> int:
        """How many tasks the server has."""
        return int(self.call(lambda: len(asyncio.all_tasks()))) - 1

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.do(self.server.start())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.do(self.server.stop())
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


class Child:
    """`penstock serve` as a process, on the same port and directory however often it is started.

    Options that have no flag are given by name, as in a file: `idle_timeout="2s"`.
    """

    open_files_max: int | None = None
    """The limit of open files that it is started with, if not that of the tests."""

    def __init__(self, path: Path, *arguments: str, **options: object) -> None:
        self.path = path
        self._arguments = arguments
        self._variables = {f"PENSTOCK_{name.upper()}": str(value) for name, value in options.items()}
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._process: subprocess.Popen[str]
        self._log = path.parent / f"{path.name}.log"
        self._begins = 0

    def start(self) -> None:
        """Start it; returns when it listens."""
        self._begins = self._log.stat().st_size if self._log.exists() else 0
        others = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        ports = {"PENSTOCK_HTTP_PORT": "off", "PENSTOCK_LINE_PORT": "off"}
        environment = {**others, **ports, **sharding.variables(), **self._variables}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *self._limiting(),
                    *(sys.executable, "-m", "penstock.cli.main", "serve", str(self.path)),
                    *("--native-port", str(self.port), "--log-format", "json", *self._arguments),
                ],
                stderr=log,
                env=environment,
                text=True,
            )
        until(lambda: '"message":"listening"' in self.log() or self._process.poll() is not None, "the start")
        assert self._process.poll() is None, self.log()

    def _limiting(self) -> list[str]:
        if self.open_files_max is None:
            return []
        return ["sh", "-c", f'ulimit -n {self.open_files_max} && exec "$0" "$@"']

    def log(self) -> str:
        """What it has logged since it was started."""
        with self._log.open() as log:
            log.seek(self._begins)
            return log.read()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def pause(self) -> None:
        """Stop it where it is, until SIGCONT."""
        pause(self.pid)

    def wait(self) -> int:
        """Its exit code."""
        return self._process.wait(PATIENCE_S)

    def kill(self) -> None:
        """As a power cut of the process: nothing is finished."""
        self._process.kill()
        self._process.wait()

    def memory_mib(self) -> float:
        """What it holds in memory."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        return 0.0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.kill()


def pause(pid: int) -> None:
    """Stop a child process; it does nothing more once this returns, which the signal alone does not promise."""
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED)


def free_port() -> int:
    """A port for a server that is started later, of those that no outgoing connection is given meanwhile."""
    while True:
        port = secrets.choice(_PORTS_OF_SERVERS)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


class Raw:
    """A client that says just what it is told to, byte by byte."""

    def __init__(self, port: int, hello: bool = True, token: str | None = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.settimeout(PATIENCE_S)
        self._numbers = iter(range(1, 1 << 32))
        if hello:
            self.ask(Command.HELLO, encode(Hello([VERSION], "a test", token)))

    def send(self, command: int, body: bytes, correlation: int | None = None) -> int:
        number = next(self._numbers) if correlation is None else correlation
        self.socket.sendall(frame(command, number, body))
        return number

    def receive(self) -> tuple[int, int, bytes]:
        """The next frame: command, correlation, body; raises EOFError when there is none."""
        _, command, correlation, length = HEADER.unpack(self._exactly(HEADER_BYTES))
        return command, correlation, self._exactly(length)

    def ask(self, command: int, body: bytes) -> bytes:
        """The reply to a request; what is pushed meanwhile is passed over. Raises what the server says is wrong."""
        number = self.send(command, body)
        while True:
            replied, correlation, reply = self.receive()
            if replied == ERROR and correlation in (number, 0):
                raise decode_failure(reply)
            if replied == command | REPLY and correlation == number:
                return reply

    def publish(self, topic: str, *values: bytes | str) -> None:
        self.ask(Command.PUBLISH, encode_publish(topic, list(values), BrokerConfig())[0])

    def subscribe(self, topic: str, group: str = "g", **options: Any) -> int:
        request = Subscribe(topics=[topic], group=group, **options)
        return decode_subscribed(self.ask(Command.SUBSCRIBE, encode(request))).consumer

    def delivered(self) -> Delivery:
        """What is pushed next."""
        while True:
            command, _, body = self.receive()
            if command == Command.DELIVER:
                return decode_delivery(body)

    def ended(self) -> bool:
        """Whether the server has closed the connection; what it said before is passed over."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except ConnectionError:
            pass
        return True

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            some = self.socket.recv(count - len(data))
            if not some:
                raise EOFError
            data += some
        return bytes(data)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def publishing_lightly(address: str, token: str | None = None) -> Iterator[list[float]]:
    """A well-behaved client that publishes and consumes all the time; how long each round trip took."""
    from penstock.client import Client

    took: list[float] = []
    failures: list[BaseException] = []
    stopping = threading.Event()

    def work() -> None:
        try:
            with Client(address, token=token) as client, client.consumer("quiet", "g") as consumer:
                number = 0
                while not stopping.is_set():
                    started_s = time.perf_counter()
                    client.publish("quiet", f"{number}")
                    (message,) = consumer.receive(10, wait=20)
                    assert message.value == b"%d" % number
                    message.ack()
                    took.append(time.perf_counter() - started_s)
                    number += 1
                    stopping.wait(0.01)
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        until(lambda: len(took) >= 3 or failures)
        yield took
        seen = len(took)
        until(lambda: len(took) >= seen + 3 or failures, "a round trip of a well-behaved client")
    finally:
        stopping.set()
        thread.join()
    assert not failures, failures[0]
