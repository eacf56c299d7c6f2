"""Dead letters and groups as rows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from penstock.client.sync import Client
from penstock.cluster.snapshots import Snapshots
from penstock.model.letters import DeadLetter
from penstock.model.names import DEAD_LETTERS
from penstock.spark.buckets import root_at
from penstock.spark.connecting import connected
from penstock.spark.finding import origin_of
from penstock.spark.options import ReadOptions
from penstock.spark.origins import chosen_topics
from penstock.spark.tables import GROUP_NUMBERS

Row = Mapping[str, object]


def listed_rows(options: ReadOptions) -> Iterator[Row]:
    """The rows of a table that is no log."""
    return _dead_letters(options) if options.table == "dead_letters" else _groups(options)


@contextlib.contextmanager
def _broker(options: ReadOptions) -> Iterator[Client | Snapshots]:
    """Who can be asked: the server, or the directory as it is now."""
    if options.servers is not None:
        yield connected(options.servers, options.secrets)
        return
    assert options.path is not None
    with Snapshots(root_at(options.path)) as snapshots:
        yield snapshots


def _dead_letters(options: ReadOptions) -> Iterator[Row]:
    with _broker(options) as broker:
        for topic in _sources(options):
            yield from map(_letter_row, broker.dead_letters(topic))


def _sources(options: ReadOptions) -> list[str]:
    """The topics whose dead letters are asked for; a pattern may match those of the letters themselves, too."""
    chosen = chosen_topics(origin_of(options), options)
    return list(dict.fromkeys(name.removesuffix(DEAD_LETTERS) for name in chosen))


def _letter_row(letter: DeadLetter) -> Row:
    return {
        "topic": letter.origin.topic,
        "message_id": str(letter.id),
        "origin": str(letter.origin),
        "group": letter.group,
        "cause": letter.cause,
        "consumer": letter.consumer,
        "deliveries": letter.deliveries,
        "failures": letter.failures,
        "died_at": letter.died_at,
        "published_at": letter.published_at,
        "key": letter.key,
        "value": letter.value,
        "headers": None if letter.headers is None else list(letter.headers.items()),
        "priority": letter.priority,
        "history": letter.history,
    }


def _groups(options: ReadOptions) -> Iterator[Row]:
    chosen = None
    if options.topics or options.pattern is not None or options.assigned:
        chosen = set(chosen_topics(origin_of(options), options))
    with _broker(options) as broker:
        found = broker.groups()
    for group in found:
        if chosen is None or group.topic in chosen:
            yield {
                "topic": group.topic,
                "group": group.name,
                **{name: getattr(group, name) for name in GROUP_NUMBERS},
                "positions": list(group.positions),
            }
