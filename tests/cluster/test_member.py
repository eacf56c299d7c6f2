"""One process of a server, told by a test what a supervisor would tell it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.cluster.directory import divide
from penstock.model.cluster_map import ClusterMap, ShardPlace
from penstock.server.membership import Membership
from penstock.server.peer_places import OneMachine
from penstock.server.processes import member, orders
from penstock.server.processes.member import Member
from penstock.server.settings.options import ServerConfig
from penstock.storage import FileStorage
from tests.server.harness import config_of, free_port, run

SHARDS = 2


class Parent:
    """A process, and the end at which a supervisor would be."""

    def __init__(self, path: Path, reloaded: ServerConfig) -> None:
        sockets = path.parent / "sockets"
        sockets.mkdir()
        membership = Membership(0, OneMachine(0, free_port(), sockets), ClusterMap([ShardPlace()] * SHARDS, {}))
        self._ends = orders.pair()
        for end in self._ends:
            end.settimeout(0)
        self.member = Member(config_of(path), membership, self._ends[1])
        self._serving = asyncio.create_task(self.member.run(lambda: reloaded))

    def tell(self, order: orders.Order) -> None:
        """Send it an order."""
        orders.send(self._ends[0], order)

    async def told(self, kind: type[orders.Report]) -> None:
        """Wait until it says something of a kind; what it says otherwise is passed over."""
        loop = asyncio.get_running_loop()
        while not isinstance(orders.decode_report(await loop.sock_recv(self._ends[0], 1 << 18)), kind):
            pass

    async def stop(self) -> None:
        """Have it end."""
        self.tell(orders.Stop())
        await self._serving
        for end in self._ends:
            end.close()


def test_a_reload_that_comes_before_a_process_listens_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member, "keep_responsive", lambda _: None)  # that is for a process of its own
    root = FileStorage(tmp_path / "data")
    divide(root, SHARDS)

    async def main() -> None:
        reloaded = config_of(tmp_path / "data", broker={"topic_defaults": {"partitions": 3}})
        parent = Parent(tmp_path / "data", reloaded)
        await parent.told(orders.Started)
        parent.tell(orders.Reload())
        for shard in range(SHARDS):
            parent.tell(orders.Take(shard))
            await parent.told(orders.Opened)
        parent.tell(orders.NewMap(ClusterMap([ShardPlace(1, 0)] * SHARDS, {0: ""}), ""))
        await parent.told(orders.Ready)
        broker = parent.member._server.broker
        assert {shard.config.topic_defaults.partitions for shard in broker.shards} == {3}
        await parent.stop()

    run(main())
    root.close()
