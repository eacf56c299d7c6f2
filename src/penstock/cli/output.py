"""What commands show: tables for people, JSON and YAML for programs, and messages as they go by."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.terminal import is_terminal, new_console
from penstock.model.group_settings import GroupSettings
from penstock.model.visible import LAYOUT, visible, visible_json

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from penstock.model.message import StoredMessage

_VARIABLE = "PENSTOCK_OUTPUT"


class Format(StrEnum):
    """How to show one answer."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class StreamFormat(StrEnum):
    """How to show messages one after the other."""

    LINES = "lines"
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    RAW = "raw"


FormatOption = Annotated[Format, typer.Option("--output", "-o", envvar=_VARIABLE, help="For people, or for programs.")]
StreamFormatOption = Annotated[
    StreamFormat,
    typer.Option(
        "--output",
        "-o",
        envvar=_VARIABLE,
        help="Id and value; columns; a JSON object a line; YAML documents; or the bytes of the values.",
    ),
]


# Answers.


def show(answer: object, form: Format, *drawn: RenderableType) -> None:
    """The answer itself for programs, or what was drawn of it for people."""
    if form is Format.JSON:
        show_json(plain(answer))
    elif form is Format.YAML:
        typer.echo((visible_yaml if is_terminal("stdout") else to_yaml)(plain(answer)), nl=False)
    else:
        console = new_console()
        with console.capture() as captured:
            for part in drawn:
                console.print(part, markup=False, highlight=False, soft_wrap=isinstance(part, str))
        text = captured.get()
        if not console.is_terminal:
            text = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
        typer.echo(text, nl=False)


def show_json(answer: object) -> None:
    """Something that is plain already."""
    text = json.dumps(answer, indent=2, ensure_ascii=False)
    typer.echo(visible_json(text) if is_terminal("stdout") else text)


def new_table(*columns: str, rows: Iterable[Sequence[object]] = (), heading: bool = True) -> Table:
    """A table of these columns; `>` before a name puts numbers to the right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=heading, header_style="bold")
    for name in columns:
        table.add_column(name.removeprefix(">"), justify="right" if name.startswith(">") else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(cell, row))
    return table


def cell(value: object) -> RenderableType:
    """A value in a table."""
    from rich.text import Text

    if isinstance(value, Text):
        return value
    if value is None:
        return Text("-", style="dim")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, int):
        return Text(f"{value:,}")
    if isinstance(value, datetime):
        return Text(show_time(value))
    return Text(visible(readable(value)[0] if isinstance(value, bytes) else str(value)))


def show_time(time: datetime) -> str:
    """A point in time for people: UTC, to the millisecond."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3] + "Z"


def show_duration(seconds: float) -> str:
    """A duration for people: `250 ms`, `3.2 s`, `4m 10s`, `2d 3h`."""
    if seconds < 0.0995:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.3g} s"
    left, parts = round(seconds), []
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])


def counted(number: int, noun: str) -> str:
    """A number of things: `1 message`, `2,000 messages`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def shortened(text: str, length: int) -> str:
    """The text, or its beginning."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


# For programs.


def plain(value: Any) -> Any:
    """The same in what JSON and YAML know; times are ISO 8601 in UTC, bytes are text, or base64 that says so."""
    if isinstance(value, datetime):
        return iso_time(value)
    if isinstance(value, bytes):
        return readable(value)[0]
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(item) for item in value]
    if isinstance(value, GroupSettings):
        return value.shown()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    return value if isinstance(value, str | int | float | None) else str(value)


def iso_time(time: datetime) -> str:
    """ISO 8601 in UTC, to the microsecond."""
    in_utc = time if time.tzinfo is UTC else time.astimezone(UTC)
    return f"{in_utc.isoformat(timespec='microseconds')[:-6]}Z"


def to_yaml(value: object, *, allow_unicode: bool = True) -> str:
    """A YAML document."""
    import yaml

    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=allow_unicode, explicit_start=True, width=10_000))


def visible_yaml(value: object) -> str:
    """The same for a terminal: in ASCII, if there is anything in it that would not be seen."""
    text = to_yaml(value)
    return text if visible(text, LAYOUT) == text else to_yaml(value, allow_unicode=False)


def readable(data: bytes) -> tuple[str, str]:
    """Bytes as text, and in which encoding: `utf-8`, or `base64` with a mark before it."""
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(data).decode()}", "base64"


# Messages.


def contents(value: bytes, key: bytes | None) -> dict[str, object]:
    """Key and value for programs; `encoding` is that of the value."""
    shown: dict[str, object] = {}
    for name, data in (("key", key), ("value", value)):
        text, encoding = readable(data) if data is not None else (None, None)
        shown[name] = text.removeprefix("base64:") if text is not None and encoding == "base64" else text
        shown["encoding" if name == "value" else "key_encoding"] = encoding
    return shown


def record(message: StoredMessage) -> dict[str, object]:
    """A message for programs."""
    shown = {
        "id": str(message.id),
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": iso_time(message.timestamp),
        **contents(message.value, message.key),
        "headers": message.headers or {},
        "priority": message.priority,
        "deliver_at": plain(message.deliver_at),
        "expires_at": plain(message.expires_at),
        "dedupe_id": message.dedupe_id,
    }
    for name in ("deliveries", "failures"):
        if hasattr(message, name):  # it was received, not only read
            shown[name] = getattr(message, name)
    return shown


def encode(message: StoredMessage, form: StreamFormat) -> bytes:
    """A message as the line, or the document, that is written of it."""
    if form is StreamFormat.RAW:
        return message.value + b"\n"
    if form is StreamFormat.JSON:
        import msgspec

        return msgspec.json.encode(record(message)) + b"\n"
    if form is StreamFormat.YAML:
        return to_yaml(record(message)).encode()
    text = readable(message.value)[0]
    if form is StreamFormat.LINES:
        return f"{message.id} {text}\n".encode()
    key = "-" if message.key is None else visible(readable(message.key)[0])
    cells = (show_time(message.timestamp), str(message.id).ljust(20), str(message.priority).rjust(3), key.ljust(12))
    return f"{'  '.join(cells)}  {visible(text)}\n".encode()


def encode_visibly(message: StoredMessage, form: StreamFormat) -> bytes:
    """The same for a terminal: it is not obeyed, and it still is JSON or YAML."""
    if form is StreamFormat.YAML:
        return visible_yaml(record(message)).encode()
    text = encode(message, form).decode(errors="backslashreplace")
    return (visible_json(text) if form is StreamFormat.JSON else visible(text, LAYOUT)).encode()


TABLE_HEADING = f"{'time':24}  {'id':20}  {'pri':3}  {'key':12}  value\n".encode()
