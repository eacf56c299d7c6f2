"""What one client may ask for: the handshake, publishing, and the way to everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.model.batch import decode_payload
from penstock.model.errors import PenstockError
from penstock.model.intake import Single
from penstock.protocol.frames import REPLY, VERSION, Command, ProtocolError, frame
from penstock.protocol.publishing import Publish, Published, decode_publish, intake_of, plain_single, single_of
from penstock.protocol.session import Welcome, decode_hello, encode
from penstock.server.native.consumers import Consumers
from penstock.server.native.operations import Operations

if TYPE_CHECKING:
    from penstock.server.native.connection import Connection
    from penstock.server.native.listener import NativeListener

_PUBLISHED = Command.PUBLISH | REPLY
_RUN_MAX = 1000


class _Run:
    """Single messages with nothing but a value, which came one after the other: published together, each for itself."""

    __slots__ = ("correlations", "producer", "sequence", "singles", "topic")

    def __init__(self, topic: str, producer: str | None, sequence: int) -> None:
        self.topic = topic
        self.producer = producer
        self.sequence = sequence
        self.singles: list[Single] = []
        self.correlations: list[int] = []

    def follows(self, request: Publish) -> bool:
        """Whether a message goes on with this run."""
        return (
            bool(self.singles)
            and request.topic == self.topic
            and request.producer == self.producer
            and (request.producer is None or request.sequence == self.sequence + len(self.singles))
            and len(self.singles) < _RUN_MAX
        )


_NO_RUN = _Run("", None, 0)


class Session:
    """The requests of one connection."""

    def __init__(self, listener: NativeListener, connection: Connection) -> None:
        self._listener = listener
        self._connection = connection
        self._engine = listener.broker.engine
        self._commits = listener.commits
        self._clock = self._engine.clock
        self._run = _NO_RUN
        self._consumers = Consumers(listener, connection)
        self._operations = Operations(listener, connection)
        connection.handlers = {Command.HELLO: self._hello}
        connection.on_closed = self._closed
        connection.on_handled = self._publish_run
        connection.on_writable = self._consumers.push_all

    def _hello(self, correlation: int, body: memoryview) -> None:
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

    def _ping(self, correlation: int, body: memoryview) -> None:
        self._connection.reply(Command.PING, correlation, bytes(body))

    def _publish(self, correlation: int, body: memoryview) -> None:
        request = decode_publish(body)
        payload = decode_payload(request.payload)
        if len(payload[1]) == 1:
            single = plain_single(request, payload, self._engine.config)
            if single is not None:
                if not self._run.follows(request):
                    self._publish_run()
                    self._run = _Run(request.topic, request.producer, request.sequence)
                self._run.singles.append(single)
                self._run.correlations.append(correlation)
                return
        self._publish_run()
        engine, now_us = self._engine, self._clock.wall_us()
        intake = intake_of(request, payload, engine.config, now_us)
        if len(payload[1]) == 1:
            partition = None if intake.partitions is None else intake.partitions[0]
            self._publish_single(
                request.topic, single_of(intake), partition, now_us, request.producer, request.sequence, correlation
            )
            return
        ids, commit = engine.publish_intake(request.topic, intake, now_us)
        reply = frame(_PUBLISHED, correlation, encode(Published(list(ids.runs), ids.places)))
        self._commits.reply_after(commit, self._connection, [correlation], reply)

    def _publish_run(self) -> None:
        """Publish the single messages that came one after the other, all at once."""
        run = self._run
        if not run.singles:
            return
        self._run = _NO_RUN
        now_us = self._clock.wall_us()
        try:
            published = self._engine.publish_run(run.topic, run.singles, now_us, run.producer, run.sequence)
        except PenstockError as error:
            for correlation in run.correlations:
                self._connection.refuse(correlation, error)
            return
        if published is None:
            self._publish_one_by_one(run, now_us)
            return
        (partition, base, _), commit = published
        replies = [
            frame(_PUBLISHED, correlation, encode((((partition, offset, 1),),)))
            for offset, correlation in enumerate(run.correlations, base)
        ]
        self._commits.reply_after(commit, self._connection, run.correlations, b"".join(replies))

    def _publish_one_by_one(self, run: _Run, now_us: int) -> None:
        for sequence, (single, correlation) in enumerate(zip(run.singles, run.correlations, strict=True), run.sequence):
            try:
                self._publish_single(run.topic, single, None, now_us, run.producer, sequence, correlation)
            except PenstockError as error:
                self._connection.refuse(correlation, error)

    def _publish_single(
        self,
        topic: str,
        single: Single,
        partition: int | None,
        now_us: int,
        producer: str | None,
        sequence: int,
        correlation: int,
    ) -> None:
        identity, commit = self._engine.publish_single(topic, single, partition, now_us, producer, sequence)
        reply = frame(_PUBLISHED, correlation, encode((((identity.partition, identity.offset, 1),),)))
        self._commits.reply_after(commit, self._connection, [correlation], reply)

    def _closed(self) -> None:
        self._consumers.close()
