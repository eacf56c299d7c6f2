"""Messages that could not be processed: look at them, send them back, let them go."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import msgspec
from litestar import Router, get, post
from litestar.params import JSONBody, QueryParameter
from msgspec import Meta
from msgspec.structs import asdict

from penstock.cluster.spreading import list_dead_letters
from penstock.model.letters import CauseReport, DeadLetter, RedriveReport
from penstock.server.access.principal import Scope
from penstock.server.http.bodies import Encoding, as_text
from penstock.server.http.caller import Caller, permits
from penstock.server.http.documenting import body_of, errors
from penstock.server.http.parameters import AsEncoded, Limit, Topic
from penstock.server.operations import LETTERS_BYTES
from penstock.shard.operations.dead_letters import count_causes

if TYPE_CHECKING:
    from penstock.cluster.shards import Shards

_IDS_MAX = 10_000
_COUNTED_MAX = 100_000
_COUNTED_BYTES_MAX = 512 << 20
Ids = Annotated[list[Annotated[str, Meta(max_length=250)]], Meta(max_length=_IDS_MAX)]


class Letter(msgspec.Struct):
    """A message that a group could not process, with why."""

    id: str
    """Its place among the dead letters."""
    origin: str
    """The message that it was."""
    group: str
    cause: str
    consumer: str | None
    deliveries: int
    failures: int
    died_at: datetime
    published_at: datetime
    value: str
    key: str | None
    encoding: Encoding
    headers: dict[str, str] | None
    priority: int
    history: list[str]
    """What happened to it, a line for each event."""

    @classmethod
    def of(cls, letter: DeadLetter, wanted: Encoding | None) -> Letter:
        value, key, encoding = as_text(letter.value, letter.key, wanted)
        shown = {**asdict(letter), "id": str(letter.id), "origin": str(letter.origin), "value": value, "key": key}
        return cls(**shown, encoding=encoding)


class LetterPage(msgspec.Struct):
    """Dead letters, oldest first."""

    dead_letters: list[Letter]
    after: str | None
    """What to ask for next; null: that was all."""


class Redrive(msgspec.Struct, forbid_unknown_fields=True):
    """Which dead letters to send back, and how; those that fit everything that is given, or all."""

    ids: Ids | None = None
    cause: str | None = None
    """Just this text, as the list of causes has it."""
    group: str | None = None
    """Of the group that gave them up."""
    to: str | None = None
    """Another topic; they go back to where they died if none is given."""
    rate: Annotated[float, Meta(ge=0.001, lt=1e9)] | None = None
    """Messages a second; as fast as it goes if it is not given."""
    dry_run: bool = False
    """Only count them."""


class Purge(msgspec.Struct, forbid_unknown_fields=True):
    """Which dead letters to let go: those that are named, or all."""

    ids: Ids | None = None


class Purged(msgspec.Struct):
    """How many are gone for good."""

    purged: int


@get("/topics/{topic:str}/dead-letters", responses=errors())
async def dead_letters(
    caller: Caller,
    topic: Topic,
    limit: Limit = 100,
    after: Annotated[str | None, QueryParameter(description="`after` of the page before.", max_length=250)] = None,
    encoding: AsEncoded = None,
) -> LetterPage:
    """List the dead letters of a topic, oldest first, page by page."""
    found: list[DeadLetter] = await caller.call("dead_letters", topic=topic, after=after, limit=limit)
    is_full = len(found) >= limit or sum(len(letter.value) for letter in found) >= LETTERS_BYTES
    return LetterPage([Letter.of(letter, encoding) for letter in found], str(found[-1].id) if is_full else None)


@get("/topics/{topic:str}/dead-letters/causes", responses=errors())
async def dead_letter_causes(caller: Caller, topic: Topic) -> CauseReport:
    """Count the dead letters of a topic by what they died of, and in which group.

    `complete` is false where there are more than are counted at once: 100,000 letters, 1,000 causes.
    """
    caller.require(Scope.READ, topic)

    def work(shards: Shards) -> CauseReport:
        return count_causes(list_dead_letters(shards, topic), _COUNTED_MAX, _COUNTED_BYTES_MAX)

    return await caller.ask_all(work, slow=True)


@post(
    "/topics/{topic:str}/dead-letters/redrive",
    operation_class=body_of(Redrive, {"cause": "no milk", "dry_run": True}, {"ids": ["orders.dlq/0/7"]}),
    status_code=200,
    responses=errors(409, 507),
    guards=permits("redrive"),
)
async def redrive(caller: Caller, topic: Topic, data: JSONBody[Redrive]) -> RedriveReport:
    """Send dead letters back to the groups that gave them up, or as new messages to another topic.

    Each goes once, also when this is stopped in the middle. It is answered when it is done, which takes its time with
    a low `rate`.
    """
    report: RedriveReport = await caller.call("redrive", topic=topic, **asdict(data))
    return report


@post(
    "/topics/{topic:str}/dead-letters/purge",
    operation_class=body_of(Purge, {"ids": ["orders.dlq/0/7"]}),
    status_code=200,
    responses=errors(507),
    guards=permits("purge_dead_letters"),
)
async def purge_dead_letters(caller: Caller, topic: Topic, data: JSONBody[Purge]) -> Purged:
    """Let dead letters go for good: those that are named, or all."""
    return Purged(await caller.call("purge_dead_letters", topic=topic, ids=data.ids))


ROUTES = Router(
    "/v1",
    route_handlers=[dead_letters, dead_letter_causes, redrive, purge_dead_letters],
    tags=["dead letters"],
)
