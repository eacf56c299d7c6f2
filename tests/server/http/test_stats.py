"""The broker in numbers by HTTP; they are those of what was done."""

from __future__ import annotations

from pathlib import Path

from tests.server.harness import soon, until
from tests.server.http.harness import HttpRunning


def test_status_has_the_shape_that_its_readers_know(tmp_path: Path) -> None:
    with HttpRunning(tmp_path) as server:
        assert server.get("/status")["queues"] == {}
        server.broker.create_topic("pairs", partitions=2)
        server.broker.publish("pairs", "x", partition=1)
        server.broker.publish_many("user-signups", ["a", "b", "c"])
        found = server.get("/status")
        assert found["queues"] == {"pairs-0": 0, "pairs-1": 1, "user-signups-0": 3}
        assert found["active_connections"] >= 1
        with server.broker.consumer("user-signups", "quick") as quick, server.broker.consumer("user-signups", "slow"):
            quick.ack(quick.receive(2))
            assert server.get("/status")["queues"]["user-signups-0"] == 3
        server.broker.delete_group("user-signups", "slow")
        assert server.get("/status")["queues"]["user-signups-0"] == 1


def test_stats_are_the_status_of_the_broker(server: HttpRunning, topic: str) -> None:
    server.broker.publish(topic, "x")
    found, status = server.get("/v1/stats"), server.broker.status()
    assert (found["broker_id"], found["epoch"], found["version"]) == (status.broker_id, status.epoch, status.version)
    assert (found["topics"], found["frozen"]) == (status.topics, None)
    assert found["recovery"]["messages"] == 0
    assert server.get("/stats").keys() == found.keys() and server.get("/stats")["broker_id"] == status.broker_id


def test_lanes_are_counted_where_they_are_known(tmp_path: Path) -> None:
    with HttpRunning(tmp_path) as server:
        assert server.get("/priority/stats") == {"lanes": [], "topics": [], "groups": 0, "idle_groups": 0}
        for priority in ("high", "high", "low", 7):
            server.broker.publish("t", "x", priority=priority)
        with server.broker.consumer("t", "g") as consumer:
            (taken,) = consumer.receive(1)
            assert taken.priority == 7
            lanes = [
                {"priority": 7, "name": None, "ready": 0},
                {"priority": 64, "name": "high", "ready": 2},
                {"priority": 192, "name": "low", "ready": 1},
            ]
            found = server.get("/v1/priority/stats")
            assert found["lanes"] == lanes
            assert found["topics"] == [{"topic": "t", "policy": "strict", "lanes": lanes}]
            assert (found["groups"], found["idle_groups"]) == (1, 0)
            taken.release()
            assert server.get("/v1/priority/stats")["lanes"][0]["ready"] == 1
    with HttpRunning(tmp_path) as server:
        assert server.get("/v1/priority/stats") == {"lanes": [], "topics": [], "groups": 0, "idle_groups": 1}


def test_lanes_of_a_topic_in_key_order_count_what_waits_for_its_key(server: HttpRunning, topic: str) -> None:
    server.broker.create_topic(topic, order="key")
    server.broker.publish_many(topic, [b"1"])
    for priority in ("high", "low", "low"):
        server.broker.publish(topic, "x", key="k", priority=priority)
    with server.broker.consumer(topic, "g") as consumer:
        consumer.receive(10)
        (shown,) = [found for found in server.get("/v1/priority/stats")["topics"] if found["topic"] == topic]
        assert sum(lane["ready"] for lane in shown["lanes"]) == server.broker.group(topic, "g").ready == 2


def test_delays_are_counted_with_how_late_they_were(tmp_path: Path) -> None:
    with HttpRunning(tmp_path) as server, server.broker.consumer("t", "g") as consumer:
        server.broker.publish_many("idle", ["x"])
        server.broker.publish("t", "x", delay="1h")
        server.broker.publish("t", "y", delay=0.01)
        consumer.ack(consumer.receive(1, wait=20))
        found = server.get("/v1/delay/stats")
        assert (found["delayed"], found["topics"]) == (1, [{"topic": "t", "delayed": 1}])
        assert (found["idle_topics"], found["fallen_due"]) == (1, 1)
        assert 0 <= found["lateness_p50_s"] <= found["lateness_p99_s"]
        assert found["lateness_mean_s"] >= 0


def test_reliability_tells_what_became_of_deliveries(tmp_path: Path) -> None:
    with HttpRunning(tmp_path) as server, server.broker.consumer("t", "g") as consumer:
        server.broker.publish_many("t", ["acked", "failed", "killed", "held"])
        acked, failed, killed, _ = consumer.receive(10)
        acked.ack()
        failed.fail("not now", delay=3600)
        killed.kill("never")
        until(lambda: server.get("/v1/reliability/stats")["dead"] == 1)
        found = server.get("/v1/reliability/stats")
        counted = {name: found[name] for name in ("delivered", "redelivered", "acked", "failed", "dead", "expired")}
        assert counted == {"delivered": 4, "redelivered": 0, "acked": 1, "failed": 1, "dead": 1, "expired": 0}
        assert (found["groups"], found["lag"], found["leased"], found["retrying"]) == (1, 2, 1, 1)
        assert found["published"] >= 4
        assert found["oldest_unacked_s"] >= 0


def test_rebalances_are_counted_in_groups_whose_partitions_are_assigned(server: HttpRunning, topic: str) -> None:
    server.broker.create_topic(topic, partitions=4)
    with server.broker.consumer(topic, "shared"):
        first = server.broker.consumer(topic, "g", mode="assigned", name="first")
        second = server.broker.consumer(topic, "g", mode="assigned", name="second")
        found = server.get("/v1/rebalance/stats")
        (shown,) = [group for group in found["groups"] if group["topic"] == topic]
        wanted = {"topic": topic, "group": "g", "members": 2, "rebalances": 2, "moves": 6, "expired": 0, "revoking": 0}
        assert shown == wanted
        first.close()
        second.close()
    (shown,) = [group for group in server.get("/rebalance/stats")["groups"] if group["topic"] == topic]
    assert (shown["members"], shown["rebalances"], shown["moves"]) == (0, 4, 8)
    assert server.get("/rebalance/stats")["rebalances"] >= 4


def test_members_that_are_not_heard_of_are_counted(server: HttpRunning, topic: str) -> None:
    silent = server.broker.consumer(topic, "g", mode="assigned", session_timeout=0.05)

    async def expired() -> None:
        found: list[dict[str, int]] = []

        def look() -> bool:
            shard = server.broker.shard
            with shard.lock:
                active = shard.dispatcher.in_use.groups(shard.catalog.by_name[topic])["g"]
            found[:] = [{"expired": active.assignment.expired}] if active.assignment is not None else []
            return bool(found and found[0]["expired"])

        await soon(look)

    server.do(expired())
    (shown,) = [group for group in server.get("/v1/rebalance/stats")["groups"] if group["topic"] == topic]
    assert (shown["expired"], shown["members"]) == (1, 0)
    silent.close()


def test_metrics_are_for_prometheus(server: HttpRunning, topic: str) -> None:
    server.broker.publish(topic, "x")
    reply = server.ask("GET", "/metrics")
    assert reply.status == 200
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert f'penstock_topic_published_total{{topic="{topic}"}} 1.0' in reply.body.decode()


def test_five_thousand_topics_are_counted_without_opening_one(tmp_path: Path) -> None:
    with HttpRunning(tmp_path, broker={"sync": "never"}) as server:
        for number in range(5000):
            server.broker.shard.publish_many(f"q{number}", ["x"], None, None)
        server.broker.shard.journal.flush()
        assert len(server.get("/status")["queues"]) == 5000
        assert server.get("/v1/delay/stats")["idle_topics"] == 5000
        assert server.get("/v1/priority/stats")["groups"] == 0
        assert server.get("/v1/rebalance/stats")["groups"] == []
        assert server.get("/v1/reliability/stats")["published"] == 5000
        assert not server.broker.shard.dispatcher.in_use.all()
