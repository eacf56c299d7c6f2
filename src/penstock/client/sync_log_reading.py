# Made from client/log_reading.py by tools/faces.py: change that, and run `make faces`.
"""Reading through a client, page by page: messages, Arrow batches and events; in plain calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from penstock.client.received import messages_of
from penstock.client.requests import reading
from penstock.client.sync_calls import ClientCalls
from penstock.model.errors import TopicNotFound, TopicSpread
from penstock.model.events import Event
from penstock.model.message import StoredMessage
from penstock.model.options import check_limit
from penstock.model.units import Time
from penstock.protocol.frames import Command
from penstock.protocol.session import Page, Read, decode_page, encode

if TYPE_CHECKING:
    import pyarrow as pa


class ClientReading(ClientCalls):
    """The operations of `penstock.Broker` that read, asked of a server."""

    def read(
        self,
        topic: str,
        partition: int | None = None,
        *,
        offset: int | None = None,
        from_time: Time | None = None,
        to_time: Time | None = None,
        limit: int | None = None,
        include_deleted: bool = False,
    ) -> Iterator[StoredMessage]:
        """The messages of a topic up to now, partition after partition, each in the order of its offsets."""
        request = reading(topic, offset, from_time, to_time)
        request.include_deleted, request.limit = include_deleted, check_limit(limit)
        for page in self.pages(request, partition):
            for rows in page.rows:
                yield from messages_of(rows, StoredMessage)

    def read_arrow(
        self,
        topic: str,
        partition: int | None = None,
        *,
        offset: int | None = None,
        from_time: Time | None = None,
        to_time: Time | None = None,
        include_deleted: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """The same messages as Arrow record batches: the fast way to read many."""
        import pyarrow as pa

        request = reading(topic, offset, from_time, to_time)
        request.include_deleted, request.form = include_deleted, "arrow"
        for page in self.pages(request, partition):
            if page.arrow is not None:
                yield from pa.ipc.open_stream(page.arrow)

    def events(self, topic: str, partition: int | None = None) -> Iterator[Event]:
        """What happened to the messages of a topic, partition after partition."""
        for page in self.pages(Read(topic, 0, form="events"), partition):
            yield from page.events

    def pages(self, request: Read, partition: int | None) -> Iterator[Page]:
        """Everything that a request asks for, page by page, of one partition or of all."""
        chosen: Iterable[int] = [partition] if isinstance(partition, int) else self.partitions(request.topic)
        if partition is not None and (not isinstance(partition, int) or isinstance(partition, bool)):
            raise TopicNotFound(f"{request.topic} has no partition {partition!r}: it has 0 to {max(chosen)}")
        topic, start, asked_end = request.topic, request.offset, request.end
        for number in chosen:
            following: int | None = start
            request.partition, request.end = number, asked_end
            while following is not None and request.limit != 0:
                request.offset = following
                request.topic = self.slices.name_of_partition(topic, number)
                try:
                    reply = self.ask(Command.READ, encode(request), topic=request.topic, repeatable=True)
                except TopicSpread as error:
                    self.slices.note(error)
                    if self.slices.name_of_partition(topic, number) == request.topic:
                        raise
                    continue
                page = decode_page(reply)
                yield page
                following = page.next_offset
                if request.end is None:
                    request.end = page.end  # what comes later is not waited for, or reading might never end
                if request.limit is not None:
                    request.limit -= page.count

    def partitions(self, topic: str) -> range:
        """The numbers of a topic's partitions; for a topic that is not there just one, of which the server tells so."""
        found = next((info for info in self.topics() if info.name == topic), None)
        return range(1 if found is None else len(found.partitions))
