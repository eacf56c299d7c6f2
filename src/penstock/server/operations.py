"""What a server does when an operation is called by its name, through any port; the rules are in `penstock.api`."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from penstock.api.operation import ALL, About, Operation
from penstock.api.operations import OPERATIONS
from penstock.cluster import gathering
from penstock.cluster.spreading import list_dead_letters
from penstock.delivery.offsets import Offsets
from penstock.embedded.broker import Broker
from penstock.model.bounds import nearest, shown
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
from penstock.server.process_operations import Processes

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
    for letter in itertools.islice(list_dead_letters(broker.shards, topic, start), wanted):
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
    return gathering.seal_stage(broker.shards, stage, whole(0, 1 << 62)(staged))


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


HANDLERS: dict[str, Callable[..., Any]] = {
    **{name: getattr(Broker, name) for name, rules in OPERATIONS.items() if rules.called and hasattr(Broker, name)},
    "dead_letters": _dead_letters,
    "redrive": _redrive,
    "purge_dead_letters": _purge,
    "replay": _replay,
    "offset_at": _offset_at,
    "seal_stage": _seal_stage,
    "report_pipeline": PipelinesOf.report_pipeline,
    "pipelines": PipelinesOf.pipelines,
    **{name: getattr(Processes, name) for name in ("cluster", "move_shard", "drain_process", "balance_shards")},
    "create_token": _create_token,
    "tokens": _tokens,
    "revoke_token": _revoke_token,
}
"""What does each operation that can be called: first comes the broker, or what else it is about."""
_signature = functools.cache(inspect.signature)


def find_operation(name: str) -> Operation:
    """The operation of this name."""
    if name not in HANDLERS:
        near = nearest(name, HANDLERS)
        hint = f", did you mean {near[0]}?" if near else f": there are {', '.join(sorted(HANDLERS))}"
        raise InvalidArgument(f"there is no operation {shown(name)}{hint}")
    return OPERATIONS[name]


def is_brief(operation: Operation, arguments: Mapping[str, Any]) -> bool:
    """Whether it needs no thread: it looks at the ends of a topic only, as streams do again and again."""
    return operation.name == "layout" and arguments.get("segments") is False


def prepare(
    broker: Broker,
    pipelines: Pipelines,
    processes: Processes,
    principal: Principal,
    name: str,
    arguments: Mapping[str, Any],
) -> Callable[[], Any]:
    """What does an operation, once it is clear that it exists, that these are its arguments, and that it is allowed."""
    operation = find_operation(name)
    about, function = operation.about, HANDLERS[name]
    _bind(name, function, arguments)
    _permit(principal, operation, arguments)
    if about is About.STAGES:
        arguments = own_names(principal, arguments)
    worked_on: Broker | PipelinesOf | Processes = broker
    if about is About.PIPELINES:
        worked_on = PipelinesOf(pipelines, principal)
    elif about is About.PROCESSES:
        worked_on = processes
    work = partial(function, worked_on, **arguments)
    if about is About.SCHEDULE and not principal.sees_all:
        return partial(_on_own_schedule, broker, principal, str(arguments["name"]), work)
    return (lambda: seen_by(principal, work())) if about is About.LIST else work


def _bind(name: str, function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Raise InvalidArgument unless these are its arguments."""
    try:
        _signature(function).bind(None, **arguments)
    except TypeError as error:
        raise InvalidArgument(f"{name}: {error}") from error
    for text in ("topic", "group", "name"):
        if not isinstance(arguments.get(text), str | None):
            raise InvalidArgument(f"{name}: {text} is text")


def _permit(principal: Principal, operation: Operation, arguments: Mapping[str, Any]) -> None:
    """Raise Forbidden unless somebody may do this."""
    topic = _topic_of(operation, arguments)
    if topic is not None or operation.about not in (About.TOPIC, About.ALL_TOPICS, About.TOKENS, About.PROCESSES):
        principal.require(operation.scope, topic)
    else:
        principal.require_all_topics(operation.scope)
    if operation.name == "redrive" and arguments.get("to") is not None:
        principal.require(Scope.PUBLISH, str(arguments["to"]))
    if arguments.get("archive") is not None:  # a path on the server's machine
        principal.require_all_topics(Scope.ADMIN)
    if operation.about is About.TOKENS and principal.token is None:
        raise Forbidden(
            "this server asks nobody for a token (auth: off), so that it lets nobody make any: "
            "use `penstock token` with --dir, on its machine"
        )


def own_names(principal: Principal, arguments: Mapping[str, Any]) -> dict[str, Any]:
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
    given = None if operation.route == ALL else arguments.get(operation.route)
    if given is None:
        return None
    return MessageId.parse(str(given)).topic if operation.route == "identity" else str(given)


def seen_by(principal: Principal, found: Any) -> Any:
    """A listing, without what somebody may not see."""
    if not isinstance(found, list):
        return found
    return [item for item in found if principal.sees(_name_of(item))]


def _name_of(item: TopicInfo | GroupInfo | Schedule) -> str:
    return item.name if isinstance(item, TopicInfo) else item.topic
