"""The options of the data source: every one, its meaning, and all that is wrong with those that were given, at once."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.model.bounds import nearest
from penstock.model.errors import InvalidArgument
from penstock.model.units import TIME_US_MAX, parse_size, parse_time_us

EARLIEST, LATEST = -2, -1
"""Offsets that stand for the beginning and the end, as in Kafka's connector."""
TABLES = ("messages", "events", "dead_letters", "groups")
_SECRETS = {
    "token": "the token for the server",
    "tls": "whether to talk to the server by TLS (default false)",
    "ca": "a file with the authorities of the server's certificate (PEM), on every machine; means TLS",
}
_READING = {
    "servers": "the server to read from, host:port",
    "path": "a data directory without a running broker, an archive, a lake, or s3://bucket/place, instead of a server",
    **_SECRETS,
    "subscribe": "topics, by name, with commas between them",
    "subscribePattern": "topics, by a regular expression that matches the whole name",
    "assign": 'partitions, as JSON: {"orders": [0, 2]}',
    "table": f"what to read: {', '.join(TABLES)} (default messages)",
    "startingOffsets": 'earliest, latest or JSON: {"orders": {"0": 23, "1": -2}} (-2 earliest, -1 latest)',
    "endingOffsets": "the same, where to stop before (batch only; default latest)",
    "startingTimestamp": "begin with the first message at or after this time (ISO 8601, or milliseconds since 1970)",
    "endingTimestamp": "stop before the first message at or after this time (batch only)",
    "minPartitions": "at least so many Spark partitions",
    "failOnDataLoss": "whether messages that are gone fail the query (default true)",
    "includeDeleted": "whether what retention moved to an archive is read too (default false)",
    "pushFilters": "whether filters leave data unread, for a DataFrame used in one query only (batch; default false)",
    "maxMessagesPerTrigger": "at most so many messages in a micro-batch",
    "maxBytesPerTrigger": "at most about so much in a micro-batch, such as 64MB",
    "group": "the group under which the broker shows the lag of a stream (default spark-<topics>)",
}
_WRITING = {
    "servers": "the server to write to, host:port",
    **_SECRETS,
    "topic": "the topic of all rows; without it there must be a column `topic`",
    "producer": "the name under which a batch is published once, with its sequence (default: one of its own)",
    "sequence": "the number of the batch among those of its producer, which grows",
}
_DIGITS = re.compile("[0-9]{1,18}")
_OF_SPARK = frozenset({"checkpointlocation", "queryname", "recursivefilelookup"})

Offsets = dict[str, dict[int, int]]
"""By topic and partition."""


@dataclass(frozen=True)
class Position:
    """Where reading begins or ends: a default for all, offsets for some, or a time."""

    default: int
    offsets: Offsets = field(default_factory=dict)
    time_us: int | None = None

    def of(self, topic: str, partition: int) -> int:
        """What was asked for of a partition: an offset, EARLIEST or LATEST."""
        return self.offsets.get(topic, {}).get(partition, self.default)


@dataclass(frozen=True)
class Secrets:
    """How a server is talked to."""

    token: str | None = field(default=None, repr=False)
    tls: bool = False
    ca: str | None = None


@dataclass(frozen=True)
class ReadOptions:
    """What to read, and how."""

    servers: str | None
    path: str | None
    secrets: Secrets
    topics: tuple[str, ...]
    pattern: str | None
    assigned: dict[str, tuple[int, ...]]
    table: str
    start: Position
    end: Position
    min_partitions: int
    fail_on_data_loss: bool
    include_deleted: bool
    push_filters: bool
    max_messages: int | None
    max_bytes: int | None
    group: str


@dataclass(frozen=True)
class WriteOptions:
    """Where to write."""

    servers: str
    secrets: Secrets
    topic: str | None
    producer: str | None = None
    sequence: int = 0


def read_options(given: Mapping[str, str], streaming: bool) -> ReadOptions:
    """The options of a read, checked."""
    options = _Options(given, _READING)
    servers, path = options.text("servers"), options.text("path")
    if (servers is None) == (path is None):
        options.wrong(
            "give `servers` (host:port) or `path` (a data directory, or the address of a bucket), one of the two"
        )
    table = options.choice("table", TABLES, "messages")
    chosen = [name for name in ("subscribe", "subscribePattern", "assign") if options.text(name) is not None]
    if len(chosen) > 1 or (not chosen and table != "groups"):
        options.wrong("give one of `subscribe`, `subscribePattern` and `assign` to say which topics to read")
    topics = tuple(name.strip() for name in (options.text("subscribe") or "").split(",") if name.strip())
    if chosen == ["subscribe"] and not topics:
        options.wrong("subscribe: there is no topic in it")
    pattern = options.pattern("subscribePattern")
    assigned = options.assignment("assign")
    if streaming:
        for name in ("endingOffsets", "endingTimestamp"):
            if options.text(name) is not None:
                options.wrong(f"{name}: a stream has no end; it is for batch reads")
        if options.text("pushFilters") is not None:
            options.wrong("pushFilters: Spark pushes filters down to batch reads only")
        if table in ("dead_letters", "groups"):
            options.wrong(f"table: {table} cannot be read as a stream; messages and events can")
    else:
        for name in ("maxMessagesPerTrigger", "maxBytesPerTrigger", "group"):
            if options.text(name) is not None:
                options.wrong(f"{name}: it is for streams")
    start = options.position("startingOffsets", "startingTimestamp", LATEST if streaming else EARLIEST)
    end = options.position("endingOffsets", "endingTimestamp", LATEST)
    if not streaming and start.default == LATEST and start.time_us is None and not start.offsets:
        options.wrong("startingOffsets: latest leaves nothing for a batch read")
    if end.default == EARLIEST and end.time_us is None:
        options.wrong("endingOffsets: earliest leaves nothing to read")
    if table == "events" and (start.time_us is not None or end.time_us is not None):
        options.wrong("startingTimestamp, endingTimestamp: events go by their numbers; filter the column `time`")
    named = "-".join(topics or assigned) or re.sub(r"[^A-Za-z0-9._-]+", "-", pattern or "").strip("-") or "all"
    found = ReadOptions(
        servers,
        path,
        options.secrets(),
        topics,
        pattern,
        assigned,
        table,
        start,
        end,
        options.whole("minPartitions", 1) or 1,
        options.yes_or_no("failOnDataLoss", default=True),
        options.yes_or_no("includeDeleted", default=False),
        options.yes_or_no("pushFilters", default=False),
        options.whole("maxMessagesPerTrigger", 1),
        options.size("maxBytesPerTrigger"),
        options.text("group") or f"spark-{named}"[:100],
    )
    options.check()
    return found


def write_options(given: Mapping[str, str], streaming: bool) -> WriteOptions:
    """The options of a write, checked."""
    options = _Options(given, _WRITING)
    servers = options.text("servers")
    if servers is None:
        options.wrong("give `servers`, the server to write to (host:port)")
    producer, sequence = options.text("producer"), options.whole("sequence", 0)
    if streaming and (producer is not None or sequence is not None):
        options.wrong("producer, sequence: a stream has its own, from its query and its micro-batches")
    if (producer is None) != (options.text("sequence") is None):
        options.wrong("give `producer` and `sequence` together")
    found = WriteOptions(servers or "", options.secrets(), options.text("topic"), producer, sequence or 0)
    options.check()
    return found


class _Options:
    """Options by name in any case, and what is wrong with them."""

    def __init__(self, given: Mapping[str, str], known: Mapping[str, str]) -> None:
        self._given = {name.lower(): str(value) for name, value in given.items()}
        self._problems: list[str] = []
        lowered = {name.lower(): name for name in known}
        for name in self._given:
            if name not in lowered and name not in _OF_SPARK:
                near = nearest(name, lowered)
                hint = f", did you mean {lowered[near[0]]}?" if near else f"; there are {', '.join(known)}"
                self.wrong(f"there is no option {name!r}{hint}")

    def secrets(self) -> Secrets:
        """How to talk to the server."""
        return Secrets(self.text("token"), self.yes_or_no("tls", default=False), self.text("ca"))

    def wrong(self, problem: str) -> None:
        """Note a problem."""
        self._problems.append(problem)

    def check(self) -> None:
        """Raise if there was any."""
        if self._problems:
            listed = "".join(f"\n  - {problem}" for problem in self._problems)
            raise InvalidArgument(f"the options of format('penstock'):{listed}")

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        found = (self.text(name) or default).lower()
        if found not in choices:
            self.wrong(f"{name}: {found!r} is none of {', '.join(choices)}")
        return found

    def yes_or_no(self, name: str, *, default: bool) -> bool:
        found = self.choice(name, ("true", "false"), str(default).lower())
        return found == "true"

    def whole(self, name: str, lowest: int) -> int | None:
        found = self.text(name)
        if found is None:
            return None
        if not _DIGITS.fullmatch(found.strip()) or int(found) < lowest:
            self.wrong(f"{name}: {found!r} is not a whole number from {lowest}")
            return None
        return int(found)

    def size(self, name: str) -> int | None:
        found = self.text(name)
        if found is None:
            return None
        try:
            return parse_size(found)
        except InvalidArgument as error:
            self.wrong(f"{name}: {error}")
            return None

    def pattern(self, name: str) -> str | None:
        found = self.text(name)
        if found is not None:
            try:
                re.compile(found)
            except re.error as error:
                self.wrong(f"{name}: {found!r} is not a regular expression: {error}")
        return found

    def assignment(self, name: str) -> dict[str, tuple[int, ...]]:
        found = self._json(name)
        assigned: dict[str, tuple[int, ...]] = {}
        for topic, numbers in found.items():
            if not isinstance(numbers, list) or not all(type(n) is int and n >= 0 for n in numbers) or not numbers:
                self.wrong(f'{name}: the partitions of {topic!r} are a list, as in {{"orders": [0, 2]}}')
            else:
                assigned[topic] = tuple(dict.fromkeys(numbers))
        return assigned

    def position(self, offsets: str, time: str, default: int) -> Position:
        given, time_us = self.text(offsets), self._time_us(time)
        words = {"earliest": EARLIEST, "latest": LATEST}
        if given is None or given.lower() in words:
            return Position(words.get((given or "").lower(), default), time_us=time_us)
        found: Offsets = {}
        for topic, places in self._json(offsets).items():
            if not isinstance(places, dict) or not all(
                _DIGITS.fullmatch(number) and type(offset) is int and offset >= EARLIEST
                for number, offset in places.items()
            ):
                self.wrong(f'{offsets}: give offsets by partition, as in {{"{topic}": {{"0": 23, "1": -2}}}}')
            else:
                found[topic] = {int(number): offset for number, offset in places.items()}
        return Position(EARLIEST if offsets == "startingOffsets" else LATEST, found, time_us)

    def _time_us(self, name: str) -> int | None:
        found = self.text(name)
        if found is None:
            return None
        if _DIGITS.fullmatch(found.strip()):  # as Kafka's connector has it
            time_us = int(found) * 1000
            if time_us > TIME_US_MAX:
                self.wrong(f"{name}: {found!r} milliseconds since 1970 are after the year 9999")
            return min(time_us, TIME_US_MAX)
        try:
            return parse_time_us(found)
        except InvalidArgument as error:
            self.wrong(f"{name}: {error}")
            return None

    def _json(self, name: str) -> dict[str, object]:
        text = self.text(name)
        if text is None:
            return {}
        try:
            found = json.loads(text)
        except ValueError as error:
            self.wrong(f"{name}: {text!r} is neither earliest, latest nor JSON: {error}")
            return {}
        if not isinstance(found, dict):
            self.wrong(f"{name}: {text!r} is not a JSON object with topics")
            return {}
        return found
