"""Which column of a file becomes which part of a message, rows as messages, and problems of bad rows."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.config import BrokerConfig
from penstock.model.errors import InvalidArgument
from penstock.model.names import PRIORITIES, parse_priority
from penstock.model.units import TIME_US_MAX, format_size, parse_digits, parse_time_us
from penstock.spark.files.rows import Block
from penstock.spark.files.sources import Head, Source
from penstock.spark.files.values import json_of_rows, text_of
from penstock.spark.packing import Columns

TIME = "time"
"""The header that keeps the time of a row."""
EXPORTED = ("key", "value", "headers", "priority", "deliver_at", "base64")
"""The columns of an export that are read back."""
BASE64 = "base64"
"""The column that names those of a row whose bytes are not UTF-8 and stand there as base64."""
_decode_headers = msgspec.json.Decoder(dict[str, str] | None).decode
Problems = dict[int, str]


@dataclass(frozen=True)
class Roles:
    """Columns by what they are for."""

    key: str | None = None
    value: str | None = None
    """None: the whole row, as a JSON object."""
    priority: str | None = None
    deliver_at: str | None = None
    time: str | None = None
    headers: tuple[str, ...] = ()
    exported: bool = False
    """The files are those of an export, and say it all by themselves."""

    def __post_init__(self) -> None:
        if self.exported and self.named:
            raise InvalidArgument("files that are loaded as exported have their own columns: name none beside it")
        if self.time is not None and TIME in self.headers:
            raise InvalidArgument(f"the header {TIME!r} is that of the time column, and cannot be another column too")

    @property
    def named(self) -> list[str]:
        """The columns that are needed, each once."""
        given = [self.key, self.value, self.priority, self.deliver_at, self.time, *self.headers]
        return list(dict.fromkeys(name for name in given if name is not None))

    def wanted(self, form: str, there: Sequence[str]) -> list[str] | None:
        """The columns that are to be read of a file; None for all."""
        if self.exported:
            return [name for name in EXPORTED if form == "jsonl" or name in there]
        return None if self.value is None and form != "jsonl" else self.named


def check_columns(sources: Sequence[Source], heads: Sequence[Head], roles: Roles) -> None:
    """Raise if a file has not the columns that are needed."""
    needed = ["value"] if roles.exported else roles.named
    problems: list[str] = []
    for source, head in zip(sources, heads, strict=True):
        missing = [name for name in needed if name not in head.columns]
        if missing and head.columns:  # else it is empty, or every row of it is wrong
            named = " and ".join(repr(name) for name in missing)
            where = " in its first rows" if source.format == "jsonl" else ""
            there = ", ".join(head.columns)
            problems.append(f"{source.path} has no column {named}{where}: there are {there}")
    if problems:
        raise InvalidArgument("; ".join(problems))


def messages_of(block: Block, roles: Roles, limits: BrokerConfig) -> tuple[Columns, Problems]:
    """The rows of a block as messages without the bad ones, and what is wrong with those."""
    problems: Problems = {}
    columns = _exported(block, problems) if roles.exported else _named(block, roles, problems)
    _check_sizes(columns, limits, problems)
    if problems:
        kept = [row for row in range(block.count) if row not in problems]
        columns = columns.select(pa.array(kept, pa.int64()))
    return columns, problems


def _named(block: Block, roles: Roles, problems: Problems) -> Columns:
    there = block.columns
    if roles.value is not None:
        values = _without_nulls(roles.value, _binary(there[roles.value]), problems)
    else:
        values = block.whole if block.whole is not None else _binary(json_of_rows(there))
    headers = [(TIME, roles.time)] if roles.time is not None else []
    headers += [(name, name) for name in roles.headers]
    return Columns(
        values,
        None if roles.key is None else _binary(there[roles.key]),
        [(name, _header(column, there[column], problems)) for name, column in headers],
        None,
        None if roles.priority is None else _priorities(roles.priority, there[roles.priority], problems),
        None if roles.deliver_at is None else _times(roles.deliver_at, there[roles.deliver_at], problems),
    )


def _exported(block: Block, problems: Problems) -> Columns:
    there = block.columns
    values, keys = _binary(there["value"]), there.get("key")
    keys = None if keys is None else _binary(keys)
    if BASE64 in there and there[BASE64].null_count < block.count:
        marks = there[BASE64].to_pylist()
        values = _decoded("value", values, marks, problems)
        keys = None if keys is None else _decoded("key", keys, marks, problems)
    values = _without_nulls("value", values, problems)
    maps = None
    if "headers" in there and there["headers"].null_count < block.count:
        maps = _header_maps(there["headers"], problems)
    return Columns(
        values,
        keys,
        (),
        maps,
        _priorities("priority", there["priority"], problems) if "priority" in there else None,
        _times("deliver_at", there["deliver_at"], problems) if "deliver_at" in there else None,
    )


def _without_nulls(name: str, values: pa.Array, problems: Problems) -> pa.Array:
    if values.null_count:
        _note(problems, values.is_null(), f"{name}: it is NULL, and a message has a value")
    return pc.fill_null(values, b"") if values.null_count else values


def _decoded(name: str, column: pa.Array, marks: list[str | None], problems: Problems) -> pa.Array:
    """A column in which some rows are base64."""
    found = column.to_pylist()
    for row, mark in enumerate(marks):
        if mark and name in mark.split(",") and found[row] is not None:
            try:
                found[row] = base64.b64decode(found[row], validate=True)
            except binascii.Error as error:
                problems.setdefault(row, f"{name}: it is marked as base64 and is none: {error}")
    return pa.array(found, pa.binary())


def _header_maps(column: pa.Array, problems: Problems) -> list[dict[str, str] | None]:
    if pa.types.is_map(column.type):
        return column.to_pylist(maps_as_pydicts="lossy")  # type: ignore[no-any-return]

    def parse(text: str) -> dict[str, str] | None:
        try:
            return _decode_headers(text) or None
        except msgspec.MsgspecError as error:
            raise InvalidArgument(f"it is no JSON object of texts: {error}") from error

    return _each("headers", column, parse, problems)


def _binary(column: pa.Array) -> pa.Array:
    return text_of(column).cast(pa.binary())


def _header(name: str, column: pa.Array, problems: Problems) -> pa.Array:
    """A column as the text of a header."""
    texts = text_of(column)
    if pa.types.is_string(texts.type):
        return texts
    return pa.array(_each(name, texts, _utf8, problems), pa.string())


def _utf8(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"a header is text, and this is not UTF-8: {error}") from error


def _priorities(name: str, column: pa.Array, problems: Problems) -> pa.Array:
    return _by_value(name, column, _priority, pa.uint8(), problems)


@lru_cache(1024)
def _priority(given: Any) -> int:
    if isinstance(given, str) and given not in PRIORITIES:
        given = given.strip()
        number = parse_digits(given)
        given = given if number is None else number
    return parse_priority(int(given) if isinstance(given, float) and given.is_integer() else given)


def _times(name: str, column: pa.Array, problems: Problems) -> pa.Array:
    """Microseconds since 1970."""
    if pa.types.is_timestamp(column.type):
        times = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
        outside = pc.or_(pc.less(times, 0), pc.greater(times, TIME_US_MAX))
        _note(problems, pc.fill_null(outside, False), f"{name}: the time is not between 1970 and 9999")  # noqa: FBT003
        return times
    if pa.types.is_string(column.type):
        try:
            times = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
            if not pc.any(pc.less(times, 0)).as_py():
                return times
        except pa.ArrowInvalid:
            pass

    def parse(given: Any) -> int:
        if isinstance(given, str):
            try:
                given = float(given)
            except ValueError:
                return parse_time_us(given.strip())
        return parse_time_us(given)

    return _by_value(name, column, parse, pa.int64(), problems)


def _by_value(
    name: str, column: pa.Array, parse: Callable[[Any], int], kind: pa.DataType, problems: Problems
) -> pa.Array:
    """Parse each value that there is once."""
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    errors: dict[int, str] = {}
    parsed: list[int | None] = []
    for place, value in enumerate(coded.dictionary.to_pylist()):
        try:
            parsed.append(None if value is None else parse(value))
        except InvalidArgument as error:
            parsed.append(None)
            errors[place] = f"{name}: {error}"
    if errors:
        for row, place in enumerate(coded.indices.to_pylist()):
            if place in errors:
                problems.setdefault(row, errors[place])
    return pa.array(parsed, kind).take(coded.indices)


def _each(name: str, column: pa.Array, parse: Callable[[Any], Any], problems: Problems) -> list[Any]:
    found: list[Any] = []
    for row, value in enumerate(column.to_pylist()):
        try:
            found.append(None if value is None else parse(value))
        except InvalidArgument as error:
            found.append(None)
            problems.setdefault(row, f"{name}: {error}")
    return found


def _check_sizes(columns: Columns, limits: BrokerConfig, problems: Problems) -> None:
    for what, column, limit, option in (
        ("value", columns.values, limits.max_value_bytes, "max_value_bytes"),
        ("key", columns.keys, limits.max_key_bytes, "max_key_bytes"),
    ):
        if column is None:
            continue
        sizes = pc.binary_length(column)
        if (pc.max(sizes).as_py() or 0) > limit:
            _note(problems, pc.fill_null(pc.greater(sizes, limit), False), _too_large(what, limit, option))  # noqa: FBT003
    limit = limits.max_headers_bytes
    told = _too_large("headers", limit, "max_headers_bytes")
    if columns.maps is not None:
        for row, header in enumerate(columns.maps):
            if header and sum(len(name.encode()) + len(text.encode()) for name, text in header.items()) > limit:
                problems.setdefault(row, told)
    elif columns.headers:
        sizes = None
        for name, column in columns.headers:
            mine = pc.fill_null(pc.add(pc.binary_length(column), len(name.encode())), 0)
            sizes = mine if sizes is None else pc.add(sizes, mine)
        if (pc.max(sizes).as_py() or 0) > limit:
            _note(problems, pc.greater(sizes, limit), told)


def _too_large(what: str, limit: int, option: str) -> str:
    return f"the {what} of the message would have more than {format_size(limit)} ({option} of the server)"


def _note(problems: Problems, rows: pa.Array, wrong: str) -> None:
    for row in pc.indices_nonzero(rows).to_pylist():
        problems.setdefault(row, wrong)
