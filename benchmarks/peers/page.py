"""The page `docs/benchmarks/peers.md`, made from the results of a run and from nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.peers.catalogue import ROWS, Row
from benchmarks.peers.rounds import Figure
from benchmarks.peers.summary import Cell, cells
from benchmarks.peers.systems.system import RAW
from benchmarks.peers.targets import judge
from benchmarks.rows import Row as Judged
from benchmarks.table import show

_HEAD = """# Benchmarks: beside its peers

Measured by `make bench-peers` on {cores} shared virtual cores, {memory} GiB, {system}, Python {python}.
{date}; the load average was {before:.2f} at the start and {after:.2f} at the end (including the run itself).
Every peer runs on loopback with its data on the same disk. Each figure is the median of {rounds} interleaved rounds of
{seconds:g} s, with the least and the most of them; values of 100 bytes. All rounds are in
`benchmarks/results/peers.json`, and what was published and acked is read back from every server.

![Rates of the durable ones, and the ratios beside their targets](peers.png)
"""
_FOOT = """
## Not like for like

- **Batches.** Penstock and Kafka take a batch as one request. Redis, NATS and beanstalkd have none: so many commands
  are sent at once, and all of their replies are awaited. RabbitMQ confirms several messages at once.
- **Acks.** Penstock syncs an ack before it answers. Redis syncs a receive as well. NATS does not sync acks. Kafka has
  no acks here: a position is committed, so that no single message can be left out. RabbitMQ does not answer an ack.
- **Syncs.** Kafka syncs its log and its two indexes for each message.
- **Raw** means one generator for all, which writes prepared bytes to plain sockets and counts the replies. RabbitMQ is
  driven by its Python client in these rows, and its generator costs more than its server.
- **Celery** is measured at its broker: a task is sent, or got and acked, by its own library, and nothing is run. Its
  Redis broker keeps a message that is being worked on in a hash and gives it back by a timeout.
- **1,000 queues** are 1,000 topics, streams or tubes; of NATS one stream with 1,000 subjects. Kafka and RabbitMQ are
  left out: so many topics or quorum queues are not what they are made for.
- **Kept.** Penstock, Redis, NATS and Kafka keep acked messages to be read again; beanstalkd and RabbitMQ delete them.
- Redis holds everything in memory, and so does beanstalkd. By default Redis has no append-only file at all, and
  beanstalkd no binlog: *default* is that of the file.
- The messages that are received were published a few seconds before. Where a peer publishes slowly, there are fewer of
  them, and the row is shorter.
- Latency *end to end* is from when a message was due to be sent, on a schedule that does not wait for the server. A
  dash means that a peer could not keep up.
"""


def page_of(results: dict[str, Any]) -> str:
    """The whole page."""
    figures = [Figure(**figure) for figure in results["figures"]]
    found, systems, machine = cells(figures), results["systems"], results["machine"]
    head = _HEAD.format(
        cores=machine["cores"],
        memory=round(machine["memory_bytes"] / (1 << 30)),
        system=machine["system"],
        python=machine["python"],
        date=results["start"]["date"][:10],
        before=results["start"]["load"][0],
        after=results["end"]["load"][0],
        rounds=results["rounds"],
        seconds=results["seconds"],
    )
    driven = {cell.system for cell in found if cell.way == RAW}
    durable = [name for name, system in systems.items() if system["durable"] and name in driven]
    others = [name for name, system in systems.items() if not system["durable"] and name in driven]
    parts = [
        head,
        _section("What is asked for", _ratios(judge(figures))),
        _section("On disk before it is acknowledged, raw", _by_system(found, durable, systems)),
        _section("With the defaults of the peers, raw", _by_system(found, ["penstock", *others], systems)),
        _section("By Python clients", _by_client(found, systems)),
        _section("Processor time: seconds for a million messages, server + generator", _processor(found, systems)),
        _section("Syncs for each message, seen by strace, one at a time", _syncs(results["syncs"], systems)),
        _section("Versions and settings", _versions(systems, results["left_out"])),
    ]
    return "\n".join(parts) + _FOOT


def _section(title: str, lines: Iterable[str]) -> str:
    return f"\n## {title}\n\n" + "\n".join(lines)


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    rule = ["---"] * len(head)
    return [f"| {' | '.join(cells)} |" for cells in (head, rule, *lines)]


def _ratios(rows: Sequence[Judged]) -> list[str]:
    lines = []
    for row in rows:
        beside = "" if row.baseline is None else f"{show(row.baseline, row.unit)} ({row.baseline_is})"
        (target,) = row.targets
        bound = f"{target.bound:g} ×" if target.of == "ratio" else show(target.bound, row.unit)
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        verdict = "holds" if row.holds else "**falls short**"
        measured = show(row.measured, row.unit)
        lines.append((row.what, measured, beside, ratio, f"{target.sign} {bound}", verdict))
    return _table(("", "Penstock", "beside it", "ratio", "target", ""), lines)


def _by_system(found: Sequence[Cell], names: Sequence[str], systems: dict[str, Any]) -> list[str]:
    lines = []
    for row in (row for row in ROWS if not row.by_client):
        by_name = {cell.system: cell for cell in found if cell.row == row.name and cell.way == RAW}
        if by_name:
            lines.append([row.title, *(_shown(row, by_name.get(name)) for name in names)])
    return _table(("", *(systems[name]["title"] for name in names)), lines)


def _by_client(found: Sequence[Cell], systems: dict[str, Any]) -> list[str]:
    lines = []
    for row in (row for row in ROWS if row.by_client):
        measured = [cell for cell in found if cell.row == row.name and systems[cell.system]["durable"]]
        lines += [(row.title, systems[cell.system]["title"], cell.way, _shown(row, cell)) for cell in measured]
    return _table(("", "system", "client", "measured"), lines)


def _shown(row: Row, cell: Cell | None) -> str:
    if cell is None:
        return "–"
    latency = "" if cell.p50_s is None or cell.p99_s is None else f"{show(cell.p50_s, 's')} / {show(cell.p99_s, 's')}"
    if row.figure == "latency":
        return latency
    if row.figure == "MB/s":
        least, rate, most = (f"{value * row.size / 1e6:,.0f}" for value in (cell.least, cell.rate, cell.most))
        return f"{rate} MB/s ({least}–{most})"
    spread = f"{show(cell.rate, 'messages/s')} ({short(cell.least)}–{short(cell.most)})"
    return f"{spread}, {latency}" if latency and row.name.endswith("alone") else spread


def short(rate: float) -> str:
    """A rate in a few characters.

    >>> short(1234567), short(123456), short(1234), short(123)
    ('1.23 M', '123 k', '1.2 k', '123')
    """
    if rate >= 1e6:
        return f"{rate / 1e6:.2f} M"
    if rate >= 1e3:
        return f"{rate / 1e3:.0f} k" if rate >= 1e4 else f"{rate / 1e3:.1f} k"
    return f"{rate:.0f}"


def _processor(found: Sequence[Cell], systems: dict[str, Any]) -> list[str]:
    names = [name for name in systems if any(cell.system == name and cell.way == RAW for cell in found)]
    lines = []
    for row in (row for row in ROWS if not row.by_client):
        by_name = {cell.system: cell for cell in found if cell.row == row.name and cell.way == RAW}
        if by_name:
            lines.append([row.title, *(_times(by_name.get(name)) for name in names)])
    return _table(("", *(systems[name]["title"] for name in names)), lines)


def _times(cell: Cell | None) -> str:
    return "–" if cell is None else f"{cell.server_us:.1f} + {cell.generator_us:.1f}"


def _syncs(syncs: dict[str, Any], systems: dict[str, Any]) -> list[str]:
    lines = [
        (systems[name]["title"], f"{found['publish']:.2f}", f"{found['receive']:.2f}") for name, found in syncs.items()
    ]
    return _table(("", "publish", "receive + ack"), lines)


def _versions(systems: dict[str, Any], left_out: Sequence[str]) -> list[str]:
    lines = [(system["title"], system["version"], f"`{system['settings']}`") for system in systems.values()]
    return [
        *_table(("", "version", "settings"), lines),
        *([""] if left_out else []),
        *(f"- {why}." for why in left_out),
    ]
