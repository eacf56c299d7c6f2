"""The page of the limits says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.delivery import keys, lease_book
from penstock.log import producers
from penstock.model.config import BrokerConfig
from penstock.server import pipeline_history, pipelines, workers
from penstock.server.access import rates
from penstock.server.http import members
from penstock.server.line import consumers as line_consumers
from penstock.server.native import connection, delivering
from penstock.server.native import consumers as native_consumers
from penstock.server.settings.options import ServerConfig
from penstock.shard.metering import meters
from penstock.shard.reading import contents
from penstock.shard.staging import stages as staging

PAGE = (Path(__file__).parent.parent / "docs/reference/limits.md").read_text()
ROWS = {cells[0]: line for line in PAGE.splitlines() if (cells := re.findall(r"\| ([^|]+?) (?=\|)", line))}
MIB = 1 << 20


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("leases that ended", f"{lease_book.BOOK_BYTES // MIB} MiB"),
        ("leases that ended", f"{round(2 * lease_book._GENERATION_S / 60)} minutes"),
        ("leases that ended", f"{lease_book._ENTRY_BYTES} bytes"),
        ("content kept for consumers that are near the end", f"{contents._CACHE_BYTES // MIB} MiB"),
        ("stages", f"{staging.STAGES_MAX:,} stages, {staging._HANDLES_MAX} open files"),
        ("rates of topics, for the dashboard", f"{meters.TOPICS_MAX:,}"),
        ("sequences of its producers", f"{2 * producers.HISTORY:,} of one producer, {producers._SEQUENCES_EACH} ×"),
        ("messages parked behind their key (`order: key`)", f"{keys._PARKED_MAX:,}"),
        ("requests that are not answered, native", f"{connection._OPEN_REQUESTS_MAX:,}"),
        ("requests in threads", f"{workers._WAITING_MAX:,} of all; {workers._SLOW_MAX} slow"),
        ("consumers, native", f"{native_consumers._CONSUMERS_MAX:,}"),
        ("`RECEIVE` that wait, native", f"{delivering._WAITING_MAX:,}"),
        ("members by HTTP", f"{members._MEMBERS_MAX:,}"),
        ("consumers of the text port", f"{line_consumers._TOPICS_MAX:,} topics, {line_consumers.IN_FLIGHT_MAX:,} mes"),
        ("rates by token or address", f"{rates._KEYS_MAX:,}"),
        ("pipelines that report", f"{pipelines.PIPELINES_MAX:,} of all"),
        ("pipelines that report", f"{pipeline_history.QUERY_POINTS_MAX:,} points"),
    ],
)
def test_a_fixed_limit_is_told_as_it_is(row: str, says: str) -> None:
    assert says in ROWS[row]


def test_every_limit_of_the_broker_and_the_server_is_on_the_page() -> None:
    options = [name for config in (BrokerConfig(), ServerConfig()) for name in config.__dataclass_fields__]
    limits = {name for name in options if name.startswith("max_")}
    single = {"max_value_bytes", "max_key_bytes", "max_headers_bytes", "max_batch_bytes"}  # of what is being published
    assert {name for name in limits - single if f"`{name}`" not in PAGE} == set()
    for name in ("max_topics", "max_dedupe_ids", "max_producers", "max_partitions"):
        assert f"`{name}` ({getattr(BrokerConfig(), name):,})" in PAGE
