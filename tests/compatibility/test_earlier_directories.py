"""A directory of 0.1.0 opens, and every record in it means what it meant.

`v0_1_0.tar.xz` was made by `make_directory.py` with the code of commit 9259d9f, and `v0_1_0.json.xz` is what that code
told of it. Neither is ever made again; what is told otherwise today is told otherwise on purpose, and is in `_today`.
"""

from __future__ import annotations

import json
import lzma
import shutil
import tarfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from penstock import EventKind
from penstock.cli.main import app
from penstock.delivery.partition import DeliveryState
from penstock.delivery.progress import ProgressState, Tally
from penstock.journal import BlockKind
from penstock.journal.layout import LOST
from penstock.log.checkpoint import Checkpoint, LogState, TopicState, topic_state
from penstock.model.batch import decode_tags
from penstock.model.config import BrokerConfig
from penstock.model.group_settings import GroupSettings
from penstock.shard.checkpoint_files import COPIES
from penstock.shard.recovery import Recovered, recover
from penstock.storage.read_only import ReadOnlyStorage
from penstock.testing import VirtualClock
from tests.compatibility.contents import (
    Block,
    blocks_of,
    checkpoint_of,
    events_in_parquet,
    fields_in_use,
    kinds_of_events,
    query,
    void_groups,
)
from tests.compatibility.description import describe, describe_snapshot, go_on, open_at, plain, repeat
from tests.compatibility.make_directory import DIRECTORIES, finish, make

HERE = Path(__file__).parent
ADDED_LATER: frozenset[EventKind | BlockKind] = frozenset({EventKind.CONFIGURED})
"""Kinds of blocks and events that 0.1.0 did not know: name them here when there are any."""
UNUSED = {"GroupSettings.missing", "GroupSettings.paused"}
"""Fields of the checkpoint that 0.1.0 did not write; the first stands in events only."""


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directories as 0.1.0 left them; nobody changes these."""
    path = tmp_path_factory.mktemp("earlier")
    with tarfile.open(HERE / "v0_1_0.tar.xz") as archive:
        archive.extractall(path, filter="data")
    return path


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """What 0.1.0 told of them, as today's version is to tell it."""
    found: dict[str, Any] = json.loads(lzma.decompress((HERE / "v0_1_0.json.xz").read_bytes()))
    for name in DIRECTORIES:
        _today(found[name])
    return found


@pytest.fixture(params=DIRECTORIES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def data(earlier: Path, name: str, tmp_path: Path) -> Path:
    """A copy of one of them."""
    return copy_of(earlier / name, tmp_path / "copy") / "data"


def copy_of(source: Path, target: Path) -> Path:
    """The same files, as if the broker that has them open had been killed."""
    return Path(shutil.copytree(source, target, ignore=shutil.ignore_patterns("LOCK")))


def _today(one: dict[str, Any]) -> None:
    """Change what 0.1.0 told where that is told otherwise since then."""
    for config in (*one["broker"]["topics"].values(), *(topic["config"] for topic in one["snapshot"]["topics"])):
        config |= {"backlog_groups": "live", "spread": 1}  # options that are new
    moved: dict[tuple[str, int], int] = {}  # a message shows the time that it was given last
    for topic, events in one["broker"]["events"].items():
        for event in events:
            if event["kind"] == "rescheduled":
                moved[topic, event["offset"]] = event["due_us"]
            elif event["kind"] == "cancelled":
                moved.pop((topic, event["offset"]), None)
    assert len(moved) == 4
    for messages in (*one["broker"]["messages"].values(), *one["snapshot"]["messages"].values()):
        for message in messages:
            place = (message["topic"], message["offset"])
            message["deliver_at_us"] = moved.get(place, message.get("deliver_at_us"))
    groups = {(group["topic"], group["name"]): group for group in one["broker"]["groups"]}
    for group in one["snapshot"]["groups"]:  # of a replay it counted all that was published since its beginning
        if group["name"].partition("-")[0] in ("one", "window", "from"):
            group["published"] = groups[group["topic"], group["name"]]["published"]


def comparable(found: dict[str, Any]) -> dict[str, Any]:
    """What is told today, in the same form."""
    found = plain(found)
    for messages in found["messages"].values():
        for message in messages:
            message.setdefault("deliver_at_us", None)
    return without_settings(found)


def without_settings(found: dict[str, Any]) -> dict[str, Any]:
    """The settings of groups are new: 0.1.0 had them, and told them to nobody."""
    for group in found["groups"]:
        settings = group.pop("settings", None)
        if group["name"].startswith("settings-") and settings is not None:
            assert settings == {"visibility_timeout": 300.0, "max_in_flight": 7}
    return found


# What is in it.


def test_the_directories_hold_every_kind_of_block_and_event(earlier: Path) -> None:
    check_every_kind(earlier, [block for block in blocks_of(earlier / "killed" / "data") if block.is_new])


def check_every_kind(home: Path, blocks: list[Block]) -> None:
    """Every kind is in these blocks of the journal, and every kind of event is in Parquet too."""
    events = {kind.value for kind in EventKind if kind not in ADDED_LATER}
    assert kinds_of_events(blocks) == events
    assert events_in_parquet(home) == events
    assert {block.entry.kind for block in blocks} == {kind for kind in BlockKind if kind not in ADDED_LATER}
    repaired = home / "repaired" / "data"
    assert [block.entry.flags & LOST for block in blocks_of(repaired)].count(LOST) == 1
    assert void_groups(repaired) == 1


def test_the_directories_hold_blocks_that_were_carried_on_and_messages_of_single_producers(earlier: Path) -> None:
    blocks = [block.entry for block in blocks_of(earlier / "closed" / "data") if block.entry.kind == BlockKind.MESSAGES]
    latest_us = [max(block.timestamp_us for block in blocks[: place + 1]) for place in range(len(blocks))]
    assert any(block.timestamp_us < before_us for block, before_us in zip(blocks, latest_us, strict=True))
    topics = {topic.name: topic for topic in checkpoint_of(earlier / "closed" / "data").topics}
    assert any(run[2] < 0 for _, _, run in topics["clicks"].producers)  # so it keeps what was published one by one
    served = [block for block in blocks_of(earlier / "served" / "data") if block.entry.kind == BlockKind.MESSAGES]
    assert any(decode_tags(block.body, block.entry.count).origins for block in served if block.is_new)


def test_the_checkpoints_use_every_field(earlier: Path) -> None:
    used = fields_in_use([checkpoint_of(earlier / name / "data") for name in DIRECTORIES])
    structs = (Checkpoint, TopicState, LogState, DeliveryState, ProgressState, Tally, GroupSettings)
    fields = {f"{struct.__name__}.{field}" for struct in structs for field in struct.__struct_fields__}
    assert fields - used == UNUSED
    (record,) = [one for one in checkpoint_of(earlier / "closed" / "data").staged if one.producer == "large"]
    assert record.messages == 200


# What is told of it.


def test_F1_a_broker_tells_of_it_what_the_earlier_version_told_and_so_does_the_next(
    data: Path, name: str, told: dict[str, Any], tmp_path: Path
) -> None:
    expected, now_us = told[name], told["now_us"]
    with open_at(data, now_us) as broker:
        assert broker.recovery.torn_bytes == expected["torn"]
        assert finish(broker) == expected["staged"]
        assert comparable(describe(broker)) == expected["broker"]
        assert plain(repeat(broker)) == expected["repeated"]
        killed = copy_of(data.parent, tmp_path / "killed again") / "data"
    for path in (data, killed):
        with open_at(path, now_us) as broker:
            assert finish(broker) == expected["staged"]
            assert plain(repeat(broker)) == expected["repeated"]
            assert comparable(describe(broker)) == expected["broker"]


def test_F1_either_copy_of_the_checkpoint_is_enough(
    data: Path, name: str, told: dict[str, Any], tmp_path: Path
) -> None:
    for damaged in COPIES:
        copy = copy_of(data.parent, tmp_path / damaged) / "data"
        content = bytearray((copy / damaged).read_bytes())
        content[len(content) // 2] ^= 1
        (copy / damaged).write_bytes(content)
        assert comparable(describe_snapshot(copy)) == told[name]["snapshot"]


def test_F1_a_snapshot_tells_of_it_what_the_earlier_version_told(data: Path, name: str, told: dict[str, Any]) -> None:
    before = {file: file.read_bytes() for file in data.rglob("*") if file.is_file()}
    for _ in range(2):
        assert comparable(describe_snapshot(data)) == told[name]["snapshot"]
    assert {file: file.read_bytes() for file in data.rglob("*") if file.is_file()} == before


def test_F1_recovery_restores_every_field_of_a_checkpoint_that_closing_wrote(earlier: Path) -> None:
    data = earlier / "closed" / "data"
    checkpoint, state = checkpoint_of(data), recovered(data).state
    assert checkpoint.clean
    for topic in checkpoint.topics:
        topic.config |= {"backlog_groups": "live", "spread": 1}  # options that are new
    assert [plain_state(topic_state(topic)) for topic in state.catalog.by_id.values()] == [
        plain_state(topic) for topic in checkpoint.topics
    ]
    assert (state.catalog.floors, state.catalog.next_id) == (checkpoint.floors, checkpoint.next_topic_id)
    assert list(state.staged.values()) == checkpoint.staged


def plain_state(topic: TopicState) -> object:
    """The state of a topic, without the difference between lists and tuples."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(topic), strict=False)


def recovered(data: Path) -> Recovered:
    """What recovery makes of a directory, which is only read."""
    state = recover(ReadOnlyStorage(data), BrokerConfig(), VirtualClock())
    for file in state.files.values():
        file.handle.close()
    return state


def test_L7_every_sequence_in_it_is_known_where_it_was(data: Path) -> None:
    published: list[tuple[int, str, int, int]] = []  # topic, producer, sequence, first offset
    for topic in checkpoint_of(data).topics:
        published += [(topic.id, producer, sequence, run[1]) for producer, sequence, run in topic.producers]
    for block in blocks_of(data):
        if block.entry.kind == BlockKind.MESSAGES and not block.entry.flags & LOST:
            batch = decode_tags(block.body, block.entry.count)
            if batch.producer is not None:
                published.append((block.entry.topic, batch.producer, batch.sequence, block.entry.base))
            for row, producer, sequence, count in batch.origins or ():
                first = block.entry.base + row
                published += [(block.entry.topic, producer, sequence + place, first + place) for place in range(count)]
    state = recovered(data).state
    for number, producer, sequence, first in published:
        histories = state.catalog.by_id[number].producers
        assert histories is not None
        assert first in [run.base for run in histories.find(producer, sequence) or ()]
    assert len(published) > 20


def test_penstock_check_finds_nothing_wrong_with_it(data: Path, name: str, told: dict[str, Any]) -> None:
    result = CliRunner().invoke(app, ["check", str(data), "--output", "json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert (report["verdict"], report["found"]["problems"]) == ("whole", [])
    assert report["found"]["torn_bytes"] == told[name]["torn"]


# Going on with it.


def test_L2_L13_duckdb_reads_the_segments_that_the_earlier_version_wrote(
    data: Path, name: str, told: dict[str, Any]
) -> None:
    known = {
        (message["topic"], message["partition"], message["offset"]): message for message in messages_of(told[name])
    }
    found = {row[:3]: row[3:] for row in rows_in_parquet(data)}
    gone = {place for place in found if place not in known}
    if name == "killed":  # retention and the end of a topic were in the middle: the files go with the next checkpoint
        assert {topic for topic, _, _ in gone} == {"removed", "holes", "deleted-late"}
    else:
        assert gone == set()
    for place in found.keys() - gone:
        value, time_us, priority = found[place]
        message = known[place]
        assert (value.decode("latin-1"), time_us, priority) == (
            message["value"],
            message["timestamp_us"],
            message["priority"],
        )
    assert len(found) > 150


def rows_in_parquet(data: Path) -> list[tuple[Any, ...]]:
    """Topic, partition, offset, value, time and priority of every message in a segment, with those in the archive."""
    topic = "regexp_extract(filename, '([^/]+)/messages/', 1)"
    columns = f'{topic}, partition, "offset", value, epoch_us(timestamp), priority'
    files = f"'{data.parent}/**/messages/*/*.parquet'"
    return query(f"select distinct {columns} from read_parquet({files}, filename=true, union_by_name=true)")


def messages_of(one: dict[str, Any]) -> list[dict[str, Any]]:
    return [message for messages in one["broker"]["messages"].values() for message in messages]


def test_going_on_with_it_does_what_the_earlier_version_did(data: Path, name: str, told: dict[str, Any]) -> None:
    with open_at(data, told["now_us"]) as broker:
        finish(broker)
    with open_at(data, told["now_us"]) as broker:
        assert without_settings(plain(go_on(broker))) == told[name]["gone on"]
        broker.settle()
        rows = {row[:3]: row[3] for row in rows_in_parquet(data)}
        for topic in broker.topics():
            for message in broker.read(topic.name, include_deleted=True):
                assert rows[topic.name, message.partition, message.offset] == message.value
    assert CliRunner().invoke(app, ["check", str(data)]).exit_code == 0


@pytest.mark.crash
def test_the_maker_still_makes_every_kind(tmp_path: Path) -> None:
    make(tmp_path)
    check_every_kind(tmp_path, list(blocks_of(tmp_path / "killed" / "data")))
