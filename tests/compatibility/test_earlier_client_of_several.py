"""A client of 0.1.0 at a server of several processes, whose shards it does not follow: it has what one process has."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from tests.cluster.several import several
from tests.compatibility.earlier import environment, unpack

_CLIENT = """
import json, sys
from penstock.client import Client

address, here, there = sys.argv[1:]

def told(act):
    try:
        return act()
    except Exception as error:
        return f"{type(error).__name__}: {error}"

with Client(address) as client:
    found = {
        "one": told(lambda: str(client.publish(there, "x"))),
        "many": told(lambda: client.publish_many(there, ["x"])),
        "soon": told(lambda: client.publish_soon(there, "x").result(20)),
        "read": told(lambda: list(client.read(there))),
        "group": told(lambda: client.create_group(there, "g")),
        "consumer": told(lambda: client.consumer(there, "g")),
        "consumer of both": told(lambda: client.consumer([here, there], "g")),
    }
    works = [str(client.publish(here, "x")), *map(str, client.publish_many(here, ["y", "z"]))]
    with client.consumer(here, "g") as consumer:
        messages = consumer.receive(10, wait=10)
        consumer.ack(messages)
    works += [message.value.decode() for message in messages]
    works += [client.group(here, "g").acked, [topic.name for topic in client.topics()]]
print(json.dumps([found, works]))
"""


def test_F5_an_earlier_client_has_the_topics_of_one_process_and_is_told_where_others_are(tmp_path: Path) -> None:
    async def work() -> None:
        package = unpack(tmp_path / "package")
        async with several(tmp_path / "data") as servers:
            here, there = servers.topic_of(0), servers.topic_of(1)
            command = [sys.executable, "-P", "-c", _CLIENT, servers.own_address(0), here, there]
            child = await asyncio.create_subprocess_exec(
                *command, env=environment(package), stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            output, problems = await child.communicate()
            assert child.returncode == 0, problems.decode()
            refused, works = json.loads(output)
            shard, address = servers.map.shard_of(there), servers.map.addresses[1]
            for asked, told in refused.items():
                assert (
                    f"the topic is in shard {shard}, which another process of this server has, at {address}" in told
                ), asked
                assert "nothing was done" in told
            assert works == [f"{here}/0/0", f"{here}/0/1", f"{here}/0/2", "x", "y", "z", 3, [here]]
            assert there not in servers.servers[1].broker.shards.of(there).catalog.by_name
            assert [group.topic for group in servers.servers[0].broker.groups()] == [here]

    asyncio.run(asyncio.wait_for(work(), 90))
