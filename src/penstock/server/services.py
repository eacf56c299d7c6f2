"""What all ports of a server share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from penstock.aio.broker import around
from penstock.api.operation import About
from penstock.api.operations import OPERATIONS
from penstock.cluster import topics
from penstock.embedded.broker import Broker
from penstock.model.info import TopicInfo
from penstock.model.message import Message, MessageIds
from penstock.model.placement import slice_name
from penstock.protocol.publishing import encode_publish
from penstock.server.access.access import Access
from penstock.server.access.principal import ANYBODY, PEER, Principal, Scope
from penstock.server.access.rates import RateLimits
from penstock.server.access.tls import peer_context, server_context
from penstock.server.commits import Commits
from penstock.server.deadlines import Deadlines
from penstock.server.descriptors import REFUSED_AT_ONCE, SpareDescriptor, connections_max
from penstock.server.membership import Membership
from penstock.server.metrics.live import LiveFigures
from penstock.server.metrics.metrics import Metrics
from penstock.server.operations import own_names, prepare, seen_by
from penstock.server.peer_places import ManyMachines
from penstock.server.peers import FLOOR, SHARDS, Here, Peers, do_with
from penstock.server.pipelines import Pipelines
from penstock.server.process_operations import Processes
from penstock.server.scattered import ScatteredTopics
from penstock.server.settings.options import ServerConfig
from penstock.server.workers import Workers
from penstock.views.ranking import Ranking


class Services:
    """The broker, and how requests reach it: every port does everything through this."""

    def __init__(self, broker: Broker, config: ServerConfig, membership: Membership | None = None) -> None:
        self.broker = broker
        self.membership = membership
        """The other processes, if this one is not alone."""
        if membership is not None:
            broker.shards.elsewhere = membership.not_owner
            membership.holds = broker.shards.__contains__
        self.shards = broker.shards
        self.clock = broker.shards.clock
        self.config = config
        self.max_connections = connections_max(config)
        self.loop = asyncio.get_running_loop()
        self.spare_descriptor = SpareDescriptor(self.loop)
        self.access = Access(config)
        self.rates = RateLimits(config.rate_limit)
        self.tls = server_context(config)
        self.deadlines = Deadlines(config)
        self.workers = Workers(self.loop)
        self.commits = Commits(self.loop, broker.shards)
        self.pipelines = Pipelines(self.clock)
        self.metrics = Metrics(broker.shards, config, self.loop, self.pipelines)
        self.processes = Processes(membership, broker.shards, self.metrics, self.loop)
        self.peers = None if membership is None else Peers(membership)
        self.made_for_peers: dict[str, Callable[[], asyncio.BaseProtocol]] = {}
        """By port: what makes the connections that other members open."""
        self.encrypt_to_peers(config)
        self.scattered = (
            None if membership is None or self.peers is None else ScatteredTopics(broker.shards, membership, self.peers)
        )
        if self.peers is not None:
            broker.shards.publish_elsewhere = self._publish_elsewhere
        self.metrics.broker_id = lambda: self.identity[0]
        self.live = LiveFigures(self.metrics, self.loop)
        self.ranking = Ranking(broker.shards)
        self.awaited = around(broker, self.commits)

    def encrypt_to_peers(self, config: ServerConfig) -> None:
        """Use the certificates that are in the files now for connections to other members from now on."""
        if self.membership is not None and isinstance(self.membership.neighbours, ManyMachines):
            self.membership.neighbours.tls = peer_context(config)

    @property
    def identity(self) -> tuple[str, int]:
        """Of the broker as a whole: what a restart does not change, and what grows with every start."""
        if self.membership is None:
            return self.shards.first.broker_id.hex(), self.shards.first.epoch
        return self.membership.broker_id, sum(place.epoch for place in self.membership.map.shards)

    def _publish_elsewhere(self, topic: str, messages: Sequence[Message]) -> MessageIds:
        """Publish to a topic of other processes, in a thread."""
        assert self.peers is not None
        body, _ = encode_publish(topic, messages, self.shards.config)
        return asyncio.run_coroutine_threadsafe(self.peers.publish(topic, body), self.loop).result()

    def is_elsewhere(self, topic: str) -> bool:
        """Whether another process has a topic."""
        return self.membership is not None and self.membership.is_elsewhere(topic)

    def name_here(self, topic: str) -> str:
        """The name by which a topic is asked for in this process alone: `orders#` where others have slices of it."""
        return topic if self.scattered is None else self.scattered.name_here(topic)

    def slice_to_ask(self, topic: str, partition: int | None) -> str | None:
        """The slice of a partition, or any, of a topic that other processes have slices of; None for all others."""
        spread = None if self.scattered is None else self.scattered.spread_of(topic)
        if spread is None:
            return None
        if partition is None:
            return slice_name(topic, next(self.shards.turns) % spread.slices)
        return slice_name(topic, spread.of_partition(partition))

    @property
    def is_full(self) -> bool:
        """Whether there are more connections than there may be, on all ports together."""
        return self.metrics.connections > self.max_connections

    @property
    def is_flooded(self) -> bool:
        """Whether there are so many more, or so few descriptors left, that the newest is closed without a word."""
        too_many = self.metrics.connections > self.max_connections + REFUSED_AT_ONCE
        return too_many or self.spare_descriptor.is_given_up()

    async def call(self, principal: Principal, operation: str, **arguments: Any) -> Any:
        """The result of an operation by its name, if it is allowed."""
        own = {**arguments, "staged": 0} if operation == "seal_stage" and self.peers is not None else arguments
        work = self.prepare(principal, operation, own)
        run = partial(self.workers.run, slow=OPERATIONS[operation].is_slow)
        if self.peers is None or self.scattered is None or self.membership is None or principal is PEER:
            return await run(work)
        scattered = self.scattered.find(operation, arguments)
        if scattered is not None:  # what was asked for is allowed: it was prepared
            if operation == "schedule":
                return await self.scattered.schedule(scattered, arguments, self._do)
            return await self.scattered.do(scattered, operation, arguments, self._do)
        if operation == "schedule":
            made = await run(work)
            await self.peers.remove_elsewhere(str(arguments["name"]), self.membership.number)
            return made
        about = OPERATIONS[operation].about
        is_own_matter = about is About.PIPELINES and not principal.sees_all
        if is_own_matter or not self.peers.gathers(operation, arguments):
            return await run(work)
        return await self._gathered(
            principal, operation, arguments, lambda shards: run(partial(do_with, self.shards, shards, work))
        )

    def gathers(self, principal: Principal, operation: str, arguments: Mapping[str, Any]) -> bool:
        """Whether an operation takes other processes too."""
        if self.peers is None or principal is PEER:
            return False
        if operation == "schedule" or self.peers.gathers(operation, arguments):
            return True
        return self.scattered is not None and self.scattered.find(operation, arguments) is not None

    async def _do(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        """What this process answers to something that was allowed."""
        work = self.prepare(PEER, operation, arguments)
        return await self.workers.run(work, slow=OPERATIONS[operation].is_slow)

    async def _gathered(self, principal: Principal, operation: str, arguments: Mapping[str, Any], here: Here) -> Any:
        """The answer of all processes, as far as somebody may see it."""
        assert self.peers is not None
        about = OPERATIONS[operation].about
        if about is About.SCHEDULE and not principal.sees_all:
            for schedule in await self.call(ANYBODY, "schedules"):
                if schedule.name == arguments.get("name"):
                    principal.require(Scope.PUBLISH, schedule.topic)
        given = own_names(principal, arguments) if about is About.STAGES else arguments
        found = await self.peers.gather(operation, given, here)
        return seen_by(principal, found) if about is About.LIST else found

    def prepare(self, principal: Principal, operation: str, arguments: Mapping[str, Any]) -> Callable[[], Any]:
        """What does an operation by its name in a thread; raises here if it is not allowed."""
        shards: Sequence[int] | None = None
        floor: int | None = None
        if principal is PEER:
            arguments = dict(arguments)
            shards, floor = arguments.pop(SHARDS, None), arguments.pop(FLOOR, None)
        work = prepare(self.broker, self.pipelines, self.processes, principal, operation, arguments)
        if floor is not None:
            work = partial(self._with_floor, operation, arguments, floor)
        if shards is not None:
            return partial(do_with, self.shards, shards, work)
        return partial(self._with_new_tokens, work) if OPERATIONS[operation].about is About.TOKENS else work

    def _with_floor(self, operation: str, arguments: Mapping[str, Any], floor: int) -> TopicInfo | None:
        """Make or delete what this process has of a topic, whose offsets do not begin anew."""
        options = dict(arguments)
        name = options.pop("name")
        if operation == "create_topic":
            return topics.create_topic(self.shards, name, options, floor)
        topics.delete_topic(self.shards, name, floor)
        return None

    def _with_new_tokens(self, work: Callable[[], Any]) -> Any:
        """Have tokens that were made or revoked count at once."""
        result = work()
        self.loop.call_soon_threadsafe(self.access.read_again)
        return result
