"""The one table of names: every option in every source, and every key that a configuration file may have.

The keys are ours and those of GoQueue's file, so that such a file works unchanged; both may be mixed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from penstock.model.bounds import nearest
from penstock.model.config import BrokerConfig, TopicConfig
from penstock.model.errors import InvalidArgument
from penstock.model.options import text, whole, yes_or_no
from penstock.model.units import parse_duration
from penstock.server.settings.options import ServerConfig
from penstock.server.settings.values import read

SECTIONS = {"server": ServerConfig, "broker": BrokerConfig, "topic_defaults": TopicConfig}
_PREFIXES = {"server": "", "broker": "broker_", "topic_defaults": "topic_"}
_INNER = ("broker", "topic_defaults")  # options that are sections themselves


@dataclass(frozen=True, slots=True)
class Setting:
    """One option: its section and name in files, its default and its parser."""

    section: str
    name: str
    default: object
    parse: Callable[[object], Any]

    @property
    def key(self) -> str:
        """The name with its section: `broker.sync`."""
        return f"{self.section}.{self.name}"

    @property
    def flat(self) -> str:
        """The name that needs no section: `native_port`, `broker_sync`, `topic_partitions`."""
        return _PREFIXES[self.section] + self.name

    @property
    def variable(self) -> str:
        """The name of the environment variable."""
        return f"PENSTOCK_{self.flat.upper()}"

    def of(self, config: ServerConfig) -> object:
        """The value that a configuration has for this option."""
        sections = {"server": config, "broker": config.broker, "topic_defaults": config.broker.topic_defaults}
        return getattr(sections[self.section], self.name)


SETTINGS = {
    setting.key: setting
    for section, config in SECTIONS.items()
    for option in dataclasses.fields(config)
    if option.name not in _INNER
    for setting in [Setting(section, option.name, option.default, option.metadata["parse"])]
}


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a key of a file comes to: the options that it sets, and what its author should know."""

    sets: Mapping[str, object] = field(default_factory=dict)
    notice: str | None = None


def _own(key: str) -> Callable[[object], Meaning]:
    return lambda value: Meaning({key: value})


def _node_id(value: object) -> Meaning:
    read(text, value)
    return Meaning(notice="one broker needs no node id: it is not used")


def _listener(port_key: str, example: str, notice: str | None, value: object) -> Meaning:
    """The port of an address, and its host if it names one."""
    host, colon, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not colon or not port.isdecimal():
        raise InvalidArgument(f"{value!r} is not an address such as '{example}' or '127.0.0.1{example}'")
    host = host.removeprefix("[").removesuffix("]")
    return Meaning({port_key: port, "server.host": host} if host else {port_key: port}, notice)


def _replication_factor(value: object) -> Meaning:
    if read(whole(1, 1_000_000), value) == 1:
        return Meaning()
    return Meaning(
        notice="one machine keeps one copy: with `sync: always`, the default, a message is on its disk (fsync) before "
        "it is acknowledged, and there are no copies on other machines"
    )


def _retention_hours(value: object) -> Meaning:
    def hours(number: object) -> float:
        if isinstance(number, str):
            raise InvalidArgument(f"{number!r} is not a number of hours")
        return parse_duration(number) * 3600

    return Meaning({"topic_defaults.retention_age": read(hours, value)})


def _max_retries(value: object) -> Meaning:
    # The number is taken over as it is: "3 retries" is the default there and three failed deliveries is the default
    # here, and both mean the same practice. A strict reading, a first delivery and three more, would give four.
    # No retries at all leaves one delivery.
    failures = max(1, read(whole(0, 1_000_000), value))
    return Meaning(
        {"topic_defaults.max_deliveries": failures},
        f"taken as max_deliveries: a message is dead-lettered after {failures} failed deliveries, the first included",
    )


def _always_on(what: str, hint: str) -> Callable[[object], Meaning]:
    def check(value: object) -> Meaning:
        if read(yes_or_no, value):
            return Meaning()
        raise InvalidArgument(f"{what} cannot be switched off: {hint}")

    return check


def _lanes(value: object) -> Meaning:
    read(whole(1, 256), value)
    return Meaning(notice="all 256 lanes are always there: high is lane 64, normal 128, low 192")


FOREIGN: dict[str, Callable[[object], Meaning]] = {
    "broker.node_id": _node_id,
    "broker.data_dir": _own("server.data_dir"),
    "broker.listeners.http": partial(_listener, "server.http_port", ":8080", None),
    "broker.listeners.grpc": partial(
        _listener, "server.native_port", ":9000", "the native protocol listens here, not gRPC"
    ),
    "defaults.topic.partitions": _own("topic_defaults.partitions"),
    "defaults.topic.replication_factor": _replication_factor,
    "defaults.topic.retention.hours": _retention_hours,
    "defaults.topic.retention.bytes": _own("topic_defaults.retention_bytes"),
    "defaults.delivery.visibility_timeout": _own("topic_defaults.visibility_timeout"),
    "defaults.delivery.max_retries": _max_retries,
    "defaults.delivery.dlq_enabled": _always_on("dead letters", "a message that keeps failing goes to <topic>.dlq"),
    "defaults.delay.enabled": _always_on("delays", "set the longest delay (maxDelay) to 0 to refuse them"),
    "defaults.delay.max_delay": _own("topic_defaults.max_delay"),
    "defaults.priority.lanes": _lanes,
}

KEYS: dict[str, Callable[[object], Meaning]] = {key: _own(key) for key in SETTINGS} | FOREIGN


def camel(name: str) -> str:
    """The other spelling of a name: `nativePort` for `native_port`."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def children(section: str) -> dict[str, str]:
    """The keys below a section of a file, each in both spellings, with the spelling that the table has."""
    prefix = f"{section}." if section else ""
    names = dict.fromkeys(key.removeprefix(prefix).split(".")[0] for key in KEYS if key.startswith(prefix))
    return {spelling: name for name in names for spelling in (name, camel(name))}


def suggestion(name: str, known: Collection[str]) -> str:
    """The nearest known name as the end of a sentence; nothing when none is near."""
    near = nearest(name, known)
    return f", did you mean {near[0]}?" if near else ""
