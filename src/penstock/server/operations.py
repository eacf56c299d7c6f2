"""Every operation that a server does by its name, whichever port it is asked through: how, for whom, and where."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock.delivery.offsets import Offsets
from penstock.embedded.broker import Broker
from penstock.model.bounds import LARGE_REQUEST_BYTES_MAX, REQUEST_BYTES_MAX, nearest, shown
from penstock.model.errors import Forbidden, InvalidArgument
from penstock.model.info import GroupInfo, TopicInfo
from penstock.model.letters import ByName, DeadLetter
from penstock.model.message import MessageId, StoredMessage
from penstock.model.options import whole
from penstock.model.schedules import Schedule
from penstock.model.tokens import NewToken, TokenInfo
from penstock.model.units import Time, parse_digits
from penstock.protocol.consuming import ranges_of
from penstock.server.access.principal import Principal, Scope
from penstock.server.access.tokens import TokenFile
from penstock.server.pipelines import Pipelines, PipelinesOf
from penstock.shard.operations.dead_letters import list_dead_letters

_LETTERS_AT_ONCE = 1000
LETTERS_BYTES = 4 << 20
"""A page of dead letters ends behind the one with which it has so much."""


def _dead_letters(
    broker: Broker, topic: str, *, after: str | None = None, limit: int | None = None
) -> list[DeadLetter]:
    """A page of dead letters, behind the one that was the last of the page before."""
    start = None if after is None else MessageId.parse(str(after))
    wanted = _LETTERS_AT_ONCE if limit is None else min(whole(0, 1 << 62)(limit), _LETTERS_AT_ONCE)
    page: list[DeadLetter] = []
    left_bytes = LETTERS_BYTES
    for letter in itertools.islice(list_dead_letters(broker.engine, topic, start), wanted):
        page.append(letter)
        left_bytes -= len(letter.value)
        if left_bytes <= 0:
            break
    return page


def _redrive(
    broker: Broker,
    topic: str,
    *,
    ids: list[str] | None = None,
    to: str | None = None,
    rate: float | None = None,
    dry_run: bool = False,
    cause: str | None = None,
    group: str | None = None,
) -> object:
    """Redrive all dead letters, or those that are named, or that died of this cause, or in this group."""
    for text in (cause, to):
        if not isinstance(text, str | None):
            raise InvalidArgument(f"{shown(text)} is not text")
    return broker.redrive(topic, filter=_chosen(_named(ids), cause, group), to=to, rate=rate, dry_run=dry_run)


def _purge(broker: Broker, topic: str, *, ids: list[str] | None = None) -> int:
    """Purge all dead letters, or those that are named."""
    return broker.purge_dead_letters(topic, filter=_named(ids))


def _chosen(
    named: Callable[[DeadLetter], bool] | None, cause: str | None, group: str | None
) -> Callable[[DeadLetter], bool] | None:
    if cause is None and group is None:
        return named
    return lambda letter: (
        (named is None or named(letter))
        and (cause is None or letter.cause == cause)
        and (group is None or letter.group == group)
    )


def _named(ids: list[str] | None) -> Callable[[DeadLetter], bool] | None:
    if ids is None:
        return None
    if not isinstance(ids, list):
        raise InvalidArgument(f"{shown(ids)} is not a list of message ids")
    return ByName(MessageId.parse(str(identity)) for identity in ids)


def _offset_at(broker: Broker, topic: str, time: Time, partition: int = 0) -> int:
    """As the broker's, of one partition for sure."""
    return broker.offset_at(topic, time, whole(0, 1 << 62)(partition))


def _replay(
    broker: Broker,
    topic: str,
    to: str,
    *,
    from_time: Time | None = None,
    to_time: Time | None = None,
    from_offset: int | None = None,
    to_offset: int | None = None,
    partition: int | None = None,
    rate: float | None = None,
    only: dict[str, list[int]] | None = None,
) -> int:
    """Replay a window, or just some offsets of it (by partition, as runs), into a group."""
    if not isinstance(to, str):
        raise InvalidArgument(f"{shown(to)} is not the name of a group")
    return broker.replay(
        topic,
        to,
        from_time=from_time,
        to_time=to_time,
        from_offset=from_offset,
        to_offset=to_offset,
        partition=partition,
        filter=None if only is None else _among(only),
        rate=rate,
    )


def _among(only: dict[str, list[int]]) -> Callable[[StoredMessage], bool]:
    wanted: dict[int, Offsets] = {}
    try:
        for partition, runs in only.items():
            number = parse_digits(partition)
            if number is None:
                raise ValueError(f"{shown(partition)} is not a partition")  # noqa: TRY301
            offsets = wanted[number] = Offsets()
            for some in ranges_of(runs):
                offsets.add_range(some.start, some.stop)
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidArgument(f"only: give runs of offsets by partition: {error}") from error
    return lambda message: message.offset in wanted.get(message.partition, ())


def _seal_stage(broker: Broker, stage: str, *, staged: int = 0) -> int:
    """As the broker's, but an error if it has fewer messages than whoever asks has staged."""
    return broker.engine.staging.seal_stage(stage, whole(0, 1 << 62)(staged))


def _create_token(
    broker: Broker,
    name: str,
    scopes: list[str],
    *,
    topics: list[str] | None = None,
    expires_in: float | str | None = None,
) -> NewToken:
    """Make a token of this server."""
    return _token_file(broker).create(name, scopes, ["*"] if topics is None else topics, expires_in)


def _tokens(broker: Broker) -> list[TokenInfo]:
    """The tokens of this server, without their secrets."""
    return [token.info for token in _token_file(broker).read()]


def _revoke_token(broker: Broker, token: str) -> TokenInfo:
    """Take a token of this server away."""
    return _token_file(broker).revoke(token)


def _token_file(broker: Broker) -> TokenFile:
    directory = broker.status().directory
    if directory is None:
        raise InvalidArgument("this broker has no directory, and so no tokens")
    return TokenFile(directory)


def _never(_: Mapping[str, Any]) -> bool:
    return False


def _asks_for_ends(arguments: Mapping[str, Any]) -> bool:
    """Whether a layout is wanted without its segments, as streams ask for it again and again."""
    return arguments.get("segments") is False


_signature = functools.cache(inspect.signature)


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation, with the broker as its first argument, or the pipelines for whoever asks."""

    function: Callable[..., Any]
    scope: Scope
    """What a token must be for."""
    topic: str | None = "topic"
    """The argument that names a topic, or a message of one; None: it is about all topics, or makes sense for none."""
    slow: bool = False
    """It may take long: such operations have threads of their own."""
    bytes_max: int = REQUEST_BYTES_MAX
    """Of its arguments, as they are sent by the native protocol."""
    is_brief: Callable[[Mapping[str, Any]], bool] = _never
    """Whether it only looks at a little of the state, with these arguments: then it needs no thread."""

    def bind(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Raise InvalidArgument unless these are its arguments."""
        try:
            _signature(self.function).bind(None, **arguments)
        except TypeError as error:
            raise InvalidArgument(f"{name}: {error}") from error
        for text in ("topic", "group", "name"):
            if not isinstance(arguments.get(text), str | None):
                raise InvalidArgument(f"{name}: {text} is text")


def _plain(name: str, scope: Scope, topic: str | None = "topic", *, slow: bool = False) -> Operation:
    return Operation(getattr(Broker, name), scope, topic, slow)


_ADMIN, _PUBLISH, _CONSUME, _READ = Scope.ADMIN, Scope.PUBLISH, Scope.CONSUME, Scope.READ
OPERATIONS: dict[str, Operation] = {
    "topics": _plain("topics", _READ, None),
    "layout": Operation(Broker.layout, _READ, is_brief=_asks_for_ends),
    "create_topic": _plain("create_topic", _ADMIN, "name"),
    "configure_topic": _plain("configure_topic", _ADMIN, "name"),
    "delete_topic": _plain("delete_topic", _ADMIN, "name", slow=True),
    "settle": _plain("settle", _ADMIN, None, slow=True),
    "retain": _plain("retain", _ADMIN, None, slow=True),
    "trim": _plain("trim", _ADMIN, slow=True),
    "status": _plain("status", _READ, None),
    "create_group": _plain("create_group", _CONSUME),
    "groups": _plain("groups", _READ),
    "group": _plain("group", _READ),
    "seek_group": _plain("seek_group", _CONSUME),
    "reset_group": _plain("reset_group", _CONSUME),
    "checkpoint_group": _plain("checkpoint_group", _CONSUME),
    "delete_group": _plain("delete_group", _CONSUME),
    "delayed": _plain("delayed", _READ),
    "cancel_delayed": _plain("cancel_delayed", _PUBLISH, "identity"),
    "reschedule_delayed": _plain("reschedule_delayed", _PUBLISH, "identity"),
    "schedule": Operation(Broker.schedule, _PUBLISH, bytes_max=LARGE_REQUEST_BYTES_MAX),
    "schedules": _plain("schedules", _READ, None),
    "pause_schedule": _plain("pause_schedule", _PUBLISH, None),
    "resume_schedule": _plain("resume_schedule", _PUBLISH, None),
    "remove_schedule": _plain("remove_schedule", _PUBLISH, None),
    "dead_letters": Operation(_dead_letters, _READ),
    "dead_letter": _plain("dead_letter", _READ, "identity"),
    "redrive": Operation(_redrive, _ADMIN, slow=True, bytes_max=LARGE_REQUEST_BYTES_MAX),
    "purge_dead_letters": Operation(_purge, _ADMIN, slow=True, bytes_max=LARGE_REQUEST_BYTES_MAX),
    "replay": Operation(_replay, _CONSUME, slow=True, bytes_max=LARGE_REQUEST_BYTES_MAX),
    "trace": _plain("trace", _READ, "identity"),
    "offset_at": Operation(_offset_at, _READ),
    "seal_stage": Operation(_seal_stage, _PUBLISH, None),
    "publish_staged": _plain("publish_staged", _PUBLISH, None, slow=True),
    "staged_sequence": _plain("staged_sequence", _PUBLISH, None),
    "drop_staged": _plain("drop_staged", _PUBLISH, None),
    "report_pipeline": Operation(PipelinesOf.report_pipeline, _CONSUME, None),
    "pipelines": Operation(PipelinesOf.pipelines, _READ, None),
    "create_token": Operation(_create_token, _ADMIN, None),
    "tokens": Operation(_tokens, _ADMIN, None),
    "revoke_token": Operation(_revoke_token, _ADMIN, None),
}
"""Every operation that can be called, by its name."""
TOKEN_OPERATIONS = frozenset({"create_token", "tokens", "revoke_token"})
"""Operations about the tokens of the server itself."""
_LISTINGS = frozenset({"topics", "groups", "schedules", "status"})
"""What everybody may ask for who may read: those whose topics are limited see a part of it."""
_STAGED = frozenset({"seal_stage", "publish_staged", "staged_sequence", "drop_staged"})
"""What is about stages: those whose topics are limited have stages and producers of their own."""
_SCHEDULED = frozenset({"schedule", "pause_schedule", "resume_schedule", "remove_schedule"})
"""What changes a schedule: it must be of a topic that one may publish to."""
_PIPELINES = frozenset({"report_pipeline", "pipelines"})
"""What is about pipelines: those whose topics are limited have names of their own, and see a part of the others."""
_ANY_TOPICS = _LISTINGS | _STAGED | _SCHEDULED | _PIPELINES
"""What takes the scope and no topic here: what somebody may do with it is decided later."""


def find_operation(name: str) -> Operation:
    """The operation of this name."""
    operation = OPERATIONS.get(name)
    if operation is None:
        near = nearest(name, OPERATIONS)
        hint = f", did you mean {near[0]}?" if near else f": there are {', '.join(sorted(OPERATIONS))}"
        raise InvalidArgument(f"there is no operation {shown(name)}{hint}")
    return operation


def prepare(
    broker: Broker, pipelines: Pipelines, principal: Principal, name: str, arguments: Mapping[str, Any]
) -> Callable[[], Any]:
    """What does an operation, once it is clear that it exists, that these are its arguments, and that it is allowed."""
    operation = find_operation(name)
    operation.bind(name, arguments)
    _permit(principal, name, operation, arguments)
    if name in _STAGED:
        arguments = _own_names(principal, arguments)
    worked_on = PipelinesOf(pipelines, principal) if name in _PIPELINES else broker
    work = partial(operation.function, worked_on, **arguments)
    if name in _SCHEDULED and not principal.sees_all:
        return partial(_on_own_schedule, broker, principal, str(arguments["name"]), work)
    return partial(_seen_by, principal, work) if name in _LISTINGS else work


def _permit(principal: Principal, name: str, operation: Operation, arguments: Mapping[str, Any]) -> None:
    """Raise Forbidden unless somebody may do this."""
    topic = _topic_of(operation, arguments)
    if topic is not None or name in _ANY_TOPICS:
        principal.require(operation.scope, topic)
    else:
        principal.require_all_topics(operation.scope)
    if name == "redrive" and arguments.get("to") is not None:
        principal.require(Scope.PUBLISH, str(arguments["to"]))
    if arguments.get("archive") is not None:  # a path on the server's machine
        principal.require_all_topics(Scope.ADMIN)
    if name in TOKEN_OPERATIONS and principal.token is None:
        raise Forbidden(
            "this server asks nobody for a token (auth: off), so that it lets nobody make any: "
            "use `penstock token` with --dir, on its machine"
        )


def _own_names(principal: Principal, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Names of stages and of their producer as the broker knows them."""

    def own(given: object) -> object:
        if isinstance(given, list | tuple):
            return [own(name) for name in given]
        return principal.own_name(given) if isinstance(given, str) else given

    return {name: own(given) for name, given in arguments.items()}


def _on_own_schedule(broker: Broker, principal: Principal, name: str, work: Callable[[], Any]) -> Any:
    """Change a schedule, unless there is one of this name for somebody else's topic."""
    for schedule in broker.schedules():
        if schedule.name == name:
            principal.require(Scope.PUBLISH, schedule.topic)
    return work()


def _topic_of(operation: Operation, arguments: Mapping[str, Any]) -> str | None:
    """The topic that an operation is about, if it is about one."""
    given = None if operation.topic is None else arguments.get(operation.topic)
    if given is None:
        return None
    if operation.topic != "identity":
        return str(given)
    identity = MessageId.parse(str(given))
    return identity.topic


def _seen_by(principal: Principal, work: Callable[[], Any]) -> Any:
    """A listing, without what somebody may not see."""
    found = work()
    if not isinstance(found, list):
        return found
    return [item for item in found if principal.sees(_name_of(item))]


def _name_of(item: TopicInfo | GroupInfo | Schedule) -> str:
    return item.name if isinstance(item, TopicInfo) else item.topic
