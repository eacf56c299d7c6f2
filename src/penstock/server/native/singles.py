"""Messages that come one a request, from many connections: what came in one turn of the loop is published together.

Each is still published for itself, with its own id, producer and sequence; they only share the way through the broker.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from penstock.cluster.publishing import one_shard, publish_single
from penstock.cluster.slices import spread_of
from penstock.model.errors import LimitExceeded, Overloaded, PenstockError
from penstock.model.singles import Single, SingleRun
from penstock.protocol.publishing import published_single, published_singles

if TYPE_CHECKING:
    from penstock.server.native.connection import Connection
    from penstock.server.native.listener import NativeListener
    from penstock.shard.shard import Shard

_TOGETHER_MAX = 1000


class _Run(SingleRun):
    """Messages that came one behind the other on one connection."""

    connection: Connection
    correlations: list[int]


class Singles:
    """Gathers single messages of all connections."""

    def __init__(self, listener: NativeListener) -> None:
        self._listener = listener
        self._shards = listener.broker.shards
        self._clock = self._shards.clock
        self._runs: list[_Run] = []
        self._count = 0  # of their messages

    def add(
        self,
        connection: Connection,
        correlation: int,
        topic: str,
        value: bytes,
        producer: str,
        sequence: int,
        name: str | None,
    ) -> None:
        """Publish a message that has nothing but a value, with the others of this turn."""
        runs = self._runs
        run = runs[-1] if runs else None
        if (
            run is not None
            and run.connection is connection
            and run.topic == topic
            and run.sequence + len(run.values) == sequence
            and run.producer == producer
        ):
            run.values.append(value)
            run.correlations.append(correlation)
        else:
            if run is None:
                self._listener.loop.call_soon(self._publish_turn)
            runs.append(_Run(topic, producer, sequence, name, [value], connection, [correlation]))
        self._count += 1
        if self._count >= _TOGETHER_MAX:
            self.publish()

    def _publish_turn(self) -> None:
        self.publish()
        self._listener.commits.commit_soon()

    def publish(self) -> None:
        """Publish what was gathered; whatever must come behind it calls this first."""
        runs, self._runs, self._count = self._runs, [], 0
        now_us = self._clock.wall_us()
        if self._shards.count == 1:
            self._publish_in(self._shards.only, runs, now_us)
            return
        by_shard: dict[Shard, list[_Run]] = {}
        for run in runs:
            try:
                is_spread = spread_of(self._shards, run.topic) is not None
                if not is_spread:
                    run.topic, shard = one_shard(self._shards, run.topic)
                    by_shard.setdefault(shard, []).append(run)
            except PenstockError as error:
                _refuse([run], error)
            else:
                if is_spread:  # each message goes to a slice of its own
                    self._publish_one_by_one(run, now_us)
        for shard, some in by_shard.items():
            self._publish_in(shard, some, now_us)

    def _publish_in(self, shard: Shard, runs: list[_Run], now_us: int) -> None:
        while runs:
            taken = self._publish_runs(shard, runs, now_us)
            if taken < len(runs):
                self._publish_one_by_one(runs[taken], now_us)
            runs = runs[taken + 1 :]

    def _publish_runs(self, shard: Shard, runs: list[_Run], now_us: int) -> int:
        """Publish the first of some runs; how many."""
        try:
            places, commit = shard.publish_runs(runs, now_us)
        except (LimitExceeded, Overloaded):  # of all together: some of them may fit
            return 0
        except PenstockError as error:
            _refuse(runs, error)
            return len(runs)
        if places:
            self._listener.commits.when_done(commit, partial(_answer, runs, places))
        return len(places)

    def _publish_one_by_one(self, run: _Run, now_us: int) -> None:
        for place, (value, correlation) in enumerate(zip(run.values, run.correlations, strict=True)):
            origin = (run.producer, run.sequence + place, run.name)
            self.publish_one(run.connection, correlation, run.topic, Single(value), None, now_us, *origin)

    def publish_one(
        self,
        connection: Connection,
        correlation: int,
        topic: str,
        single: Single,
        partition: int | None,
        now_us: int,
        producer: str | None,
        sequence: int,
        name: str | None,
    ) -> None:
        """Publish one message by itself."""
        try:
            origin = (producer, sequence, name)
            identity, commit = publish_single(self._shards, topic, single, partition, now_us, *origin)
        except PenstockError as error:
            connection.refuse(correlation, error)
            return
        reply = published_single(correlation, identity.partition, identity.offset)
        self._listener.commits.reply_after(commit, connection, correlation, reply)


def _answer(runs: list[_Run], places: list[tuple[int, int]], error: PenstockError | None) -> None:
    """Tell everybody where their messages are; the replies of one connection go together."""
    if error is not None:
        _refuse(runs[: len(places)], error)
        return
    last, replies = runs[0].connection, list[bytes]()
    for run, (partition, base) in zip(runs, places, strict=False):
        if run.connection is not last:
            last.answer_now(replies)
            last, replies = run.connection, []
        replies += published_singles(run.correlations, partition, base)
    last.answer_now(replies)


def _refuse(runs: list[_Run], error: PenstockError) -> None:
    for run in runs:
        for correlation in run.correlations:
            run.connection.refuse(correlation, error)
