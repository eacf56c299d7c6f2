"""Every operation of a broker, declared once: arguments, result, and the rules that hold wherever it is asked for.

The signatures are those of `penstock.Broker`, in plain calls. A server finds here what an operation takes and whom it
is for, a client whether it may be repeated and how long it may take.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from penstock.model.bounds import LARGE_REQUEST_BYTES_MAX, REQUEST_BYTES_MAX
from penstock.model.events import Event
from penstock.model.info import BrokerStatus, GroupInfo, TopicInfo
from penstock.model.layout import TopicLayout
from penstock.model.letters import DeadLetter, LetterChoice, RedriveReport
from penstock.model.message import Data, Message, MessageId, MessageIds, StoredMessage
from penstock.model.names import Priority
from penstock.model.pipelines import PipelineReport
from penstock.model.schedules import DelayedMessage, Schedule
from penstock.model.tokens import NewToken, Scope, TokenInfo
from penstock.model.traces import Trace
from penstock.model.units import Duration, Time

if TYPE_CHECKING:
    import pyarrow as pa

ALL = "all"
"""The route of an operation that no one topic routes."""


class Waits(Enum):
    """How long an operation may take."""

    NOT = "it only looks at memory"
    BRIEFLY = "for the disk, or for a lock"
    LONG = "for minutes: whoever asks is patient"
    HOURS = "for hours: whoever asks is patient, and a server does it in a thread beside those of other requests"


class About(StrEnum):
    """What an operation is about, and so what it takes of somebody whose token is for some topics only."""

    TOPIC = "a topic"
    """The topic must be theirs."""
    ALL_TOPICS = "all topics"
    """It is refused."""
    LIST = "a list"
    """They see what is of their topics."""
    SCHEDULE = "a schedule"
    """It must be for a topic of theirs."""
    STAGES = "stages"
    """They have stages and producers of their own."""
    PIPELINES = "pipelines"
    """They report under names of their own, and see what is of their topics."""
    TOKENS = "tokens"
    """It is refused; and nobody does it on a server that asks for no tokens."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation, and its rules."""

    name: str
    declared: Callable[..., Any]
    """Its arguments and its result, as a method that does nothing."""
    scope: Scope
    """What a token must be for."""
    route: str
    """The argument that names the topic, or a message of it, by which a request finds its log; or `ALL`."""
    about: About
    waits: Waits
    repeatable: bool
    """Doing it twice is the same as doing it once: a client asks again when a reply was lost."""
    large: bool
    """Its arguments may be as large as a batch of messages."""
    called: bool
    """A server does it by its name (CALL); if not, it has commands of its own."""

    @property
    def is_patient(self) -> bool:
        """Whether a client waits for it longer than for anything else."""
        return self.waits in (Waits.LONG, Waits.HOURS)

    @property
    def is_slow(self) -> bool:
        """Whether a server does it in a thread beside those of other requests."""
        return self.waits is Waits.HOURS

    @property
    def bytes_max(self) -> int:
        """How large its arguments may be, as they are sent by the native protocol."""
        return LARGE_REQUEST_BYTES_MAX if self.large else REQUEST_BYTES_MAX

    @property
    def signature(self) -> inspect.Signature:
        """Its arguments and its result; types are text."""
        declared = inspect.signature(self.declared)
        return declared.replace(parameters=list(declared.parameters.values())[1:])


OPERATIONS: dict[str, Operation] = {}
"""Every operation, by its name."""
_Declared = TypeVar("_Declared", bound=Callable[..., Any])
_ADMIN, _PUBLISH, _CONSUME, _READ = Scope.ADMIN, Scope.PUBLISH, Scope.CONSUME, Scope.READ


def _operation(
    scope: Scope,
    route: str,
    *,
    about: About | None = None,
    waits: Waits = Waits.BRIEFLY,
    repeatable: bool = False,
    large: bool = False,
    called: bool = True,
) -> Callable[[_Declared], _Declared]:
    """The rules of the operation that is declared below."""

    def declare(declared: _Declared) -> _Declared:
        name = declared.__name__
        subject = about or (About.ALL_TOPICS if route == ALL else About.TOPIC)
        OPERATIONS[name] = Operation(name, declared, scope, route, subject, waits, repeatable, large, called)
        return declared

    return declare


class BrokerOperations(Protocol):
    """What every face of a broker has: embedded and through a client, in plain calls and awaited."""

    # Publishing, consuming and reading, which have commands of their own.

    @_operation(_PUBLISH, "topic", called=False)
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

    @_operation(_PUBLISH, "topic", called=False)
    def publish_many(
        self,
        topic: str,
        messages: Iterable[Message | bytes | str],
        *,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> MessageIds: ...

    @_operation(_PUBLISH, "topic", called=False)
    def stage_many(self, stage: str, topic: str, messages: Iterable[Message | bytes | str]) -> int: ...

    @_operation(_CONSUME, "topic", called=False)
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

    @_operation(_READ, "topic", called=False, repeatable=True)
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

    @_operation(_READ, "topic", called=False, repeatable=True)
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

    @_operation(_READ, "topic", called=False, repeatable=True)
    def events(self, topic: str, partition: int | None = None) -> Iterator[Event]: ...

    @_operation(_READ, "topic", repeatable=True)
    def offset_at(self, topic: str, time: Time, partition: int = 0) -> int: ...

    # Topics and upkeep.

    @_operation(_READ, ALL, about=About.LIST, waits=Waits.NOT, repeatable=True)
    def topics(self) -> list[TopicInfo]: ...

    @_operation(_READ, "topic", waits=Waits.NOT, repeatable=True)
    def layout(self, topic: str, *, segments: bool = True) -> TopicLayout: ...

    @_operation(_ADMIN, "name")
    def create_topic(self, name: str, **config: Any) -> TopicInfo: ...

    @_operation(_ADMIN, "name")
    def configure_topic(self, name: str, **options: Any) -> TopicInfo: ...

    @_operation(_ADMIN, "name", waits=Waits.HOURS)
    def delete_topic(self, name: str) -> None: ...

    @_operation(_ADMIN, ALL, waits=Waits.HOURS)
    def settle(self) -> None: ...

    @_operation(_ADMIN, ALL, waits=Waits.HOURS)
    def retain(self) -> int: ...

    @_operation(_ADMIN, "topic", waits=Waits.HOURS)
    def trim(self, topic: str, before: Mapping[int, int], *, events: Mapping[int, int] | None = None) -> int: ...

    @_operation(_READ, ALL, about=About.LIST, repeatable=True)
    def status(self) -> BrokerStatus: ...

    # Groups.

    @_operation(_CONSUME, "topic")
    def create_group(
        self,
        topic: str,
        group: str,
        *,
        start: str | Time = "earliest",
        visibility_timeout: Duration | None = None,
        max_in_flight: int | None = None,
    ) -> GroupInfo: ...

    @_operation(_READ, "topic", about=About.LIST, repeatable=True)
    def groups(self, topic: str | None = None) -> list[GroupInfo]: ...

    @_operation(_READ, "topic", repeatable=True)
    def group(self, topic: str, group: str) -> GroupInfo: ...

    @_operation(_CONSUME, "topic")
    def seek_group(self, topic: str, group: str, to: int | str | Time, *, partition: int | None = None) -> None: ...

    @_operation(_CONSUME, "topic")
    def reset_group(self, topic: str, group: str) -> None: ...

    @_operation(_CONSUME, "topic")
    def checkpoint_group(self, topic: str, group: str, positions: Mapping[int, int]) -> None: ...

    @_operation(_CONSUME, "topic")
    def delete_group(self, topic: str, group: str) -> None: ...

    # Delays and schedules.

    @_operation(_READ, "topic", repeatable=True)
    def delayed(self, topic: str, *, limit: int | None = None) -> list[DelayedMessage]: ...

    @_operation(_PUBLISH, "identity")
    def cancel_delayed(self, identity: MessageId | str) -> bool: ...

    @_operation(_PUBLISH, "identity")
    def reschedule_delayed(
        self, identity: MessageId | str, *, delay: Duration | None = None, deliver_at: Time | None = None
    ) -> datetime | None: ...

    @_operation(_PUBLISH, "topic", about=About.SCHEDULE, large=True)
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
    ) -> Schedule: ...

    @_operation(_READ, ALL, about=About.LIST, waits=Waits.NOT, repeatable=True)
    def schedules(self) -> list[Schedule]: ...

    @_operation(_PUBLISH, ALL, about=About.SCHEDULE)
    def pause_schedule(self, name: str) -> Schedule: ...

    @_operation(_PUBLISH, ALL, about=About.SCHEDULE)
    def resume_schedule(self, name: str) -> Schedule: ...

    @_operation(_PUBLISH, ALL, about=About.SCHEDULE)
    def remove_schedule(self, name: str) -> None: ...

    # Dead letters, and the past. A function does not travel: CALL takes the ids or offsets that it has chosen.

    @_operation(_READ, "topic", repeatable=True)
    def dead_letters(
        self, topic: str, *, filter: LetterChoice | None = None, limit: int | None = None
    ) -> list[DeadLetter]: ...

    @_operation(_READ, "identity", repeatable=True)
    def dead_letter(self, identity: MessageId | str) -> DeadLetter: ...

    @_operation(_ADMIN, "topic", waits=Waits.HOURS, large=True)
    def redrive(
        self,
        topic: str,
        *,
        filter: LetterChoice | None = None,
        to: str | None = None,
        rate: float | None = None,
        dry_run: bool = False,
        progress: Callable[[int], object] | None = None,
    ) -> RedriveReport: ...

    @_operation(_ADMIN, "topic", waits=Waits.HOURS, large=True)
    def purge_dead_letters(self, topic: str, *, filter: LetterChoice | None = None) -> int: ...

    @_operation(_CONSUME, "topic", waits=Waits.HOURS, large=True)
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
    ) -> int: ...

    @_operation(_READ, "identity", repeatable=True)
    def trace(self, identity: MessageId | str) -> Trace: ...

    # Stages.

    @_operation(_PUBLISH, ALL, about=About.STAGES, waits=Waits.LONG, repeatable=True)
    def seal_stage(self, stage: str) -> int: ...

    @_operation(_PUBLISH, ALL, about=About.STAGES, waits=Waits.HOURS, repeatable=True)
    def publish_staged(self, stages: Sequence[str], *, producer: str, sequence: int) -> int: ...

    @_operation(_PUBLISH, ALL, about=About.STAGES, repeatable=True)
    def staged_sequence(self, producer: str) -> int | None: ...

    @_operation(_PUBLISH, ALL, about=About.STAGES, repeatable=True)
    def drop_staged(self, stages: Sequence[str]) -> None: ...


class PipelineOperations(Protocol):
    """What a server knows of and a broker does not: both faces of a client have it."""

    @_operation(_CONSUME, ALL, about=About.PIPELINES, repeatable=True)
    def report_pipeline(self, report: PipelineReport) -> None:
        """Tell the server what a pipeline is doing; it keeps the newest report, for a day."""

    @_operation(_READ, ALL, about=About.PIPELINES, repeatable=True)
    def pipelines(self) -> list[PipelineReport]:
        """What every pipeline has reported last, by name; `silent` are those that ought to have reported again."""


class TokenOperations(Protocol):
    """The tokens of a server: asked for by name only, as the command line does."""

    @_operation(_ADMIN, ALL, about=About.TOKENS)
    def create_token(
        self,
        name: str,
        scopes: list[str],
        *,
        topics: list[str] | None = None,
        expires_in: float | str | None = None,
    ) -> NewToken: ...

    @_operation(_ADMIN, ALL, about=About.TOKENS, repeatable=True)
    def tokens(self) -> list[TokenInfo]: ...

    @_operation(_ADMIN, ALL, about=About.TOKENS)
    def revoke_token(self, token: str) -> TokenInfo: ...
