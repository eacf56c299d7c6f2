"""Topic names and priorities: which are allowed, and what people are told about the others."""

from __future__ import annotations

from enum import IntEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import InvalidArgument, PenstockError
from penstock.model.names import NORMAL, PRIORITIES, check_topic_name, parse_priority

ALLOWED = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

# Topic names.


@given(st.text(ALLOWED, min_size=1, max_size=200).filter(lambda name: name not in {".", ".."}))
def test_letters_digits_dots_underlines_and_dashes_make_a_topic_name(name: str) -> None:
    assert check_topic_name(name) == name


@pytest.mark.parametrize("name", ["a", "orders", "orders.dlq", "...", "-", "_", ".hidden", "A" * 200, "2026-01-01"])
def test_short_long_and_odd_names_are_topic_names_too(name: str) -> None:
    assert check_topic_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a" * 201,
        "a/b",
        "../escape",
        "a b",
        "orders\n",
        "\0",
        "bücher",
        "１２",  # digits, but not of ASCII
        "a:b",
        b"orders",
        None,
        7,
        ["orders"],
    ],
)
def test_what_is_not_a_topic_name_is_refused_with_what_is_allowed(name: object) -> None:
    with pytest.raises(InvalidArgument) as refused:
        check_topic_name(name)
    text = str(refused.value)
    assert text.startswith(repr(name)[:80])
    assert "use 1 to 200 of letters, digits, '.', '_' and '-', other than '.' and '..'" in text


@given(st.text().filter(lambda name: set(name) - set(ALLOWED)))
def test_one_character_that_is_not_allowed_is_enough_to_be_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a topic name"):
        check_topic_name(name)


def test_the_refusal_of_a_very_long_name_does_not_repeat_all_of_it() -> None:
    with pytest.raises(InvalidArgument) as refused:
        check_topic_name("x" * 1_000_000)
    assert len(str(refused.value)) < 300
    assert "xxx…" in str(refused.value)


# Priorities.


@pytest.mark.parametrize(
    ("name", "lane"), [("critical", 0), ("high", 64), ("normal", 128), ("low", 192), ("background", 255)]
)
def test_each_priority_name_stands_for_its_number(name: str, lane: int) -> None:
    assert parse_priority(name) == lane
    assert PRIORITIES[name] == lane


def test_the_names_go_from_the_first_delivered_to_the_last_with_normal_as_the_default() -> None:
    assert list(PRIORITIES.values()) == sorted(PRIORITIES.values())
    assert parse_priority("normal") == NORMAL


@given(st.integers(0, 255))
def test_every_whole_number_from_0_to_255_is_a_priority(lane: int) -> None:
    assert parse_priority(lane) == lane


def test_a_member_of_an_enum_of_numbers_is_a_priority() -> None:
    class Lane(IntEnum):
        FIRST = 3

    assert parse_priority(Lane.FIRST) == 3


@pytest.mark.parametrize(
    "value", [-1, 256, 10**30, 1.0, True, False, None, "", "urgent", "High", "128", b"high", [], {}]
)
def test_a_priority_outside_0_to_255_is_refused_with_what_is_allowed(value: object) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_priority(value)
    text = str(refused.value)
    assert text.startswith(f"{value!r} is not a priority")
    assert "0 (first) to 255 (last)" in text
    for name, lane in PRIORITIES.items():
        assert f"{name} ({lane})" in text


def test_a_refusal_can_be_caught_as_an_error_of_penstock_and_as_a_value_error() -> None:
    for kind in (PenstockError, ValueError):
        with pytest.raises(kind, match="is not a priority"):
            parse_priority(256)
