"""Settled topics are tables for everyone: DuckDB, pandas and Arrow see the rows that the broker reads."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import penstock
from penstock import Message, StoredMessage

# partition, offset, timestamp, key, value, headers, priority, deliver-at, dedupe id, expires-at
Row = tuple[int, int, int, bytes | None, bytes, dict[str, str] | None, int, int | None, str | None, int | None]

AS_ARROW = {
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": pa.map_(pa.string(), pa.string()),
    "priority": pa.int16(),
    "deliver_at": pa.timestamp("us", tz="UTC"),
    "expires_at": pa.timestamp("us", tz="UTC"),
    "dedupe_id": pa.string(),
    "partition": pa.int32(),
    "producer": pa.string(),
}
COLUMNS = list(AS_ARROW)


def publish_all_kinds(broker: penstock.Broker) -> None:
    """Messages alone and in batches, with every field there and not there, over all partitions."""
    for number in range(20):
        broker.publish("orders", f"single {number}", key=f"customer {number % 7}", priority=number * 12)
    broker.publish("orders", b"", key=b"")
    broker.publish("orders", bytes(range(256)), key=b"\0\xff", headers={"": "", "größe": "☕ 'quoted' \"twice\"\0"})
    broker.publish("orders", "later", delay="1h", partition=2, expires_in="2h")
    broker.publish("orders", "at its time", deliver_at="2099-12-31T23:59:59.999999Z", dedupe_id="once", partition=0)
    broker.publish_many("orders", [b"%d" % number for number in range(50)])
    broker.publish_many(
        "orders",
        [
            Message(
                f"batch {number}",
                key=None if number % 3 == 0 else f"key {number % 11}",
                headers={"number": str(number)} if number % 4 == 0 else None,
                priority=("critical", 77, "background")[number % 3],
                delay="7d" if number % 5 == 0 else None,
                dedupe_id=f"id {number}" if number % 2 == 0 else None,
                expires_in="30d" if number % 7 == 0 else None,
            )
            for number in range(101)
        ],
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a topic of three partitions, all settled, two segments a partition."""
    path = tmp_path_factory.mktemp("data")
    with penstock.open(path, topic_defaults={"partitions": 3, "max_delay": "50000d"}) as broker:
        publish_all_kinds(broker)
        broker.settle()
        publish_all_kinds(broker)
        broker.settle()
    return path


@pytest.fixture(scope="module")
def expected(data: Path) -> list[Row]:
    """The same messages as the broker reads them, by partition and offset."""
    with penstock.open(data) as broker:
        return rows_of(broker.read("orders"))


@pytest.fixture
def files(data: Path) -> str:
    return str(data / "topics/orders/messages/**/*.parquet")


def rows_of(messages: Iterable[StoredMessage]) -> list[Row]:
    return [
        (
            message.partition,
            message.offset,
            message.timestamp_us,
            message.key,
            message.value,
            message.headers,
            message.priority,
            message.deliver_at_us,
            message.dedupe_id,
            message.expires_at_us,
        )
        for message in messages
    ]


def rows_of_arrow(table: pa.Table) -> list[Row]:
    """Arrow rows with times as microseconds and headers as dicts."""
    table = table.sort_by([("partition", "ascending"), ("offset", "ascending")])
    for name in ("timestamp", "deliver_at", "expires_at"):
        table = table.set_column(table.column_names.index(name), name, table.column(name).cast(pa.int64()))
    names = ("partition", "offset", "timestamp", "key", "value", "headers", "priority", "deliver_at")
    cells = [table.column(name).to_pylist() for name in (*names, "dedupe_id", "expires_at")]
    cells[5] = [None if headers is None else dict(headers) for headers in cells[5]]
    return list(zip(*cells, strict=True))


def test_the_rows_to_compare_have_every_kind_of_field(expected: list[Row]) -> None:
    assert len(expected) == 2 * 175 - 52  # the dedupe ids were published twice
    assert {row[0] for row in expected} == {0, 1, 2}
    assert {row[3] for row in expected} > {None, b"", b"\0\xff"}
    assert len({row[6] for row in expected}) > 20
    assert any(row[5] == {"": "", "größe": "☕ 'quoted' \"twice\"\0"} for row in expected)
    assert any(row[7] is not None for row in expected)
    assert any(row[8] is not None for row in expected)
    assert any(row[9] is not None for row in expected)


# DuckDB.


def query(sql: str) -> list[tuple[object, ...]]:
    with duckdb.connect() as connection:
        return list(connection.execute(sql).fetchall())


def test_L2_L13_duckdb_sees_the_rows_that_the_broker_reads(files: str, expected: list[Row]) -> None:
    found = query(
        f"""select partition, "offset", epoch_us(timestamp), key, value, headers, priority, epoch_us(deliver_at),
            dedupe_id, epoch_us(expires_at) from '{files}' order by partition, "offset" """
    )
    assert found == expected


def test_L13_duckdb_sees_the_types_of_the_columns(files: str) -> None:
    described = query(f"describe select * from '{files}'")
    assert {name: kind for name, kind, *_ in described} == {
        "offset": "BIGINT",
        "timestamp": "TIMESTAMP WITH TIME ZONE",
        "key": "BLOB",
        "value": "BLOB",
        "headers": "MAP(VARCHAR, VARCHAR)",
        "priority": "SMALLINT",
        "deliver_at": "TIMESTAMP WITH TIME ZONE",
        "expires_at": "TIMESTAMP WITH TIME ZONE",
        "dedupe_id": "VARCHAR",
        "partition": "INTEGER",
        "producer": "VARCHAR",
    }


def test_duckdb_finds_a_message_by_its_header_and_by_its_time(files: str, expected: list[Row]) -> None:
    by_header = query(f"select count(*) from '{files}' where headers['number'] = '4'")
    assert by_header == [(sum((row[5] or {}).get("number") == "4" for row in expected),)]
    middle_us = sorted(row[2] for row in expected)[len(expected) // 2]
    by_time = query(f"select count(*) from '{files}' where timestamp >= make_timestamptz({middle_us})")
    assert by_time == [(sum(row[2] >= middle_us for row in expected),)]


# pandas.


def test_L2_L13_pandas_sees_the_rows_that_the_broker_reads(data: Path, expected: list[Row]) -> None:
    frame = pd.read_parquet(data / "topics/orders/messages").sort_values(["partition", "offset"])
    found = [
        (
            row.partition,
            row.offset,
            row.timestamp.value // 1000,
            row.key,
            row.value,
            None if row.headers is None else dict(row.headers),
            row.priority,
            None if row.deliver_at is pd.NaT else row.deliver_at.value // 1000,
            None if pd.isna(row.dedupe_id) else row.dedupe_id,
            None if row.expires_at is pd.NaT else row.expires_at.value // 1000,
        )
        for row in frame.itertuples()
    ]
    assert found == expected


def test_L13_pandas_sees_times_in_utc_and_whole_numbers(data: Path) -> None:
    frame = pd.read_parquet(data / "topics/orders/messages")
    assert list(frame.columns) == COLUMNS
    assert str(frame.timestamp.dtype) == str(frame.deliver_at.dtype) == "datetime64[us, UTC]"
    assert [str(frame[name].dtype) for name in ("offset", "priority", "partition")] == ["int64", "int16", "int32"]
    assert frame.timestamp.max() <= pd.Timestamp.now(tz="UTC")
    assert frame.deliver_at.max().to_pydatetime() == datetime(2099, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)


# Arrow.


def test_L2_L13_an_arrow_dataset_sees_the_rows_that_the_broker_reads(data: Path, expected: list[Row]) -> None:
    dataset = ds.dataset(data / "topics/orders/messages", format="parquet")
    assert len(dataset.files) == 6
    assert rows_of_arrow(dataset.to_table()) == expected


def test_L13_an_arrow_dataset_sees_the_types_of_the_columns(data: Path) -> None:
    schema = ds.dataset(data / "topics/orders/messages", format="parquet").schema
    assert {name: schema.field(name).type for name in schema.names} == AS_ARROW
    assert [name for name in schema.names if not schema.field(name).nullable] == [
        "offset",
        "timestamp",
        "value",
        "priority",
        "partition",
    ]


def test_an_arrow_dataset_filters_by_offset_and_partition(data: Path, expected: list[Row]) -> None:
    dataset = ds.dataset(data / "topics/orders/messages", format="parquet")
    table = dataset.to_table(filter=(ds.field("partition") == 1) & (ds.field("offset") >= 10))
    assert rows_of_arrow(table) == [row for row in expected if row[0] == 1 and row[1] >= 10]


# The broker itself, before and after.


def test_L2_the_broker_reads_the_same_before_settling_after_it_and_after_a_restart(tmp_path: Path) -> None:
    with penstock.open(tmp_path, topic_defaults={"partitions": 3, "max_delay": "50000d"}) as broker:
        publish_all_kinds(broker)
        before = rows_of(broker.read("orders"))
        arrow_before = rows_of_arrow(pa.Table.from_batches(broker.read_arrow("orders")))
        broker.settle()
        assert rows_of(broker.read("orders")) == before
        assert arrow_before == rows_of_arrow(pa.Table.from_batches(broker.read_arrow("orders"))) == before
    with penstock.open(tmp_path) as broker:
        assert rows_of(broker.read("orders")) == before
        assert len(before) == 175
    assert rows_of_arrow(ds.dataset(tmp_path / "topics/orders/messages", format="parquet").to_table()) == before


def test_L2_others_read_the_settled_part_while_the_broker_goes_on(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as broker:
        broker.publish_many("orders", [b"settled"] * 10)
        broker.settle()
        broker.publish_many("orders", [b"not settled"] * 10)
        count = f"select count(*), max(\"offset\") from '{tmp_path}/topics/orders/messages/**/*.parquet'"
        assert query(count) == [(10, 9)]
        broker.settle()
        assert query(count) == [(20, 19)]
        assert [message.offset for message in broker.read("orders")] == list(range(20))
