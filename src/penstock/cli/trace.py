"""`penstock trace`: the life of one message, drawn."""

from __future__ import annotations

import itertools
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING

from penstock.cli.output import (
    Format,
    FormatOption,
    new_table,
    readable,
    record,
    shortened,
    show,
    show_duration,
    show_time,
)
from penstock.cli.parameters import IdArgument
from penstock.cli.target import Target, targeted
from penstock.model.units import to_datetime
from penstock.model.visible import visible

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from penstock import Trace, TraceLine

_STYLES = {
    "acked": "green",
    "delivered": "cyan",
    "failed": "red",
    "expired": "red",
    "dead": "bold red",
    "lapsed": "red",
    "cancelled": "yellow",
    "purged": "yellow",
    "redriven": "magenta",
    "copied": "magenta",
}
_VALUE_SHOWN = 60


@targeted
def trace(target: Target, identity: IdArgument, output: FormatOption = Format.TABLE) -> None:
    """Draw what happened to a message, and when.

    Each event has its time, the time since the event before, the group and the consumer, and the cause; below are the
    attempts of each group and the latency from the publication to the last ack.

    For example:

        penstock trace orders/2/45678
        penstock trace orders/2/45678 -o json | jq .latency_s
    """
    with target.open() as broker:
        found = broker.trace(identity)
    show(_answer(found), output, _heading(found), "", _timeline(found.lines), "", _summary(found))


def _answer(found: Trace) -> dict[str, object]:
    return {
        "id": str(found.id),
        "message": None if found.message is None else record(found.message),
        "traceparent": found.traceparent,
        "events": [
            {
                "kind": line.kind,
                "time": line.time,
                "since_s": since_s,
                "group": line.group,
                "consumer": line.consumer,
                "attempt": line.attempt or None,
                "cause": line.cause,
                "producer": line.producer,
                "until": to_datetime(line.due_us) if line.due_us else None,
            }
            for line, since_s in _with_gaps(found.lines)
        ],
        "attempts": _attempts(found.lines),
        "latency_s": _latency_s(found.lines),
        "retained_until": found.retained_until,
    }


def _heading(found: Trace) -> Text:
    from rich.text import Text

    text = Text(str(found.id), style="bold")
    if found.message is None:
        return text.append("  the message itself is gone", style="yellow")
    if found.message.key is not None:
        text.append(f"  key {visible(readable(found.message.key)[0])}", style="not bold")
    text.append(f"  priority {found.message.priority}", style="not bold")
    value = shortened(visible(readable(found.message.value)[0]), _VALUE_SHOWN)
    text.append(f"  {value}", style="not bold dim")
    return text.append(f"\ntraceparent {found.traceparent}", style="not bold") if found.traceparent else text


def _timeline(lines: list[TraceLine]) -> Table:
    from rich.text import Text

    table = new_table("time", ">after", "event", "group", "consumer", ">attempt", "cause")
    for number, (line, since_s) in enumerate(_with_gaps(lines)):
        event = Text("└─ " if number == len(lines) - 1 else "├─ ", style="dim")
        event.append(line.kind.upper(), style=f"not dim {_STYLES.get(line.kind, '')}")
        table.add_row(
            _time(line.time),
            Text("" if since_s is None else f"+{show_duration(since_s)}", style="dim"),
            event,
            line.group or "",
            line.consumer or "",
            str(line.attempt or ""),
            Text(_cause(line)),
        )
    return table


def _cause(line: TraceLine) -> str:
    parts = [visible(line.cause)] if line.cause else []
    if line.producer:
        parts.append(f"by {visible(line.producer)}")
    if line.due_us:
        parts.append(f"until {_time(to_datetime(line.due_us))}")
    return ", ".join(parts)


def _summary(found: Trace) -> str:
    attempts, latency_s = _attempts(found.lines), _latency_s(found.lines)
    counted = ", ".join(f"{group} {count}" for group, count in attempts.items())
    lines = [f"attempts: {sum(attempts.values())}" + (f" ({counted})" if counted else "")]
    if latency_s is not None:
        lines.append(f"total latency: {show_duration(latency_s)}, from its publication to the last ack")
    if found.retained_until is not None:
        lines.append(f"retained until {show_time(found.retained_until)}")
    return "\n".join(lines)


def _with_gaps(lines: list[TraceLine]) -> list[tuple[TraceLine, float | None]]:
    """Each line with the seconds since the one before."""
    gaps = [(after.time_us - before.time_us) / 1_000_000 for before, after in itertools.pairwise(lines)]
    return list(zip(lines, [None, *gaps], strict=False))


def _attempts(lines: list[TraceLine]) -> dict[str, int]:
    return dict(Counter(line.group or "" for line in lines if line.kind == "delivered"))


def _latency_s(lines: list[TraceLine]) -> float | None:
    published = [line.time_us for line in lines if line.kind == "published"]
    acked = [line.time_us for line in lines if line.kind == "acked"]
    return (acked[-1] - published[0]) / 1_000_000 if published and acked else None


def _time(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S.%f}Z"
