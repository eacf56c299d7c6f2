"""What one client may ask for: the handshake, publishing, and the way to everything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from penstock.api.operations import OPERATIONS
from penstock.cluster.publishing import publish_intake, stage_intake
from penstock.model.batch import Payload, decode_large_payload, decode_payload
from penstock.model.bounds import ON_LOOP_BYTES_MAX, REQUEST_BYTES_MAX, UNCOUNTED_BYTES, check_size
from penstock.model.intake import Intake
from penstock.model.names import TOPIC_NAME, check_group_name
from penstock.model.placement import whole_name
from penstock.model.producers import name_of_producer
from penstock.model.units import format_size
from penstock.protocol.decoding import topic_of
from penstock.protocol.frames import REPLY, VERSION, Command, ProtocolError, frame
from penstock.protocol.publishing import (
    Publish,
    Published,
    Staged,
    decode_large_publish,
    decode_large_stage,
    decode_publish,
    decode_stage,
    intake_of,
    plain_publish,
    single_of,
)
from penstock.protocol.session import HELLO_BYTES_MAX, Welcome, decode_hello, encode
from penstock.server.access.principal import PEER
from penstock.server.native.consumers import Consumers
from penstock.server.native.operations import Operations

if TYPE_CHECKING:
    from penstock.server.native.connection import Connection
    from penstock.server.native.listener import NativeListener

_PUBLISHED = Command.PUBLISH | REPLY
_KNOWN_TOPICS_MAX = 1000
_PUBLISHING, _STAGING = OPERATIONS["publish"].scope, OPERATIONS["stage_many"].scope
Result = TypeVar("Result")


class NativeSession:
    """The requests of one connection."""

    def __init__(self, listener: NativeListener, connection: Connection) -> None:
        self._listener = listener
        self._connection = connection
        self._shards = listener.broker.shards
        self._limits = self._shards.config
        self._commits = listener.commits
        self._singles = listener.singles
        self._value_bytes_max = self._limits.max_value_bytes
        self._clock = self._shards.clock
        self._may_publish: set[str] = set()  # topics for which that was found out
        self._name: str | None = None  # what the client calls itself, or its token
        self._last_producer: tuple[str | None, str | None] = (None, None)  # and the name that it has
        self._consumers = Consumers(listener, connection)
        self._operations = Operations(listener, connection)
        connection.handlers = {Command.HELLO: self._hello}
        connection.on_closed = self._consumers.close
        connection.on_writable = self._consumers.push_all

    def _hello(self, correlation: int, body: memoryview | bytes) -> None:
        if len(body) > HELLO_BYTES_MAX:
            raise ProtocolError(f"a HELLO has at most {format_size(HELLO_BYTES_MAX)}", correlation)
        hello = decode_hello(body)
        if VERSION not in hello.versions:
            raise ProtocolError(
                f"the client speaks versions {hello.versions} of the protocol, the server version {VERSION}",
                correlation,
            )
        connection, config, membership = self._connection, self._listener.config, self._listener.services.membership
        name = None if hello.name is None else check_group_name(hello.name, "client")
        known = connection.principal if connection.greeted else None
        access = self._listener.access
        connection.greet(PEER if connection.is_peer else access.log_in(hello.token, known, connection.peer))
        self._name = name or connection.principal.producer_name
        self._last_producer = (None, self._name)
        connection.handlers = {
            Command.HELLO: self._hello,
            Command.PING: self._ping,
            Command.PUBLISH: self._publish,
            Command.STAGE: self._stage,
            **self._consumers.handlers(),
            **self._operations.handlers(),
        }
        limits = {
            name: getattr(self._limits, name)
            for name in ("max_value_bytes", "max_key_bytes", "max_headers_bytes", "max_batch_bytes")
        }
        connection.follows = hello.follows
        welcome = Welcome(
            VERSION,
            self._listener.server_name,
            *self._listener.services.identity,
            self._limits.sync,
            config.idle_timeout,
            {**limits, "max_frame_bytes": config.max_frame_bytes},
            membership.map if membership is not None and hello.follows else None,
        )
        connection.reply(Command.HELLO, correlation, encode(welcome))

    def _permit_publish(self, topic: str) -> None:
        if topic in self._may_publish:
            return
        self._connection.principal.require(_PUBLISHING, topic)
        if len(self._may_publish) >= _KNOWN_TOPICS_MAX:
            self._may_publish.clear()
        if TOPIC_NAME.fullmatch(whole_name(topic)):  # others are refused, and may be large
            self._may_publish.add(topic)

    def _name_of(self, producer: str | None) -> str | None:
        """The name of whoever publishes: that of the producer, or of the client; it is seldom another than before."""
        known, name = self._last_producer
        if producer != known:
            name = (name_of_producer(producer) if producer is not None else None) or self._name
            self._last_producer = (producer, name)
        return name

    def _ping(self, correlation: int, body: memoryview | bytes) -> None:
        check_size("the request", len(body), REQUEST_BYTES_MAX)
        self._connection.reply(Command.PING, correlation, bytes(body))

    def _publish(self, correlation: int, body: memoryview | bytes) -> None:
        if len(body) > UNCOUNTED_BYTES:
            self._publish_large(correlation, body)
            return
        plain = plain_publish(body)
        if plain is None:
            request = decode_publish(body)
            self._permit_publish(request.topic)
            self._publish_batch(correlation, request, decode_payload(request.payload))
            return
        topic, packed, producer, sequence = plain
        if topic not in self._may_publish:
            self._permit_publish(topic)
        keys, values, headers = payload = decode_payload(packed)
        if keys is None and headers is None and len(values) == 1 and len(values[0]) <= self._value_bytes_max:
            name = self._name_of(producer)
            self._singles.add(self._connection, correlation, topic, values[0], producer, sequence, name)
        else:
            self._publish_batch(correlation, Publish(topic, packed, producer, sequence), payload)

    def _publish_batch(self, correlation: int, request: Publish, payload: Payload) -> None:
        now_us = self._clock.wall_us()
        self._publish_checked(correlation, request, intake_of(request, payload, self._limits, now_us), now_us)

    def _publish_large(self, correlation: int, body: memoryview | bytes) -> None:
        """Count before decoding, once it is clear that this is allowed; what comes behind it waits for it."""
        principal = self._connection.principal
        principal.require(_PUBLISHING, topic_of(body))
        received, now_us = _kept(body), self._clock.wall_us()

        def work() -> tuple[Publish, Intake]:
            request = decode_large_publish(received)
            principal.require(_PUBLISHING, request.topic)
            return request, intake_of(request, decode_large_payload(request.payload), self._limits, now_us)

        def then(read: tuple[Publish, Intake]) -> None:
            self._publish_checked(correlation, *read, now_us)

        self._read(Command.PUBLISH, correlation, received, work, then)

    def _publish_checked(self, correlation: int, request: Publish, intake: Intake, now_us: int) -> None:
        singles = self._singles
        singles.publish()  # those that came before go before
        if len(intake.batch) == 1:
            partition = None if intake.partitions is None else intake.partitions[0]
            origin = (request.producer, request.sequence, self._name_of(request.producer))
            singles.publish_one(
                self._connection, correlation, request.topic, single_of(intake), partition, now_us, *origin
            )
            return
        ids, commit = publish_intake(self._shards, request.topic, intake, now_us, self._name)
        reply = frame(_PUBLISHED, correlation, encode(Published(list(ids.runs), ids.places)))
        self._commits.reply_after(commit, self._connection, correlation, reply)

    def _stage(self, correlation: int, body: memoryview | bytes) -> None:
        """Written at once, for nothing is synced before the stage is sealed."""
        principal, now_us = self._connection.principal, self._clock.wall_us()
        principal.require(_STAGING)
        received = _kept(body)
        is_large = len(received) > UNCOUNTED_BYTES

        def work() -> int:
            request = (decode_large_stage if is_large else decode_stage)(received)
            batch = request.batch
            principal.require(_STAGING, batch.topic)
            payload = (decode_large_payload if is_large else decode_payload)(batch.payload)
            intake = intake_of(batch, payload, self._limits, now_us)
            stage = principal.own_name(request.stage)
            return stage_intake(self._shards, stage, batch.topic, intake, now_us, request.writer, request.number)

        def then(count: int) -> None:
            self._connection.reply(Command.STAGE, correlation, encode(Staged(count)))

        self._read(Command.STAGE, correlation, received, work, then)

    def _read(
        self,
        command: Command,
        correlation: int,
        body: memoryview | bytes,
        work: Callable[[], Result],
        then: Callable[[Result], None],
    ) -> None:
        """Do what a request asks for, in a thread if it is large."""
        if len(body) > ON_LOOP_BYTES_MAX:
            self._connection.in_thread_first(command, correlation, work, then)
        else:
            then(work())


def _kept(body: memoryview | bytes) -> memoryview | bytes:
    """A body that is there for as long as it is needed: those of small requests are so without a copy."""
    return bytes(body) if len(body) > ON_LOOP_BYTES_MAX else body
