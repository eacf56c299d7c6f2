"""A client that knows nothing of this package, written from the page of the protocol: it is the one on the page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import penstock
from tests.server.harness import Child

PAGE = Path(__file__).parents[2] / "docs/reference/protocol.md"


def client_of_the_page() -> str:
    (code,) = re.findall(r"^```py\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return str(code)


def test_the_client_of_the_page_imports_nothing_of_ours() -> None:
    imported = re.findall(r"^(?:from|import) (\w+)", client_of_the_page(), re.MULTILINE)
    assert imported == ["socket", "struct", "sys", "msgspec"]


def test_the_client_of_the_page_publishes_receives_and_acks(tmp_path: Path) -> None:
    with Child(tmp_path / "data") as server:
        for first in (0, 2):  # the second one is another day's: the sequence is known, and nothing comes again
            done = subprocess.run(
                [sys.executable, "-W", "error", "-I", "-c", client_of_the_page(), "127.0.0.1", str(server.port)],
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert done.returncode == 0, done.stderr
            assert done.stdout.splitlines() == [
                f"connected to penstock {penstock.__version__}",
                "published at [(0, 0), (0, 1)] and no second time: True",
                *["received orders/0/0: two coffees", "received orders/0/1: one tea"][first:],
                "all done",
            ]
    with penstock.open(tmp_path / "data") as broker:
        assert [message.value for message in broker.read("orders")] == [b"two coffees", b"one tea"]
        assert (broker.group("orders", "kitchen").acked, broker.group("orders", "kitchen").lag) == (2, 0)
