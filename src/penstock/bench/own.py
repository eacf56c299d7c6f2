"""A server for a measurement: `penstock serve` as a separate process, on a directory or a bucket."""

from __future__ import annotations

import collections
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

from penstock.model.errors import PenstockError

_STOP_S = 60.0
_ENDING_S = 1.0
_LINES_MAX = 20


class OwnServer:
    """Runs while it is entered; `address` is where it listens, and `http_address` where it does so for HTTP."""

    def __init__(self, directory: Path | str, *options: str, http: bool = False) -> None:
        """`directory`: or the address of a bucket; `options`: more of them, as they are given to `penstock serve`."""
        self.directory = directory
        self.address = ""
        self.http_address = ""
        self._more = options
        self._http_port = "0" if http else "off"
        self.process: subprocess.Popen[str]
        self._reader: threading.Thread | None = None
        self._last: collections.deque[str] = collections.deque(maxlen=_LINES_MAX)

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "penstock.cli.main", "serve", str(self.directory)]
        ports = ["--native-port", "0", "--http-port", self._http_port, "--line-port", "off"]
        options = ["--host", "127.0.0.1", *ports, "--log-format", "json", "--log-level", "info"]
        self.process = subprocess.Popen(
            [*command, *options, *self._more],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the load, which then stops the server
        )
        try:
            self.address = self._find_address()
        except BaseException:
            self._end()
            raise
        self._reader = threading.Thread(target=self._read, daemon=True)  # or its log would fill the pipe
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def trouble(self) -> str | None:
        """The last line of its log, if it has ended by itself."""
        try:
            self.process.wait(_ENDING_S)  # its connections are gone before it is
        except subprocess.TimeoutExpired:
            return None
        return f"the server ended with {self.process.returncode}: {self._told()}"

    def _find_address(self) -> str:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._last.append(line)
            try:
                said = json.loads(line)
            except ValueError:
                continue
            if said.get("message") == "listening":
                self.http_address = str(said.get("http", ""))
                return str(said["native"])
        self.process.wait(_STOP_S)
        raise PenstockError(f"the server could not start: {self._told()}")

    def _read(self) -> None:
        assert self.process.stderr is not None
        self._last.extend(self.process.stderr)

    def _told(self) -> str:
        if not self._last:
            return "it said nothing"
        try:
            return str(json.loads(self._last[-1])["message"])
        except (ValueError, KeyError, TypeError):
            return self._last[-1].strip().removeprefix("error: ")

    def _end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(_STOP_S)
        finally:  # also if it was interrupted
            self.process.kill()
            self.process.wait()
            if self._reader is not None:
                self._reader.join()
            if self.process.stderr is not None:
                self.process.stderr.close()
