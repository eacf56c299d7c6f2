"""A real object store on this machine: SeaweedFS, on loopback, with every write synced, and telling nobody."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.server.harness import free_port

BUCKET = "penstock"
_KEY, _SECRET = "any-key", "any-secret"
_PATIENCE_S = 60.0
_ALL = ["Admin", "Read", "Write", "List"]


class Seaweed:
    """One process that is master, volume server, filer and S3 gateway."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ports = {name: free_port() for name in ("master", "volume", "filer", "s3")}
        self._grpc_ports = {name: free_port() for name in self._ports}
        self._process: subprocess.Popen[bytes] | None = None
        identity = {"name": "tests", "credentials": [{"accessKey": _KEY, "secretKey": _SECRET}], "actions": _ALL}
        self._config = directory / "s3.json"
        self._config.write_text(json.dumps({"identities": [identity]}))
        self._data = directory / "data"
        self._data.mkdir()

    @property
    def environment(self) -> dict[str, str]:
        """What tells clients where it is, and who they are."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._ports['s3']}",
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET,
            "AWS_REGION": "us-east-1",
        }

    @property
    def port(self) -> int:
        """Of the S3 gateway."""
        return self._ports["s3"]

    def start(self) -> None:
        """Start it, and wait until it can be used."""
        flags = ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={self._data}", "-master.telemetry=false"]
        flags += ["-filer", "-s3", f"-s3.config={self._config}", "-s3.port.iceberg=0", "-s3.port.lance=0"]
        flags += ["-master.volumeSizeLimitMB=256", "-volume.max=0"]
        flags += [f"-{name}.port={port}" for name, port in self._ports.items()]
        flags += [f"-{name}.port.grpc={port}" for name, port in self._grpc_ports.items()]
        log = (self._directory / "weed.log").open("ab")
        self._process = subprocess.Popen(
            [_weed(), "server", *flags], stdout=log, stderr=log, cwd=self._directory, start_new_session=True
        )
        log.close()
        until_s = time.monotonic() + _PATIENCE_S
        while not self._answers():
            assert self._process.poll() is None, (self._directory / "weed.log").read_text()[-2000:]
            assert time.monotonic() < until_s, (self._directory / "weed.log").read_text()[-2000:]
            time.sleep(0.1)

    def make_bucket(self) -> None:
        """Make the bucket, whose objects are on the disk before a put is answered."""
        master = f"-master=127.0.0.1:{self._ports['master']}.{self._grpc_ports['master']}"
        commands = (
            f"s3.bucket.create -name {BUCKET}\nfs.configure -locationPrefix=/buckets/{BUCKET} -fsync=true -apply\n"
        )
        until_s = time.monotonic() + _PATIENCE_S
        while True:
            done = subprocess.run([_weed(), "shell", master], input=commands.encode(), capture_output=True, check=False)
            if b'"fsync":' in done.stdout or b"fsync" in done.stdout + done.stderr:
                return
            assert time.monotonic() < until_s, done
            time.sleep(0.2)

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/status", timeout=2).close()
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """End it at once: asked to, it would take its time."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


@contextmanager
def seaweed(directory: Path) -> Iterator[Seaweed]:
    """A store with a bucket."""
    store = Seaweed(directory)
    try:
        store.start()
        store.make_bucket()
        yield store
    finally:
        store.kill()


def _weed() -> str:
    return str(Path(sys.executable).with_name("weed"))
