"""The page of the protocol is true: every command, body, operation and error is in it, and its bytes are the code's."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.api.operations import OPERATIONS
from penstock.model import (
    events,
    info,
    layout,
    letters,
    message,
    pipelines,
    processes,
    schedules,
    singles,
    tokens,
    traces,
)
from penstock.protocol import consuming, failures, publishing, session
from penstock.protocol.frames import ERROR, REPLY, Command, FrameReader, frame
from penstock.protocol.publishing import Publish, published_single
from penstock.protocol.session import Hello, Welcome
from penstock.server import workers
from penstock.server.native import connection, consumers, delivering
from penstock.server.operations import HANDLERS
from penstock.server.settings.options import ServerConfig
from tests.protocol.harness import Wire
from tests.server.harness import Running

PAGE = (Path(__file__).parents[2] / "docs/reference/protocol.md").read_text()
BODIES = {
    name: kind
    for module in (consuming, failures, publishing, session)
    for name, kind in vars(module).items()
    if inspect.isclass(kind) and issubclass(kind, msgspec.Struct) and kind.__module__ == module.__name__
}
FORMS = [
    *(layout.TopicLayout, layout.LogLayout, layout.SegmentPlace),
    *(info.TopicInfo, info.PartitionInfo, info.GroupInfo, info.MemberInfo, info.BrokerStatus, info.RecoveryReport),
    *(message.MessageId, message.StoredMessage, schedules.DelayedMessage, schedules.Schedule, singles.Single),
    *(letters.DeadLetter, letters.RedriveReport, traces.Trace, traces.TraceLine, events.Event),
    *(tokens.TokenInfo, tokens.NewToken, pipelines.PipelineReport, pipelines.QueryReport),
    *(processes.ClusterInfo, processes.ProcessInfo, processes.ShardInfo, processes.Move),
]


def table_after(text: str) -> list[list[str]]:
    """The cells of the first table behind some text."""
    found = re.search(r"\n\n((?:\|.*\n)+)", PAGE[PAGE.index(text) :])
    assert found is not None
    return [[cell.strip() for cell in line.strip("|\n").split("|")] for line in found[1].splitlines()[2:]]


def literal(value: object) -> str:
    """A default as the page writes it."""
    return "nil" if value is None else json.dumps(value)


def default_of(field: msgspec.structs.FieldInfo) -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        return f"`{literal(field.default_factory())}`"
    return "" if field.required else f"`{literal(field.default)}`"


def test_every_command_is_in_the_table_with_its_number_and_bodies() -> None:
    rows = {name.strip("`"): cells for name, *cells in table_after("## Commands\n")}
    assert {name: int(cells[0].strip("`"), 16) for name, cells in rows.items()} == {
        **{command.name: int(command) for command in Command},
        "error": ERROR,
    }
    named = {body for _, _, *cells in rows.values() for body in re.findall(r"`(\w+)`", " ".join(cells))}
    assert named == set(BODIES) - {"Rows", "Held", "Owner", "OwnerFailure", "SpreadFailure"}


@pytest.mark.parametrize("name", BODIES)
def test_every_body_is_told_field_by_field(name: str) -> None:
    kind = BODIES[name]
    shape = "an array" if kind.__struct_config__.array_like else "a map"
    assert re.findall(rf"`{name}`, (an array|a map)\b", PAGE) == [shape]
    rows = table_after(f"`{name}`, {shape}")
    wanted = msgspec.structs.fields(kind)
    if shape == "an array":
        assert [row.pop(0) for row in rows] == [str(place) for place in range(len(wanted))]
    assert [(row[0].strip("`"), row[2]) for row in rows] == [(field.name, default_of(field)) for field in wanted]


def test_every_operation_is_in_the_table_with_its_arguments() -> None:
    rows = {name.strip("`"): arguments.strip("`") for name, arguments, _ in table_after("The reply is the result")}
    assert set(rows) == set(HANDLERS)
    for name, handler in HANDLERS.items():
        shown: list[str] = []
        for parameter in list(inspect.signature(handler).parameters.values())[1:]:
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                shown.append("…options")
            elif parameter.default is inspect.Parameter.empty:
                shown.append(parameter.name)
            else:
                shown.append(f"{parameter.name}={literal(parameter.default)}")
        assert rows[name] == ", ".join(shown)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_everything_that_comes_back_is_told_key_by_key(form: Any) -> None:
    rows = {
        name.strip("`"): re.sub(r"\([^)]*(\([^)]*\))?[^)]*\)", "", keys)
        for name, keys in table_after("### What comes back")
    }
    names = [field.name for field in fields(form)] if is_dataclass(form) else list(form.__struct_fields__)
    assert re.findall(r"`(\w+)`", rows[form.__name__]) == names


def test_results_name_forms_that_are_told() -> None:
    results = " ".join(result for _, _, result in table_after("The reply is the result"))
    assert {form.__name__ for form in FORMS} >= set(re.findall(r"`([A-Z]\w+)`", results))


def test_every_operation_is_in_the_table_with_the_form_that_it_returns() -> None:
    forms = {form.__name__ for form in FORMS}
    for name, _, told in table_after("The reply is the result"):
        declared = str(OPERATIONS[name.strip("`")].signature.return_annotation)
        assert set(re.findall(r"`(\w+)`", told)) & forms == set(re.findall(r"\w+", declared)) & forms, name
        assert ("array of" in told) == declared.startswith("list["), name
        assert (told == "nil") == (declared == "None"), name


def test_every_error_is_in_the_table() -> None:
    table = table_after("The correlation of an error is that of the request")
    rows = {int(code): name.strip("`") for code, name, *_ in table}
    assert rows == {0: "", **{code: kind.__name__ for code, kind in failures._CODES.items()}}


def test_the_limits_are_those_of_the_code() -> None:
    limits = dict(table_after("## Limits"))
    assert f"{connection._OPEN_REQUESTS_MAX};" in limits["unanswered requests of a connection"]
    assert f"{consumers._CONSUMERS_MAX:,};" in limits["consumers of a connection"]
    assert f"{consuming.FINISHED_MAX:,};" in limits["messages that one request finishes"]
    assert f"{delivering._WAITING_MAX:,};" in limits["RECEIVE of a connection that wait"]
    threaded = limits["FAIL, KILL, READ, CALL, and RECEIVE of what is not in memory"]
    assert (connection._AT_ONCE, "four of a connection" in threaded) == (4, True)
    assert f"{workers._WAITING_MAX} of all connections" in threaded


# The example.


def example(number: int) -> bytes:
    """The bytes of one of the frames of the example."""
    section = PAGE.split("## An example in bytes")[1].split("\n## ")[0]
    lines = re.findall(r"^```text\n(.*?)^```", section, re.DOTALL | re.MULTILINE)[number].splitlines()
    return b"".join(bytes.fromhex(line.split("   ")[0].split("  ")[0]) for line in lines)


def test_the_example_is_what_the_code_sends() -> None:
    config = ServerConfig()
    limits = {
        name: getattr(config.broker, name)
        for name in ("max_value_bytes", "max_key_bytes", "max_headers_bytes", "max_batch_bytes")
    }
    welcome = Welcome(
        *(1, "penstock 0.1.0", "00112233445566778899aabbccddeeff", 1, "always"),
        *(config.idle_timeout, {**limits, "max_frame_bytes": config.max_frame_bytes}),
    )
    payload = session.encode([None, [b"two coffees"], None])
    assert example(0) == frame(Command.HELLO, 1, session.encode(Hello([1], "example")))
    assert example(1) == frame(Command.HELLO | REPLY, 1, session.encode(welcome))
    assert example(2) == frame(Command.PUBLISH, 2, session.encode(["orders", payload, "till-1", 1]))
    assert example(3) == published_single(2, 0, 0)


def test_the_example_is_what_the_code_understands() -> None:
    reader = FrameReader(1000)
    data = b"".join(map(example, range(4)))
    reader.room()[: len(data)] = data
    hello, welcome, publish, published = reader.received(len(data))
    assert session.decode_hello(hello[2]) == Hello([1], "example")
    assert session.decode_welcome(welcome[2]).limits["max_frame_bytes"] == 65 << 20
    request = publishing.decode_publish(publish[2])
    assert request == Publish("orders", b"\x93\xc0\x91\xc4\x0btwo coffees\xc0", "till-1", 1)
    assert list(publishing.decode_published(published[2]).ids("orders")) == [message.MessageId("orders", 0, 0)]


def test_the_example_is_what_a_server_answers(tmp_path: Path) -> None:
    with Running(tmp_path) as running, Wire(running.server.address, greet=False) as wire:
        wire.send_bytes(example(0) + example(2))
        command, correlation, body = wire.read()
        found, shown = session.decode_welcome(body), session.decode_welcome(example(1)[10:])
        assert (command, correlation) == (Command.HELLO | REPLY, 1)
        assert msgspec.structs.replace(found, server=shown.server, broker=shown.broker) == shown
        assert len(found.broker) == len(shown.broker)
        (limits,) = [cells[-1] for cells in table_after("`Welcome`, a map") if cells[0] == "`limits`"]
        assert re.findall(r"`(\w+)`", limits) == list(found.limits)
        assert frame(*wire.read()) == example(3)
