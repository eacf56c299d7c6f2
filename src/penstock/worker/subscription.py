"""What a handler is subscribed to, and how: the options of `worker.subscribe`, checked at once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.model.errors import InvalidArgument
from penstock.model.names import check_group_name, check_topic_name
from penstock.model.options import choice, duration, optional, whole, yes_or_no
from penstock.model.units import Duration, Time, parse_time_us

Handler = Callable[[Any], object]
CONCURRENCY_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Subscription:
    """A handler and its options."""

    handler: Handler
    topics: tuple[str, ...]
    group: str
    concurrency: int
    retries: int | None
    backoff_s: float | None
    visibility_s: float | None
    mode: str
    start: str | Time
    auto_extend: bool
    timeout_s: float | None

    @property
    def name(self) -> str:
        """For the log."""
        return f"{'+'.join(self.topics)} for {self.group}"

    @property
    def asynchronous(self) -> bool:
        """Whether the handler is a coroutine function, and needs no thread."""
        call = getattr(self.handler, "__call__", None)  # noqa: B004 - of objects that can be called
        return inspect.iscoroutinefunction(self.handler) or inspect.iscoroutinefunction(call)


def make_subscription(
    handler: Handler,
    topics: str | Sequence[str],
    group: str,
    *,
    concurrency: int,
    retries: int | None,
    backoff: Duration | None,
    visibility_timeout: Duration | None,
    mode: str,
    start: str | Time,
    auto_extend: bool,
    timeout: Duration | None,
) -> Subscription:
    """Check everything that can be checked before the worker runs."""
    names = [topics] if isinstance(topics, str) else list(topics) if isinstance(topics, Iterable) else []
    if not names or len({check_topic_name(name) for name in names}) < len(names):
        raise InvalidArgument(f"{topics!r} is not a topic or a list of different topics")
    if not callable(handler) or inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise InvalidArgument(f"{handler!r} is not a handler: give a function, or a coroutine function, of one message")
    if start not in ("earliest", "latest"):
        parse_time_us(start)
    return Subscription(
        handler,
        tuple(names),
        check_group_name(group),
        whole(1, CONCURRENCY_MAX)(concurrency),
        optional(whole(1, 1_000_000))(retries),
        optional(duration())(backoff),
        optional(duration(0.001))(visibility_timeout),
        choice("shared", "assigned")(mode),
        start,
        yes_or_no(auto_extend),
        optional(duration(0.001))(timeout),
    )
