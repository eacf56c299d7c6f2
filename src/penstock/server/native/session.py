"""What one client may ask for: the handshake, publishing, and the way to everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.model.batch import decode_payload
from penstock.protocol.frames import REPLY, VERSION, Command, ProtocolError, frame
from penstock.protocol.publishing import Published, decode_publish, intake_of, plain_single, single_of
from penstock.protocol.session import Welcome, decode_hello, encode
from penstock.server.native.consumers import Consumers
from penstock.server.native.operations import Operations

if TYPE_CHECKING:
    from penstock.server.native.connection import Connection
    from penstock.server.native.listener import NativeListener

_PUBLISHED = Command.PUBLISH | REPLY


class Session:
    """The requests of one connection."""

    def __init__(self, listener: NativeListener, connection: Connection) -> None:
        self._listener = listener
        self._connection = connection
        self._engine = listener.broker.engine
        self._commits = listener.commits
        self._clock = self._engine.clock
        self._consumers = Consumers(listener, connection)
        self._operations = Operations(listener, connection)
        connection.handlers = {Command.HELLO: self._hello}
        connection.on_closed = self._closed
        connection.on_writable = self._consumers.push_all

    def _hello(self, correlation: int, body: memoryview | bytes) -> None:
        hello = decode_hello(body)
        if VERSION not in hello.versions:
            raise ProtocolError(
                f"the client speaks versions {hello.versions} of the protocol, the server version {VERSION}",
                correlation,
            )
        connection, config, engine = self._connection, self._listener.config, self._engine
        connection.greeted = True
        connection.handlers = {
            Command.HELLO: self._hello,
            Command.PING: self._ping,
            Command.PUBLISH: self._publish,
            **self._consumers.handlers(),
            **self._operations.handlers(),
        }
        limits = {
            name: getattr(engine.config, name)
            for name in ("max_value_bytes", "max_key_bytes", "max_headers_bytes", "max_batch_bytes")
        }
        welcome = Welcome(
            VERSION,
            self._listener.server_name,
            engine.broker_id.hex(),
            engine.epoch,
            engine.config.sync,
            config.idle_timeout,
            {**limits, "max_frame_bytes": config.max_frame_bytes},
        )
        connection.reply(Command.HELLO, correlation, encode(welcome))

    def _ping(self, correlation: int, body: memoryview | bytes) -> None:
        self._connection.reply(Command.PING, correlation, bytes(body))

    def _publish(self, correlation: int, body: memoryview | bytes) -> None:
        request = decode_publish(body)
        payload = decode_payload(request.payload)
        engine, singles = self._engine, self._listener.singles
        if len(payload[1]) == 1:
            single = plain_single(body, request, payload, engine.config)
            if single is not None:
                singles.add(self._connection, correlation, request, single)
                return
        singles.publish()  # those that came before go before
        now_us = self._clock.wall_us()
        intake = intake_of(request, payload, engine.config, now_us)
        if len(payload[1]) == 1:
            partition = None if intake.partitions is None else intake.partitions[0]
            origin = (request.producer, request.sequence)
            singles.publish_one(
                self._connection, correlation, request.topic, single_of(intake), partition, now_us, *origin
            )
            return
        ids, commit = engine.publish_intake(request.topic, intake, now_us)
        reply = frame(_PUBLISHED, correlation, encode(Published(list(ids.runs), ids.places)))
        self._commits.reply_after(commit, self._connection, correlation, reply)

    def _closed(self) -> None:
        self._consumers.close()
