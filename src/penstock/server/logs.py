"""The server's log: lines for people on a terminal, one JSON object a line otherwise; extras become fields.

    log.warning("connection refused", extra={"peer": "10.0.0.7:5120", "connections": 10_000})

gives `2026-01-31 12:00:00.123 WARNING connection refused peer=10.0.0.7:5120 connections=10000`. A log must never stop
what it tells of, and clients choose some of its words: odd values are written somehow, control characters escaped.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, TextIO

import msgspec

from penstock.model.visible import visible, visible_json

_STANDARD = {*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName"}
_OURS = {"time", "level", "logger", "message", "exception"}
_BARE = re.compile(r"[^\s\"'=\\\x00-\x1f\x7f-\x9f]+")
_UNWRITABLE = "(a value that cannot be written)"


def set_up_logging(
    level: str,
    format: str,  # noqa: A002 - the name of the option
    stream: TextIO,
    fields: Mapping[str, object] | None = None,
) -> None:
    """Send all logs to the stream: ours from this level on, those of libraries from `warning` on.

    `format` is `text`, `json`, or `auto`: text on a terminal. Every line has these `fields`. Called again, it replaces
    what it set up before.
    """
    people = stream.isatty() if format == "auto" else format == "text"
    handler = _Handler(stream)
    if fields:
        handler.addFilter(partial(_add_fields, fields))
    handler.setFormatter(_Text() if people else _Json())
    root = logging.getLogger()
    for earlier in [handler for handler in root.handlers if isinstance(handler, _Handler)]:
        root.removeHandler(earlier)
    root.addHandler(handler)
    wanted = logging.getLevelNamesMapping()[level.upper()]
    root.setLevel(max(wanted, logging.WARNING))
    logging.getLogger("penstock").setLevel(wanted)


def _add_fields(fields: Mapping[str, object], record: logging.LogRecord) -> bool:
    for name, value in fields.items():
        record.__dict__.setdefault(name, value)
    return True


class _Handler(logging.StreamHandler[TextIO]):
    """Writes what the stream's encoding has, and question marks for the rest."""

    def format(self, record: logging.LogRecord) -> str:
        encoding = getattr(self.stream, "encoding", None) or "utf-8"
        return super().format(record).encode(encoding, "replace").decode(encoding)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).astimezone()
        parts = [moment.isoformat(" ", "milliseconds")[:23], f"{record.levelname:<7}", _escaped(_message(record))]
        parts += [f"{_escaped(name)}={_shown(value)}" for name, value in _extras(record).items()]
        line = " ".join(parts)
        problem = _exception(self, record)
        return "\n    ".join([line, *map(_escaped, problem.split("\n"))]) if problem else line


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        for name, value in _extras(record).items():
            fields[f"{name}_" if name in _OURS else name] = value
        problem = _exception(self, record)
        if problem:
            fields["exception"] = problem
        return "{" + ",".join(f"{_json(name)}:{_json(value)}" for name, value in fields.items()) + "}"


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - arguments that do not fit the message: both are told as they are
        return f"{_text(record.msg)} {_text(record.args)}"


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    return {str(name): value for name, value in record.__dict__.items() if name not in _STANDARD}


def _exception(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    try:
        told = formatter.formatException(record.exc_info) if record.exc_info else record.exc_text or ""
        return "\n".join(part for part in (told, record.stack_info or "") if part)
    except Exception:  # noqa: BLE001 - an exception that cannot even be shown
        return _UNWRITABLE


def _json(value: object) -> str:
    try:
        return visible_json(msgspec.json.encode(value, enc_hook=str).decode())
    except Exception:  # noqa: BLE001 - a value that has no JSON becomes its text
        return msgspec.json.encode(_escaped(_text(value))).decode()


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - a value of any type may fail in any way
        return _UNWRITABLE


def _shown(value: object) -> str:
    """A value in one word, or quoted."""
    text = _text(value)
    if _BARE.fullmatch(text):
        return _escaped(text)
    return '"' + _escaped(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _escaped(text: str) -> str:
    """The text with what could break or forge a line, or move the cursor, written as escapes."""
    return visible(text, keep="\t")
