"""The log: lines for people, objects for machines, and no value so odd that it stops what is logged."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.server.logs import set_up_logging


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Broken:
    def __str__(self) -> str:
        raise RuntimeError("no text for you")

    __repr__ = __str__


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Leave the process's logging as it was."""
    root, ours = logging.getLogger(), logging.getLogger("penstock")
    handlers, levels = list(root.handlers), (root.level, ours.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


log = logging.getLogger("penstock.server")


def lines(form: str, message: str, *arguments: object, **extra: Any) -> list[str]:
    stream = io.StringIO()
    logging.getLogger().handlers.clear()  # those of pytest raise what ours must not
    set_up_logging("info", form, stream)
    log.info(message, *arguments, extra=extra)
    return stream.getvalue().splitlines()


def only(form: str, message: str, *arguments: object, **extra: Any) -> str:
    (line,) = lines(form, message, *arguments, **extra)
    return line


def test_a_line_for_people_has_time_level_message_and_pairs() -> None:
    line = only("text", "connection %s", "closed", peer="10.0.0.7:5120", reason="idle too long", count=3)
    time, rest = line[:23], line[24:]
    assert abs(datetime.now(UTC) - datetime.fromisoformat(time).astimezone()) < timedelta(minutes=1)
    assert rest == 'INFO    connection closed peer=10.0.0.7:5120 reason="idle too long" count=3'


def test_an_object_for_machines_has_everything_and_a_time_with_a_zone() -> None:
    fields = json.loads(only("json", "connection %s", "closed", peer="10.0.0.7:5120", count=3, tags=["a"], none=None))
    assert datetime.fromisoformat(fields.pop("time")).tzinfo is not None
    assert fields == {
        "level": "info",
        "logger": "penstock.server",
        "message": "connection closed",
        "peer": "10.0.0.7:5120",
        "count": 3,
        "tags": ["a"],
        "none": None,
    }


def test_auto_is_text_on_a_terminal_and_json_otherwise() -> None:
    for stream, first in ((Terminal(), "2"), (io.StringIO(), "{")):
        set_up_logging("info", "auto", stream)
        log.info("hello")
        assert stream.getvalue().startswith(first)


def fail() -> None:
    raise ValueError("wrong \x1b[31m value")


def test_exceptions_are_told_with_their_traceback() -> None:
    for form in ("text", "json"):
        stream = io.StringIO()
        set_up_logging("info", form, stream)
        try:
            fail()
        except ValueError:
            log.exception("it failed", extra={"topic": "orders"})
        if form == "json":
            exception = json.loads(stream.getvalue())["exception"]
            assert exception.startswith("Traceback") and exception.endswith("ValueError: wrong \x1b[31m value")
        else:
            first, *rest = stream.getvalue().splitlines()
            assert first.endswith("it failed topic=orders")
            assert all(line.startswith("    ") for line in rest)
            assert rest[-1] == r"    ValueError: wrong \x1b[31m value"


def test_only_the_wanted_levels_are_written_and_libraries_only_from_warning_on() -> None:
    stream = io.StringIO()
    set_up_logging("debug", "text", stream)
    log.debug("ours")
    logging.getLogger("library").info("theirs")
    logging.getLogger("library").warning("their warning")
    set_up_logging("error", "text", stream)
    log.warning("not any more")
    logging.getLogger("library").warning("not any more")
    assert [line.split(maxsplit=3)[3] for line in stream.getvalue().splitlines()] == ["ours", "their warning"]


def test_set_up_again_replaces_the_stream_and_leaves_other_handlers_alone() -> None:
    other = logging.NullHandler()
    logging.getLogger().addHandler(other)
    first, second = io.StringIO(), io.StringIO()
    set_up_logging("info", "text", first)
    set_up_logging("info", "text", second)
    log.info("hello")
    assert first.getvalue() == "" and second.getvalue().count("hello") == 1
    assert other in logging.getLogger().handlers


def test_text_from_outside_cannot_forge_a_line_or_move_the_cursor() -> None:
    forged = "a\n2026-01-01 ERROR forged \x1b[2J"
    line = only("text", "topic %s", forged, key='x" level=ERROR\r\n', **{"k\n": "\u2028"})
    assert r"topic a\n2026-01-01 ERROR forged \x1b[2J" in line
    assert r'key="x\" level=ERROR\r\n"' in line
    assert r'k\n="\u2028"' in line
    assert len(lines("json", "a\nb", key="c\r\nd")) == 1


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    "value",
    [Broken(), float("nan"), 10**400, {(1, 2): 3}, b"\xff", "\ud800", {1, 2}, object(), [[Broken()]], datetime.now],
    ids=lambda value: type(value).__name__,
)
def test_no_value_is_too_odd(form: str, value: object, capsys: pytest.CaptureFixture[str]) -> None:
    line = only(form, "odd", value=value, count=1)
    if form == "json":
        fields = json.loads(line)
        assert (fields["message"], fields["count"]) == ("odd", 1)
        assert "value" in fields
    else:
        assert " odd value=" in line and line.endswith(" count=1")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("arguments", [("one", "two"), (Broken(),), ({"a": 1},)])
def test_arguments_that_do_not_fit_the_message_are_told_beside_it(form: str, arguments: tuple[object, ...]) -> None:
    assert "count %d" in only(form, "count %d", *arguments)


def test_fields_of_the_same_name_do_not_hide_each_other() -> None:
    fields = json.loads(only("json", "hello", time="soon", level="sea", exception="none"))
    assert (fields["time_"], fields["level"], fields["level_"], fields["exception_"]) == ("soon", "info", "sea", "none")


def test_a_stream_of_few_letters_gets_question_marks() -> None:
    for form in ("text", "json"):
        raw = io.BytesIO()
        stream = io.TextIOWrapper(raw, encoding="ascii")
        set_up_logging("info", form, stream)
        log.info("größer", extra={"name_": "ü"})
        stream.flush()
        assert b"gr??er" in raw.getvalue()


@given(st.text(), st.dictionaries(st.text(min_size=1), st.one_of(st.text(), st.integers(), st.floats(), st.binary())))
def test_whatever_is_logged_is_one_line_and_valid(message: str, extra: dict[str, Any]) -> None:
    record = logging.makeLogRecord({"msg": message, "levelname": "INFO", "levelno": logging.INFO, "name": "penstock"})
    record.__dict__.update({f"x{name}": value for name, value in extra.items()})
    for form in ("text", "json"):
        stream = io.StringIO()
        set_up_logging("info", form, stream)
        logging.getLogger().handle(record)
        written = stream.getvalue()
        assert written.endswith("\n") and written.count("\n") == 1
        if form == "json":
            assert json.loads(written)["message"] == message


def test_importing_sets_up_nothing() -> None:
    code = "import logging, penstock.server.logs; print(logging.getLogger().handlers, logging.getLogger().level)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[] 30\n", done.stderr
