"""Every operation of a broker, declared once.

The signatures are those of `penstock.Broker`, in plain calls. A server finds here what an operation takes and whom it
is for, a client whether it may be repeated and how long it may take. Where a declaration has a docstring, the method of
`penstock.Broker` is made from it too: it calls the function of that name in `penstock/shard/operations`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from penstock.api.operation import ALL, About, Waits, operation, operations_of
from penstock.model.events import Event
from penstock.model.info import BrokerStatus, GroupInfo, TopicInfo
from penstock.model.layout import TopicLayout
from penstock.model.letters import DeadLetter, LetterChoice, RedriveReport
from penstock.model.message import Data, Message, MessageId, MessageIds, StoredMessage
from penstock.model.names import Priority
from penstock.model.pipelines import PipelineReport
from penstock.model.processes import ClusterInfo
from penstock.model.schedules import DelayedMessage, Schedule
from penstock.model.tokens import NewToken, Scope, TokenInfo
from penstock.model.traces import Trace
from penstock.model.units import Duration, Time

if TYPE_CHECKING:
    import pyarrow as pa

_ADMIN, _PUBLISH, _CONSUME, _READ = Scope.ADMIN, Scope.PUBLISH, Scope.CONSUME, Scope.READ


class BrokerOperations(Protocol):
    """What every face of a broker has: embedded and through a client, in plain calls and awaited."""

    # Publishing, consuming and reading, which have commands of their own.

    @operation(_PUBLISH, "topic", called=False)
    def publish(
        self,
        topic: str,
        value: Data,
        *,
        key: Data | None = None,
        headers: Mapping[str, str] | None = None,
        priority: Priority = "normal",
        delay: Duration | None = None,
        deliver_at: Time | None = None,
        partition: int | None = None,
        dedupe_id: str | None = None,
        expires_in: Duration | None = None,
    ) -> MessageId: ...

    @operation(_PUBLISH, "topic", called=False)
    def publish_many(
        self,
        topic: str,
        messages: Iterable[Message | bytes | str],
        *,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> MessageIds: ...

    @operation(_PUBLISH, "topic", called=False)
    def stage_many(self, stage: str, topic: str, messages: Iterable[Message | bytes | str]) -> int: ...

    @operation(_CONSUME, "topic", called=False)
    def consumer(
        self,
        topic: str | Sequence[str],
        group: str,
        *,
        mode: str = "shared",
        max_in_flight: int = 1000,
        visibility_timeout: Duration | None = None,
        autoack: bool = False,
        start: str | Time = "earliest",
        session_timeout: Duration = 30.0,
        name: str | None = None,
    ) -> Any: ...  # each face has consumers of its own

    @operation(_READ, "topic", called=False, repeatable=True)
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
    ) -> Iterator[StoredMessage]: ...

    @operation(_READ, "topic", called=False, repeatable=True)
    def read_arrow(
        self,
        topic: str,
        partition: int | None = None,
        *,
        offset: int | None = None,
        from_time: Time | None = None,
        to_time: Time | None = None,
        include_deleted: bool = False,
    ) -> Iterator[pa.RecordBatch]: ...

    @operation(_READ, "topic", called=False, repeatable=True)
    def events(self, topic: str, partition: int | None = None) -> Iterator[Event]: ...

    @operation(_READ, "topic", repeatable=True)
    def offset_at(self, topic: str, time: Time, partition: int = 0) -> int: ...

    # Topics and upkeep.

    @operation(_READ, ALL, about=About.LIST, waits=Waits.NOT, repeatable=True)
    def topics(self) -> list[TopicInfo]: ...

    @operation(_READ, "topic", waits=Waits.NOT, repeatable=True)
    def layout(self, topic: str, *, segments: bool = True) -> TopicLayout: ...

    @operation(_ADMIN, "name")
    def create_topic(self, name: str, **config: Any) -> TopicInfo: ...

    @operation(_ADMIN, "name")
    def configure_topic(self, name: str, **options: Any) -> TopicInfo: ...

    @operation(_ADMIN, "name", waits=Waits.HOURS)
    def delete_topic(self, name: str) -> None: ...

    @operation(_ADMIN, ALL, waits=Waits.HOURS)
    def settle(self) -> None: ...

    @operation(_ADMIN, ALL, waits=Waits.HOURS)
    def retain(self) -> int: ...

    @operation(_ADMIN, "topic", waits=Waits.HOURS)
    def trim(self, topic: str, before: Mapping[int, int], *, events: Mapping[int, int] | None = None) -> int: ...

    @operation(_READ, ALL, about=About.LIST, repeatable=True)
    def status(self) -> BrokerStatus:
        """The broker at this instant: who it is, how much it holds, and whether it can write."""

    # Groups.

    @operation(_CONSUME, "topic")
    def create_group(
        self,
        topic: str,
        group: str,
        *,
        start: str | Time = "earliest",
        visibility_timeout: Duration | None = None,
        max_in_flight: int | None = None,
    ) -> GroupInfo:
        """Make a group before its first consumer comes, with settings of its own."""

    @operation(_READ, "topic", about=About.LIST, repeatable=True)
    def groups(self, topic: str | None = None) -> list[GroupInfo]:
        """Every group, or those of one topic."""

    @operation(_READ, "topic", repeatable=True)
    def group(self, topic: str, group: str) -> GroupInfo:
        """One group: its lag, what is ready, leased, delayed and dead, and its consumers."""

    @operation(_CONSUME, "topic")
    def seek_group(self, topic: str, group: str, to: int | str | Time, *, partition: int | None = None) -> None:
        """Move a group to an offset (a whole number), a time, 'earliest' or 'latest'; what it leased is taken back.

        Times are datetimes, ISO 8601 text, or seconds since 1970 with a fraction (a whole number is an offset).
        """

    @operation(_CONSUME, "topic")
    def reset_group(self, topic: str, group: str) -> None:
        """Let a group begin again, with everything that is kept: `seek_group` to 'earliest'."""

    @operation(_CONSUME, "topic", repeatable=True)
    def pause_group(self, topic: str, group: str) -> GroupInfo:
        """Hand no messages to a group until it is resumed; its consumers keep what they hold, and can finish it."""

    @operation(_CONSUME, "topic", repeatable=True)
    def resume_group(self, topic: str, group: str) -> GroupInfo:
        """Hand messages to a paused group again; whatever has come meanwhile waits for it."""

    @operation(_CONSUME, "topic")
    def checkpoint_group(self, topic: str, group: str, positions: Mapping[int, int]) -> None:
        """Note how far a reader is that keeps its own position (offsets by partition), so that its lag is seen.

        The group is made if it is new, and is for no consumers; durable when this returns. Each position is the next
        offset to be read, and may go back; where it is the same as before, nothing is written.
        """

    @operation(_CONSUME, "topic")
    def delete_group(self, topic: str, group: str) -> None:
        """Forget a group; it must have no consumers."""

    # Delays and schedules.

    @operation(_READ, "topic", repeatable=True)
    def delayed(self, topic: str, *, limit: int | None = None) -> list[DelayedMessage]:
        """What is not due yet, the next to fall due first."""

    @operation(_PUBLISH, "identity")
    def cancel_delayed(self, identity: MessageId | str) -> bool:
        """Withdraw a delayed message: True if and only if nobody ever gets it."""

    @operation(_PUBLISH, "identity")
    def reschedule_delayed(
        self, identity: MessageId | str, *, delay: Duration | None = None, deliver_at: Time | None = None
    ) -> datetime | None:
        """Give a delayed message another time; that time, or None if it is not delayed (any more)."""

    @operation(_PUBLISH, "topic", about=About.SCHEDULE, large=True)
    def schedule(
        self,
        name: str,
        cron: str,
        topic: str,
        value: Data,
        *,
        zone: str = "UTC",
        key: Data | None = None,
        headers: Mapping[str, str] | None = None,
        priority: Priority = "normal",
        expires_in: Duration | None = None,
    ) -> Schedule:
        """Publish a message again and again, when a cron expression says so in a time zone.

        A schedule of the same name is replaced. What was missed while the broker was closed is published once.
        """

    @operation(_READ, ALL, about=About.LIST, waits=Waits.NOT, repeatable=True)
    def schedules(self) -> list[Schedule]:
        """Every schedule, by name."""

    @operation(_PUBLISH, ALL, about=About.SCHEDULE)
    def pause_schedule(self, name: str) -> Schedule:
        """Stop a schedule from firing."""

    @operation(_PUBLISH, ALL, about=About.SCHEDULE)
    def resume_schedule(self, name: str) -> Schedule:
        """Let a paused schedule fire again, from now on."""

    @operation(_PUBLISH, ALL, about=About.SCHEDULE)
    def remove_schedule(self, name: str) -> None:
        """End a schedule."""

    # Dead letters, and the past. A function does not travel: CALL takes the ids or offsets that it has chosen.

    @operation(_READ, "topic", repeatable=True)
    def dead_letters(
        self, topic: str, *, filter: LetterChoice | None = None, limit: int | None = None
    ) -> list[DeadLetter]:
        """The dead letters of a topic, oldest first."""

    @operation(_READ, "identity", repeatable=True)
    def dead_letter(self, identity: MessageId | str) -> DeadLetter:
        """One dead letter, by its id among the dead letters (`orders.dlq/0/7`)."""

    @operation(_ADMIN, "topic", waits=Waits.HOURS, large=True)
    def redrive(
        self,
        topic: str,
        *,
        filter: LetterChoice | None = None,
        to: str | None = None,
        rate: float | None = None,
        dry_run: bool = False,
        progress: Callable[[int], object] | None = None,
    ) -> RedriveReport:
        """Send dead letters back to the groups that gave them up, or as new messages to another topic.

        Each goes once, also when this is stopped in the middle; `rate` is in messages a second. `progress` is told
        after each step how many letters it had.
        """

    @operation(_ADMIN, "topic", waits=Waits.HOURS, large=True)
    def purge_dead_letters(self, topic: str, *, filter: LetterChoice | None = None) -> int:
        """Let dead letters go for good; how many."""

    @operation(_CONSUME, "topic", waits=Waits.HOURS, large=True)
    def replay(
        self,
        topic: str,
        to: str | Callable[[StoredMessage], object],
        *,
        from_time: Time | None = None,
        to_time: Time | None = None,
        from_offset: int | None = None,
        to_offset: int | None = None,
        partition: int | None = None,
        filter: Callable[[StoredMessage], bool] | None = None,
        rate: float | None = None,
    ) -> int:
        """A window of the past once more, into a fresh group (its name) or a function; how many messages.

        Acked, dead and archived messages are included; the live groups are not touched. A function is called here
        and now; a group waits for its consumers.
        """

    @operation(_READ, "identity", repeatable=True)
    def trace(self, identity: MessageId | str) -> Trace:
        """The life of a message: published, delivered, failed, acked, …, each with time, group and cause."""

    # Stages.

    @operation(_PUBLISH, ALL, about=About.STAGES, waits=Waits.LONG, repeatable=True)
    def seal_stage(self, stage: str) -> int: ...

    @operation(_PUBLISH, ALL, about=About.STAGES, waits=Waits.HOURS, repeatable=True)
    def publish_staged(self, stages: Sequence[str], *, producer: str, sequence: int) -> int: ...

    @operation(_PUBLISH, ALL, about=About.STAGES, repeatable=True)
    def staged_sequence(self, producer: str) -> int | None: ...

    @operation(_PUBLISH, ALL, about=About.STAGES, repeatable=True)
    def drop_staged(self, stages: Sequence[str]) -> None: ...


class PipelineOperations(Protocol):
    """What a server knows of and a broker does not: both faces of a client have it."""

    @operation(_CONSUME, ALL, about=About.PIPELINES, repeatable=True)
    def report_pipeline(self, report: PipelineReport) -> None:
        """Tell the server what a pipeline is doing; it keeps the newest report, for a day."""

    @operation(_READ, ALL, about=About.PIPELINES, repeatable=True)
    def pipelines(self) -> list[PipelineReport]:
        """What every pipeline has reported last, by name; `silent` are those that ought to have reported again."""


class TokenOperations(Protocol):
    """The tokens of a server: asked for by name only, as the command line does."""

    @operation(_ADMIN, ALL, about=About.TOKENS)
    def create_token(
        self,
        name: str,
        scopes: list[str],
        *,
        topics: list[str] | None = None,
        expires_in: float | str | None = None,
    ) -> NewToken: ...

    @operation(_ADMIN, ALL, about=About.TOKENS, repeatable=True)
    def tokens(self) -> list[TokenInfo]: ...

    @operation(_ADMIN, ALL, about=About.TOKENS)
    def revoke_token(self, token: str) -> TokenInfo: ...


class ProcessOperations(Protocol):
    """The processes of a server and their shards."""

    @operation(_READ, ALL, about=About.PROCESSES, repeatable=True)
    def cluster(self) -> ClusterInfo:
        """All processes and shards of the server, and the last moves."""

    @operation(_ADMIN, ALL, about=About.PROCESSES, waits=Waits.LONG, repeatable=True)
    def move_shard(self, shard: int, process: int) -> ClusterInfo:
        """Move a shard to a process, and wait until it is there; only what it has pauses, for a moment."""

    @operation(_ADMIN, ALL, about=About.PROCESSES, waits=Waits.LONG, repeatable=True)
    def drain_process(self, process: int) -> ClusterInfo:
        """Move all shards of a process to others; it gets none until they are balanced again."""

    @operation(_ADMIN, ALL, about=About.PROCESSES, waits=Waits.LONG, repeatable=True)
    def balance_shards(self) -> ClusterInfo:
        """Let all processes share the shards, with as few moves as that takes."""


OPERATIONS = operations_of(BrokerOperations, PipelineOperations, TokenOperations, ProcessOperations)
"""Every operation, by its name."""
