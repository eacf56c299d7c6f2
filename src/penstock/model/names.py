"""Names of topics, groups, stages and priorities: which are allowed, and what they mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeGuard

from penstock.model.bounds import shown
from penstock.model.errors import InvalidArgument

DEAD_LETTERS = ".dlq"
TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}(\.dlq)?")
GROUP_NAME = re.compile(r"[A-Za-z0-9._:-]{1,200}")
STAGE_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
PRIORITIES = {"critical": 0, "high": 64, "normal": 128, "low": 192, "background": 255}
NORMAL = PRIORITIES["normal"]
LOWEST = 255

Priority = int | str


def check_topic_name(name: object) -> str:
    """The name itself, if it is a valid topic name."""
    if _is_topic_name(name):
        return str.__str__(name)
    raise InvalidArgument(
        f"{shown(name)} is not a topic name: use 1 to 200 of letters, digits, '.', '_' and '-', other than '.' and '..'"
    )


def check_topic_names(topics: object) -> list[str]:
    """The names of one topic or of several different ones, checked."""
    names = [topics] if isinstance(topics, str) else list(topics) if isinstance(topics, Iterable) else []
    if not names or len({check_topic_name(name) for name in names}) < len(names):
        raise InvalidArgument(f"{shown(topics)} is not a topic or a list of different topics")
    return names


def stored_topic_name(name: str, topic_id: int) -> str:
    """The name of a topic from a journal or a checkpoint; an invalid one is replaced by a name with its number."""
    return name if _is_topic_name(name) else recovered_name(topic_id)


def recovered_name(topic_id: int) -> str:
    """The name of a topic whose own name is lost."""
    return f"recovered-{topic_id}"


def _is_topic_name(name: object) -> TypeGuard[str]:
    return isinstance(name, str) and TOPIC_NAME.fullmatch(name) is not None and name not in (".", "..")


def check_group_name(name: object, what: str = "group") -> str:
    """The name itself, if it is a valid name of a group or a consumer."""
    if isinstance(name, str) and GROUP_NAME.fullmatch(name):
        return str.__str__(name)
    raise InvalidArgument(
        f"{shown(name)} is not the name of a {what}: use 1 to 200 of letters, digits, '.', '_', '-' and ':'"
    )


def check_stage_name(name: object) -> str:
    """The name itself, if it is a valid stage name."""
    if isinstance(name, str) and STAGE_NAME.fullmatch(name):
        return str.__str__(name)
    raise InvalidArgument(
        f"{shown(name)} is not the name of a stage: use 1 to 200 of letters, digits, '.', '_' and '-'"
    )


def parse_priority(value: object) -> int:
    """The lane number of a priority given by number or name; lower numbers are delivered first."""
    if isinstance(value, str) and value in PRIORITIES:
        return PRIORITIES[value]
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 255:
        return int(value)
    names = ", ".join(f"{name} ({number})" for name, number in PRIORITIES.items())
    raise InvalidArgument(f"{shown(value)} is not a priority: give 0 (first) to 255 (last), or one of {names}")


def check_stage_names(names: object) -> list[str]:
    """The names of stages, checked; each may be given once."""
    if isinstance(names, str | bytes) or not isinstance(names, Sequence):
        raise InvalidArgument(f"{shown(names)} is not a list of the names of stages")
    checked = [check_stage_name(name) for name in names]
    if len(set(checked)) < len(checked):
        raise InvalidArgument("a stage is named twice")
    return checked
