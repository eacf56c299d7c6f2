"""Options: parsed as people write them, and every problem named at once, with the nearest known name."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.config import BrokerConfig, TopicConfig
from penstock.model.errors import InvalidArgument
from penstock.model.options import choice, duration, optional, size, text, whole

BROKER_NAMES = [field.name for field in dataclasses.fields(BrokerConfig)]
TOPIC_NAMES = [field.name for field in dataclasses.fields(TopicConfig)]


def problems(options: dict[str, Any], *, topic: bool = False) -> str:
    with pytest.raises(InvalidArgument) as refused:
        if topic:
            TopicConfig.parse(options)
        else:
            BrokerConfig.parse(options)
    return str(refused.value)


def test_no_options_give_the_defaults() -> None:
    assert BrokerConfig.parse({}) == BrokerConfig()
    assert TopicConfig.parse({}) == TopicConfig()


def test_the_default_is_to_sync_before_a_publish_is_acknowledged() -> None:
    assert BrokerConfig().sync == "always"


@pytest.mark.parametrize("config", [BrokerConfig(), TopicConfig()], ids=["broker", "topic"])
def test_every_default_would_be_accepted_if_it_were_written(config: BrokerConfig | TopicConfig) -> None:
    options = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    assert type(config).parse(options) == config


def test_options_are_taken_as_people_write_them() -> None:
    config = BrokerConfig.parse(
        {"sync": "interval", "sync_interval": "250ms", "journal_file_bytes": "1MiB", "settle_after": timedelta(hours=2)}
    )
    assert (config.sync, config.sync_interval) == ("interval", 0.25)
    assert (config.journal_file_bytes, config.settle_after) == (1 << 20, 7200.0)


def test_topic_options_are_set_over_a_base_and_leave_the_rest_of_it_alone() -> None:
    base = TopicConfig.parse({"partitions": 4, "retention_age": "1d", "retention_bytes": "1GB"})
    changed = TopicConfig.parse({"retention_age": None, "archive": Path("/old")}, base)
    assert changed == TopicConfig(4, None, 10**9, "/old", 300.0)
    assert base.retention_age == 86400.0


def test_the_defaults_of_topics_are_options_inside_the_options_of_the_broker() -> None:
    written = BrokerConfig.parse({"topic_defaults": {"partitions": 8, "dedupe_window": "1h"}})
    assert written.topic_defaults == TopicConfig(partitions=8, dedupe_window=3600.0)
    assert BrokerConfig.parse({"topic_defaults": written.topic_defaults}) == written


def test_every_problem_is_named_at_once() -> None:
    text = problems({"sync": "sometimes", "journal_file_bytes": 1, "max_value_byte": "1MiB", "settle_after": "soon"})
    assert text.startswith("broker options: ")
    assert "sync: 'sometimes' is not one of always, interval, never" in text
    assert f"journal_file_bytes: 1 is not between 4096 and {1 << 30} bytes" in text
    assert "max_value_byte: unknown option, did you mean max_value_bytes?" in text
    assert "settle_after: 'soon' is not a duration" in text


def test_a_problem_inside_the_defaults_of_topics_is_named_with_its_place() -> None:
    text = problems({"topic_defaults": {"partitons": 2, "archive": ""}})
    assert "topic_defaults: topic options: partitons: unknown option, did you mean partitions?" in text
    assert "archive: '' is not a path" in text


@pytest.mark.parametrize("value", [7, "partitions=8", None, ["partitions"]])
def test_defaults_of_topics_that_are_not_a_mapping_are_refused(value: object) -> None:
    assert f"topic_defaults: {value!r} is not a mapping of topic options" in problems({"topic_defaults": value})


@pytest.mark.parametrize("broken", [{"partitions": 0}, {"retention_age": "7d"}])
def test_a_topic_config_made_by_hand_is_checked_like_written_options(broken: dict[str, Any]) -> None:
    by_hand = TopicConfig(**broken)
    (name, value) = next(iter(broken.items()))
    try:
        accepted = BrokerConfig.parse({"topic_defaults": by_hand}).topic_defaults
    except InvalidArgument as refused:
        assert name in str(refused)
    else:
        assert accepted == TopicConfig.parse(broken), f"{name}={value!r} went through unchecked"


@given(st.sampled_from([(name, False) for name in BROKER_NAMES] + [(name, True) for name in TOPIC_NAMES]), st.data())
def test_a_name_with_one_letter_missing_gets_a_known_name_suggested(
    known: tuple[str, bool], data: st.DataObject
) -> None:
    name, topic = known
    hole = data.draw(st.integers(0, len(name) - 1))
    misspelt = name[:hole] + name[hole + 1 :]
    if misspelt in (TOPIC_NAMES if topic else BROKER_NAMES):
        return
    text = problems({misspelt: 1}, topic=topic)
    assert f"{misspelt}: unknown option, did you mean " in text
    assert text.rsplit(" ", 1)[1].removesuffix("?") in (TOPIC_NAMES if topic else BROKER_NAMES)


def test_a_name_that_is_like_no_other_gets_no_suggestion() -> None:
    assert problems({"zzzzzz": 1}, topic=True) == "topic options: zzzzzz: unknown option"


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("partitions", 0, "is not a whole number from 1 to 65536"),
        ("partitions", 65_537, "is not a whole number from 1 to 65536"),
        ("partitions", "4", "is not a whole number from 1 to 65536"),
        ("partitions", True, "is not a whole number from 1 to 65536"),
        ("retention_age", "-1d", "is not a duration: give seconds, a timedelta, or text"),
        ("retention_bytes", "lots", "is not a size: give bytes, or text"),
        ("retention_bytes", (1 << 60) + 1, f"is not between 0 and {1 << 60} bytes"),
        ("archive", "", "is not a path"),
        ("dedupe_window", None, "is not a duration"),
    ],
)
def test_a_topic_option_out_of_range_is_refused_with_its_name_and_what_is_allowed(
    name: str, value: object, allowed: str
) -> None:
    text = problems({name: value}, topic=True)
    assert text.startswith(f"topic options: {name}: {value!r} ")
    assert allowed in text


@pytest.mark.parametrize("value", [True, 5])
def test_an_archive_that_is_neither_text_nor_a_path_is_refused(value: object) -> None:
    assert f"archive: {value!r} is not a path" in problems({"archive": value}, topic=True)


@pytest.mark.parametrize(
    "name",
    sorted(set(BROKER_NAMES) - {"sync", "commit_interval", "readable_by", "cache_dir", "topic_defaults"}),
)
def test_no_limit_of_the_broker_can_be_below_zero_nothing_or_text(name: str) -> None:
    for value in (-1, None, "nonsense"):
        assert f"{name}: {value!r} is not a" in problems({name: value})


def test_a_configuration_cannot_be_changed_after_it_was_checked() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        BrokerConfig().sync = "never"  # type: ignore[misc]


def test_each_parser_takes_both_ends_of_its_range_and_nothing_beyond() -> None:
    assert [whole(1, 3)(1), whole(1, 3)(3), size(1, 1024)("1KiB"), duration(0.5)("500ms")] == [1, 3, 1024, 0.5]
    assert [choice("a", "b")("b"), optional(whole(1, 3))(None), text(Path("x"))] == ["b", None, "x"]
    for parse, value, said in [
        (whole(1, 3), 4, "from 1 to 3"),
        (size(1, 1024), 1025, "between 1 and 1024 bytes"),
        (duration(0.5), 0.4, "shorter than 0.5 s"),
        (choice("a", "b"), "c", "one of a, b"),
        (text, None, "not a path"),
    ]:
        with pytest.raises(InvalidArgument, match=said):
            parse(value)


def test_a_topic_that_exists_can_be_changed_in_all_but_what_is_fixed() -> None:
    config = TopicConfig.parse({"partitions": 4, "order": "key", "max_deliveries": 5})
    assert config.changed({"max_deliveries": 6, "partitions": 4, "order": "key"}) == dataclasses.replace(
        config, max_deliveries=6
    )
    with pytest.raises(InvalidArgument) as error:
        config.changed({"partitions": 5, "order": "lane", "max_deliveries": 0})
    assert str(error.value) == (
        "topic options: partitions: it is 4 and cannot be changed: keys would go to other partitions than their older "
        "messages; order: it is 'key' and cannot be changed: what is being delivered was handed out by the old order; "
        "max_deliveries: 0 is not a whole number from 1 to 1000000"
    )
