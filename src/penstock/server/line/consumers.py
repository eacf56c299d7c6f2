"""What one connection of the text port consumes: a consumer for each of its topics, and what it holds."""

from __future__ import annotations

from functools import partial

from penstock.aio.receiving import read_fetched
from penstock.cluster.consuming import AnyConsuming, consume
from penstock.delivery.leases import Lease
from penstock.delivery.offsets import Offsets
from penstock.journal import Commit
from penstock.model.errors import LeaseLost, Overloaded, TopicNotFound
from penstock.model.placement import check_partition, whole_name
from penstock.server.services import Services
from penstock.shard.operations.leased_messages import Leased, LeasedMessage

GROUP = "line"
"""The group of everybody who consumes through the text port."""
IN_FLIGHT_MAX = 1000
"""How many messages of a topic a connection may hold."""
_TOPICS_MAX = 1000
_SESSION_S = 30.0


class _TopicConsumer:
    """The consumer of one topic."""

    def __init__(self, services: Services, topic: str, partitions: int, consuming: AnyConsuming[LeasedMessage]) -> None:
        self._services = services
        self._topic, self._partitions = whole_name(topic), partitions
        self._consuming = consuming
        self._held: dict[tuple[int, int], Lease] = {}  # by partition and offset; some of them may be over

    def room(self) -> int:
        """How many more messages it may hold."""
        if len(self._held) >= IN_FLIGHT_MAX:
            self._held = {place: lease for place, lease in self._held.items() if place[1] in lease.messages}
        return IN_FLIGHT_MAX - len(self._held)

    async def take(self, partition: int, wanted: int) -> list[LeasedMessage]:
        """Up to so many messages of a partition, the best first; none if none is ready."""
        while True:
            found = self._consuming.fetch_now(wanted, None, partition)
            if not found:
                check_partition(self._topic, self._partitions, partition)
                return []
            messages = await read_fetched(self._consuming, found, None, self._services.workers.run)
            for message in messages:
                self._held[message.partition, message.offset] = message.lease
            if messages:  # else they could not be read, and have failed
                return messages

    def ack(self, partition: int, offset: int) -> Commit | None:
        """A message is done, once this is committed."""
        lease = self._held.get((partition, offset))
        if lease is None:
            raise _not_held(self._topic, partition, offset)
        leased = Leased()
        leased.by_topic[self._topic] = [(lease, Offsets([offset]))]
        leased.count = 1
        commit, lost = self._consuming.ack(leased)
        del self._held[partition, offset]
        if lost is not None:
            raise _not_held(self._topic, partition, offset)
        return commit

    def close(self) -> None:
        """Give back what it holds."""
        self._consuming.close()


class Consumers:
    """The consumers of one connection."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._by_topic: dict[str, _TopicConsumer] = {}
        self._closed = False

    async def take(self, topic: str, partition: int, wanted: int) -> list[LeasedMessage]:
        """Up to so many messages of a partition, as long as not too many are held."""
        consumer = self._by_topic.get(topic) or await self._join(topic)
        room = consumer.room()
        if room <= 0:
            raise Overloaded(f"this connection holds {IN_FLIGHT_MAX} messages of {topic}: ACK some of them first")
        try:
            return await consumer.take(partition, min(wanted, room))
        except (TopicNotFound, LeaseLost):  # it was deleted, and what it held is gone; it may be there anew
            consumer.close()
            del self._by_topic[topic]
            consumer = await self._join(topic)
            return await consumer.take(partition, min(wanted, consumer.room()))

    async def _join(self, topic: str) -> _TopicConsumer:
        if len(self._by_topic) >= _TOPICS_MAX:
            raise Overloaded(f"a connection consumes at most {_TOPICS_MAX} topics: open another one")
        partitions = self._services.shards.partition_count(topic)  # which must be there
        consuming = await self._services.workers.run(
            partial(
                consume,
                self._services.shards,
                LeasedMessage,
                topic,
                GROUP,
                mode="shared",
                max_in_flight=IN_FLIGHT_MAX,
                visibility_timeout=None,
                session_timeout=_SESSION_S,
                start="earliest",
                name=None,
            )
        )
        consumer = _TopicConsumer(self._services, topic, partitions, consuming)
        if self._closed:
            consumer.close()
        self._by_topic[topic] = consumer
        return consumer

    def ack(self, topic: str, partition: int, offset: int) -> Commit | None:
        """A message that was taken here is done, once this is committed."""
        consumer = self._by_topic.get(topic)
        if consumer is None:
            raise _not_held(topic, partition, offset)
        return consumer.ack(partition, offset)

    def close(self) -> None:
        """The connection is closed: release everything that it holds."""
        self._closed = True
        for consumer in self._by_topic.values():
            consumer.close()


def _not_held(topic: str, partition: int, offset: int) -> LeaseLost:
    return LeaseLost(
        f"this connection does not hold the message {offset} of {topic} {partition} (any more): "
        "ACK it on the connection that got it, once, before its visibility timeout is over"
    )
