"""Pictures of every page, of a small shop at work: `python -m tests.dashboard.screenshots` writes docs/images/*.png.

With the argument `pipelines` or `processes` it takes that picture only.
"""

from __future__ import annotations

import contextlib
import json
import math
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect, sync_playwright

from penstock import Message
from penstock.client import Client
from penstock.model.pipelines import PipelineReport, PipelineState, QueryReport
from penstock.server.access.tokens import TokenFile
from tests.dashboard.harness import Board, Served
from tests.server.http.harness import HttpChild

IMAGES = Path(__file__).parents[2] / "docs" / "images"
LIVE_S = 75.0
TOLD_S = 90
DRINKS = ["espresso", "flat white", "filter coffee", "green tea", "lemonade"]
FOOD = ["cheesecake", "cinnamon roll", "bagel", "granola", "banana bread"]
PEOPLE = ["alex", "sam", "kim", "noor", "jonas", "maria", "li", "amara", "tom", "zoe"]
PRIORITIES = [(0, 1), (64, 12), (128, 70), (192, 15), (255, 2)]
DECLINED, SILENT, UNKNOWN = (
    "card declined: insufficient funds",
    "bank.example did not answer within 30 s",
    "currency XTS is not known",
)
CONSUMERS = [
    ("orders", "kitchen", "barista-1", 97, ["no oat milk left"]),
    ("orders", "kitchen", "barista-2", 97, ["no oat milk left"]),
    ("payments", "billing", "till-1", 31, [DECLINED, SILENT, DECLINED, UNKNOWN]),
    ("payments", "ledger", "bookkeeper", 1 << 40, [""]),
    ("emails", "mailer", "mailer-1", 1 << 40, [""]),
]


def order(number: int) -> Message:
    """An order of the shop."""
    chance = random.Random(number)
    items = [{"sku": chance.choice(DRINKS), "count": chance.randint(1, 3)}, {"sku": chance.choice(FOOD), "count": 1}]
    value = {
        "order": 48_000 + number,
        "items": items,
        "total": chance.randint(400, 2900) / 100,
        "to_go": number % 3 == 0,
    }
    lane = chance.choices([lane for lane, _ in PRIORITIES], [weight for _, weight in PRIORITIES])[0]
    headers = {
        "till": str(number % 4),
        "traceparent": f"00-{chance.getrandbits(128):032x}-{chance.getrandbits(64):016x}-01",
    }
    return Message(json.dumps(value), key=chance.choice(PEOPLE), priority=lane, headers=headers)


def fill(client: Client) -> None:
    """What was there before anybody looked."""
    client.create_topic("orders", partitions=4, lanes="weighted", lane_weights={"high": 5, "low": 1})
    client.create_topic("payments", partitions=2, max_deliveries=2, retry_backoff=0.1, visibility_timeout=30)
    client.create_topic("emails", partitions=2)
    client.create_topic("clicks", partitions=8, retention_age="1d", retention_bytes="20GB")
    for number in range(40):
        client.publish_many(f"tenant-{number:02}.events", [f"event {one}" for one in range(3 * number + 5)])
    for topic, batches in {"orders": 60, "payments": 25, "clicks": 110, "inventory": 9, "emails": 14}.items():
        for batch in range(batches):
            client.publish_many(topic, [order(batch * 1000 + one) for one in range(1000)])
    client.settle()
    for group, topic in [("kitchen", "orders"), ("ledger", "payments"), ("billing", "payments"), ("mailer", "emails")]:
        client.create_group(topic, group, start="latest")
    client.create_group("clicks", "analytics", start="earliest")
    client.schedule("nightly-report", "0 3 * * *", "reports", '{"kind": "daily"}', zone="Europe/Berlin", priority="low")
    client.schedule("stock-check", "*/15 6-20 * * mon-sat", "inventory", "count the beans", zone="Europe/Berlin")
    client.schedule("heartbeat", "* * * * *", "monitoring", "ping")
    client.pause_schedule("heartbeat")
    for number in range(34):
        client.publish(
            "emails", f"How was your visit, {PEOPLE[number % 10]}?", key=PEOPLE[number % 10], delay=600 + 97 * number
        )


def tell_a_story(client: Client) -> str:
    """A message whose trace is worth a look; its id."""
    identity = client.publish(
        "payments", '{"order": 48017, "amount": "12.40 EUR", "card": "…4242"}', key="alex", delay=1.5
    )
    with client.consumer("payments", "ledger", name="bookkeeper") as ledger:
        _find(ledger, identity.offset).ack()
    with client.consumer("payments", "billing", name="till-2") as billing:
        message = _find(billing, identity.offset)
        time.sleep(0.4)
        message.fail(SILENT)
        message = _find(billing, identity.offset)
        time.sleep(0.08)
        message.fail(DECLINED)
        while not client.dead_letters("payments"):
            time.sleep(0.02)
        time.sleep(2.5)
        client.redrive("payments")
        _find(billing, identity.offset).ack()
    return str(identity)


def _find(consumer: Any, offset: int) -> Any:
    while True:
        for message in consumer.receive(100, wait=10):
            if message.offset == offset:
                return message
            message.ack()


class Work:
    """The shop at work: publishers and consumers until it is closed."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._closing = threading.Event()
        self._threads = [threading.Thread(target=self._publish)]
        for consumer in CONSUMERS:
            self._threads.append(threading.Thread(target=self._consume, args=consumer))
        for thread in self._threads:
            thread.start()

    def _publish(self) -> None:
        number = 0
        with self._served.client() as client:
            while not self._closing.wait(0.1):
                now = time.monotonic()
                count = int(38 + 16 * math.sin(now / 9) + 7 * math.sin(now / 2.3) + random.randint(0, 6))
                for topic, share in {"orders": 1, "payments": 3, "clicks": 2, "emails": 9}.items():
                    client.publish_many(topic, [order(number + one) for one in range(count // share)])
                number += count

    def _consume(self, topic: str, group: str, name: str, every: int, causes: list[str]) -> None:
        """Take what comes; every so many messages, one fails."""
        mode = "assigned" if group == "kitchen" else "shared"
        with self._served.client() as client, client.consumer(topic, group, name=name, mode=mode) as consumer:
            while not self._closing.is_set():
                messages = consumer.receive(60, wait=0.2)
                self._closing.wait(0.15)  # they work
                failing = [message for message in messages if message.offset % every == every - 1]
                for message in failing:
                    message.fail(causes[message.offset // every % len(causes)])
                consumer.ack(message for message in messages if message not in failing)
                self._closing.wait(0.4 if group == "mailer" else 0.01)

    def close(self) -> None:
        self._closing.set()
        for thread in self._threads:
            thread.join()


def shoot(page: Page, name: str) -> None:
    """Take a picture when nothing moves any more."""
    expect(page.locator(".loading")).to_have_count(0)
    page.wait_for_timeout(700)
    path = IMAGES / f"{name}.png"
    page.screenshot(path=path)
    print(f"{path.name}: {path.stat().st_size // 1024} kB")


def shoot_all(browser: Browser, served: Served, story: str) -> None:
    """All pages of a server at work."""
    topic, partition, offset = story.split("/")
    pages = {
        "topics": ["topics"],
        "topic": ["topics", "orders"],
        "messages": ["topics", "orders", "messages"],
        "message": ["topics", topic, "messages", partition, offset],
        "groups": ["groups"],
        "group": ["groups", "kitchen"],
        "delayed": ["topics", "emails", "delayed"],
        "schedules": ["schedules"],
        "dead-letters": ["topics", "payments", "dead-letters"],
    }
    for scheme in ("light", "dark"):
        page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme=scheme)
        board = Board(page, served.url)
        board.go()
        expect(page.locator("canvas")).to_have_count(2)
        expect(board.rows("Busiest topics").first.locator("td").nth(1)).not_to_have_text("0", timeout=30_000)
        shoot(page, "overview" if scheme == "light" else "overview-dark")
        if scheme == "dark":
            continue
        for name, parts in pages.items():
            board.go(*parts, query="?sort=messages&order=desc" if name == "topics" else "")
            shoot(page, name)
        _shoot_forms(board)


def _shoot_forms(board: Board) -> None:
    board.go("publish")
    board.fill("Topic", "orders")
    board.fill("Value", '{\n  "order": 48017,\n  "items": [{"sku": "flat white", "count": 2}],\n  "total": 7.8\n}')
    board.fill("Key", "alex")
    board.page.get_by_label("Priority").select_option("64")
    board.click("Add a header")
    board.fill("Header name", "till")
    board.fill("Header value", "2")
    board.click("Publish", exact=True)
    expect(board.page.locator(".sent")).to_be_visible()
    shoot(board.page, "publish")
    board.go("topics", "orders")
    board.open("Replay")
    shoot(board.page, "replay")


ABORTED = """org.apache.spark.SparkException: [STREAM_FAILED] Query [id = 5c1e, runId = 90ab] terminated with exception:
Job aborted due to stage failure: Task 1 in stage 96.0 failed 1 time
  at org.apache.spark.sql.execution.streaming.StreamExecution.runStream(StreamExecution.scala:356)
Caused by: java.io.IOException: No space left on device: tables/ledger/date=2026-05-04"""


def tell(client: Client, second: int) -> None:
    """What the pipelines of the shop report in some second."""
    now_us = time.time_ns() // 1000
    busy = 900 + 400 * math.sin(second / 9)
    queries = []
    for place, (name, writes, share) in enumerate(
        [("urgent", ("orders-urgent",), 0.3), ("minutes", (), 1.0), ("per_minute", ("order-minutes",), 1.0)]
    ):
        done = sum(900 + 400 * math.sin(past / 9) for past in range(second)) * share
        lag = int(max(0.0, 1400 * math.exp(-second / 30)) + (300 + 150 * math.sin(second / 5 + place)) * share)
        queries.append(
            QueryReport(
                name=f"orders.{name}",
                reads=("orders",),
                writes=writes,
                batches=412 + second,
                rows=int(1_240_000 * share + done),
                rows_per_second=busy * share * 1.4,
                batch_seconds=0.42 + 0.1 * share + 0.05 * math.sin(second / 3),
                lag=lag,
                state_rows=0 if place == 0 else 180 + second // 10,
                time_us=now_us - 400_000,
            )
        )
    where: dict[str, Any] = {"host": "spark-1", "pid": 48_113, "started_us": now_us - 1_380_000_000, "time_us": now_us}
    running = PipelineState.RUNNING
    client.report_pipeline(
        PipelineReport(name="orders", state=running, queries=tuple(queries), file="shop.yaml", **where)
    )
    stuck = QueryReport(
        name="ledger.table", reads=("payments",), batches=96, rows=118_400, batch_seconds=1.8, lag=5210 + 11 * second
    )
    failed = PipelineReport(
        name="ledger",
        state=PipelineState.FAILED,
        queries=(stuck,),
        restarts=5,
        error=ABORTED,
        file="ledger.yaml",
        **where,
    )
    client.report_pipeline(failed)


def shoot_pipelines(browser: Browser, served: Served) -> None:
    """The page gathers its charts while it is open."""
    page = browser.new_page(viewport={"width": 1280, "height": 860})
    Board(page, served.url).go("pipelines")
    with served.client() as client:
        for second in range(TOLD_S):
            tell(client, second)
            page.wait_for_timeout(1000)
        shoot(page, "pipelines")


def shoot_processes(browser: Browser, path: Path) -> None:
    """A server of four processes at work, after some shards moved and one process was drained."""
    with contextlib.ExitStack() as stack:
        served = stack.enter_context(HttpChild(path, "--shards", "16", "--processes", "4"))
        client = stack.enter_context(Client(served.address))
        for shard in (3, 9, 14):
            client.move_shard(shard, (client.cluster().shards[shard].process + 1) % 4)
        client.drain_process(2)
        client.balance_shards()
        client.drain_process(3)
        page = browser.new_page(viewport={"width": 1280, "height": 860})
        board = Board(page, served.url)
        board.go("processes")
        board.heading("Processes").wait_for()
        processes = client.cluster().processes
        each = [stack.enter_context(Client(f"127.0.0.1{one.address}")) for one in processes for _ in one.shards]
        for _ in range(60):
            for busy in each:
                busy.status()
            page.wait_for_timeout(50)
        shoot(page, "processes")


@contextlib.contextmanager
def guarded(path: Path) -> Iterator[Served]:
    """A server that asks for tokens."""
    path.mkdir()
    TokenFile(path).create("boss", ["admin"])
    with Served(path, auth="tokens") as served:
        yield served


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("there is no chromium: apt-get install chromium")
    if sys.argv[1:] in (["pipelines"], ["processes"]):
        with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            if sys.argv[1] == "processes":
                shoot_processes(browser, Path(directory) / "shop")
                return
            with Served(Path(directory) / "shop") as served:
                shoot_pipelines(browser, served)
        return
    with (
        tempfile.TemporaryDirectory() as directory,
        Served(Path(directory) / "shop", metrics_topics_max=50) as served,
        guarded(Path(directory) / "guarded") as locked,
    ):
        with served.client() as client:
            fill(client)
            story = tell_a_story(client)
        served.stop()
        served.start()  # the charts begin anew
        work = Work(served)
        try:
            time.sleep(LIVE_S)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                shoot_all(browser, served, story)
                page = browser.new_page(viewport={"width": 1280, "height": 800})
                Board(page, locked.url).go()
                expect(page.get_by_label("Token")).to_be_visible()
                shoot(page, "login")
                shoot_pipelines(browser, served)
                shoot_processes(browser, Path(directory) / "several")
                browser.close()
        finally:
            work.close()


if __name__ == "__main__":
    main()
