"""Every parser of what people and programs write, given a megabyte: refused at once, and not repeated in the error.

A parser that takes quadratic time for this would not come back within the patience of any test.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.cli.group import _position
from penstock.cli.values import parse_length, parse_moment
from penstock.client.addresses import parse_address
from penstock.delivery.cron import Cron
from penstock.model import options
from penstock.model.bounds import error_text, nearest, shown
from penstock.model.config import BrokerConfig, TopicConfig
from penstock.model.errors import Forbidden, InvalidArgument
from penstock.model.intake import check_message
from penstock.model.message import Message, MessageId
from penstock.model.names import check_group_name, check_stage_name, check_topic_name, parse_priority
from penstock.model.units import parse_digits, parse_duration, parse_size, parse_time_us
from penstock.server.access.principal import Principal, Scope
from penstock.server.access.tokens import id_of
from penstock.server.http.members import parse_receipt
from penstock.server.http.parameters import time_us
from penstock.server.http.publishing import _raw_message
from penstock.server.line.lines import parse as parse_line
from penstock.server.operations import _among, find_operation
from penstock.server.settings.options import ServerConfig
from penstock.server.settings.table import suggestion
from penstock.shard.operations.consuming import _check_reason
from penstock.shard.operations.groups import positions_of
from penstock.spark.files.roles import _priority
from penstock.views.searching import Place
from penstock.views.trace_search import Mark

N = 1_000_000
HOSTILE = {
    "digits": "1" * N,
    "digits and a unit": "1" * N + "s",
    "a fraction": "0." + "1" * N,
    "an exponent": "1e" + "9" * N,
    "many parts": "1s" * (N // 2),
    "almost many parts": "1s" * (N // 2) + "x",
    "points": "1." * (N // 2),
    "letters": "a" * N,
    "blanks": " " * N,
    "blanks behind a number": "1" + " " * N + "x",
    "digits of other scripts": "\u0661" * N,
    "slashes": "t/" * (N // 2),
    "dashes": "1-" * (N // 2),
    "signs": "@:" * (N // 2),
    "colons": "12:" * (N // 3),
    "stars": "*/" * (N // 2),
    "commas": "1," * (N // 2),
    "escapes": '\\"' * (N // 2),
    "a message id": "t/0/" + "1" * N,
    "a receipt": "m:t/0/0@" + "f" * N,
    "an address": "h:" + "1" * N,
}
LIMITS = BrokerConfig()
READER = Principal("reader", frozenset({Scope.READ}), ("*a*b*c*", "or?ers.*"))
PARSERS: dict[str, Callable[[str], object]] = {
    "a duration": parse_duration,
    "a size": parse_size,
    "a time": parse_time_us,
    "a priority": parse_priority,
    "a topic": check_topic_name,
    "a group": check_group_name,
    "a stage": check_stage_name,
    "a message id": MessageId.parse,
    "a cron expression": Cron.parse,
    "a time zone": lambda text: Cron.parse("* * * * *", text),
    "a choice": options.choice("strict", "weighted"),
    "a whole number": options.whole(0, 10),
    "a size in a range": options.size(0, 10),
    "a duration in a range": options.duration(1),
    "weights": options.weights,
    "weights by priority": lambda text: options.weights({text: 1}),
    "an option of a topic": lambda text: TopicConfig.parse({"retention_age": text}),
    "the name of an option": lambda text: TopicConfig.parse({text: 1}),
    "an option of a broker": lambda text: BrokerConfig.parse({"max_batch_bytes": text}),
    "an option of a server": lambda text: ServerConfig.parse({"http_port": text}),
    "a limit": options.check_limit,
    "a rate": options.check_rate,
    "a delay": lambda text: check_message(Message(b"", delay=text), LIMITS, 0),
    "a time to live": lambda text: check_message(Message(b"", expires_in=text), LIMITS, 0),
    "a time of delivery": lambda text: check_message(Message(b"", deliver_at=text), LIMITS, 0),
    "a dedupe id": lambda text: check_message(Message(b"", dedupe_id=text), LIMITS, 0),
    "a key": lambda text: check_message(Message(b"", text), LIMITS, 0),
    "a header": lambda text: check_message(Message(b"", headers={"a": text}), LIMITS, 0),
    "positions": lambda text: positions_of({text: 0}),
    "the partition of a replay": lambda text: _among({text: [0, 1]}),
    "a cursor of messages": Place.parse,
    "a cursor of traces": Mark.parse,
    "the name of an operation": find_operation,
    "a topic that a token is not for": lambda text: READER.require(Scope.READ, text),
    "a receipt": parse_receipt,
    "a time of a query": lambda text: time_us("from", text),
    "a delay of a query": lambda text: check_message(_raw_message(b"", f"delay={text}".encode(), ()), LIMITS, 0),
    "a partition of a query": lambda text: _raw_message(b"", f"partition={text}".encode(), ()),
    "a line": lambda text: parse_line(text.encode()),
    "a partition of a line": lambda text: parse_line(f"PRODUCE t {text} x".encode()),
    "a time of the command line": parse_moment,
    "a duration of the command line": parse_length,
    "a position of the command line": _position,
    "an address": parse_address,
    "a priority of a file": _priority,
}
TAKEN = {("a line", "blanks"), ("a partition of a line", "blanks behind a number")}
"""What is no error: a blank line, and a message that begins with many blanks."""


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("parser", PARSERS)
def test_H1_a_megabyte_is_refused_by_every_parser_and_not_repeated(parser: str, name: str) -> None:
    if (parser, name) in TAKEN:
        PARSERS[parser](HOSTILE[name])
        return
    with pytest.raises((InvalidArgument, Forbidden)) as refused:
        PARSERS[parser](HOSTILE[name])
    assert len(str(refused.value)) < 2000


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_H1_a_megabyte_is_like_no_name_and_no_number(text: str) -> None:
    assert parse_digits(text) is None
    assert nearest(text, ["a" * 20, "1" * 20]) == []
    assert suggestion(text, ["a" * 20]) == ""
    assert id_of(text) is None
    assert len(_check_reason("x" + text)) <= 1000


@pytest.mark.parametrize(
    "value",
    ["a" * N, b"a" * N, 10**5000, ["a" * N] * 1000, {"a" * 100: 10**5000}, {str(n): n for n in range(N // 10)}, N],
    ids=["text", "bytes", "a number", "a list", "a map with a number", "a map", "a small number"],
)
def test_what_an_error_repeats_is_short(value: object) -> None:
    assert len(shown(value)) < 250
    assert shown("short") == "'short'"
    assert len(error_text(InvalidArgument("a" * N))) < 20_000
