"""What a handler is subscribed to, and how: the options of `worker.subscribe`, checked at once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from penstock.model.errors import InvalidArgument
from penstock.model.names import check_group_name, check_topic_names
from penstock.model.options import choice, duration, optional, whole, yes_or_no
from penstock.model.units import Duration, Time, parse_time_us

Handler = Callable[[Any], object]
CONCURRENCY_MAX = 10_000


class Subscription:
    """A handler and its options; whatever can be checked before the worker runs is checked here."""

    def __init__(
        self,
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
    ) -> None:
        names = check_topic_names(topics)
        if not callable(handler) or inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
            raise InvalidArgument(
                f"{handler!r} is not a handler: give a function, or a coroutine function, of one message"
            )
        if start not in ("earliest", "latest"):
            parse_time_us(start)
        self.handler = handler
        self.topics = names
        self.group = check_group_name(group)
        self.concurrency = whole(1, CONCURRENCY_MAX)(concurrency)
        self.retries: int | None = optional(whole(1, 1_000_000))(retries)
        self.backoff_s: float | None = optional(duration())(backoff)
        self.visibility_s: float | None = optional(duration(0.001))(visibility_timeout)
        self.mode = choice("shared", "assigned")(mode)
        self.start = start
        self.auto_extend = yes_or_no(auto_extend)
        self.timeout_s: float | None = optional(duration(0.001))(timeout)

    @property
    def name(self) -> str:
        """For the log."""
        return f"{'+'.join(self.topics)} for {self.group}"

    @property
    def asynchronous(self) -> bool:
        """Whether the handler is a coroutine function, and needs no thread."""
        call = getattr(self.handler, "__call__", None)  # noqa: B004 - of objects that can be called
        return inspect.iscoroutinefunction(self.handler) or inspect.iscoroutinefunction(call)
