"""What an open dashboard costs the server: a real browser looks at a broker with many topics that does nothing else."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import penstock
from benchmarks.processor import processor_s
from penstock.bench.own import OwnServer

_PAGES = ("overview", "topics", "groups")


def watched_share(directory: Path, topics: int, seconds: float) -> float:
    """The share of a core that the dearest page takes, beyond what the server takes without anybody looking."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    if chromium is None:
        raise RuntimeError("chromium is not installed: it is in Debian's package chromium (`make bench` installs it)")
    with OwnServer(directory / "data", http=True) as server:
        _fill(server.address, topics)
        alone = _processor_share(server.process.pid, seconds)
        shares: dict[str, float] = {}
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = browser.new_page()
            for name in _PAGES:
                page.goto(f"http://{server.http_address}/#/{name}")
                page.reload()
                page.wait_for_load_state("load")
                page.wait_for_timeout(1000)  # what is loaded once is not polling
                shares[name] = _processor_share(server.process.pid, seconds)
            browser.close()
    return max(0.0, max(shares.values()) - alone)


def _fill(address: str, topics: int) -> None:
    """Topics with some messages and a group each."""
    with penstock.connect(address) as client:
        for number in range(topics):
            topic = f"team-{number % 50}.topic-{number}"
            client.publish_many(topic, [b"x" * 100] * 10)
            if number % 5 == 0:
                client.create_group(topic, "workers")


def _processor_share(pid: int, seconds: float) -> float:
    """The processor time of a process by the time that passed."""
    before, start_s = processor_s(pid), time.monotonic()
    time.sleep(seconds)
    return (processor_s(pid) - before) / (time.monotonic() - start_s)
