"""What happens to a message after its handler: the exceptions that handlers may raise, and what each means."""

from __future__ import annotations

from asyncio import CancelledError, Future
from typing import Any, NamedTuple

from penstock.delivery.backoff import retry_delay_us
from penstock.model.units import Duration, parse_duration
from penstock.worker.subscription import Subscription
from penstock.worker.surface import Held

_REASON_MAX = 300
_BACKOFF_MAX_S = 3600.0


class Discard(Exception):
    """Raised by a handler: the message can never be processed; it goes to the dead letters now."""

    def __init__(self, reason: str = "its handler discarded it") -> None:
        super().__init__(reason)


class Retry(Exception):
    """Raised by a handler: the message failed, and is retried after `delay` (or the usual backoff)."""

    def __init__(self, delay: Duration | None = None, reason: str | None = None) -> None:
        super().__init__(reason or "its handler asked for a retry")
        self.delay_s = None if delay is None else parse_duration(delay)
        self.reason = reason


class Release(Exception):
    """Raised by a handler: the message is released at once, and this does not count as a failure."""


class TookTooLong(Exception):
    """A handler took longer than its timeout. A thread cannot be stopped: its future is done when it ends."""

    def __init__(self, timeout_s: float, thread: Future[Any] | None = None) -> None:
        super().__init__(f"the handler took longer than {timeout_s:g} s")
        self.thread = thread


class Verdict(NamedTuple):
    """What to do with a message."""

    act: str
    """`ack`, `fail`, `kill` or `release`."""
    reason: str = ""
    delay_s: float | None = None
    traceback: bool = False
    """Whether somebody should look at the error."""


def judge(error: BaseException | None, message: Held, subscription: Subscription) -> Verdict:
    """What to do with a message, by how its handler ended."""
    match error:
        case None:
            return Verdict("ack")
        case Release():
            return Verdict("release")
        case Discard():
            return Verdict("kill", str(error).strip() or "its handler discarded it")
        case Retry():
            unexpected = None if error.reason else error.__cause__
            verdict = Verdict("fail", reason_of(unexpected) if unexpected else str(error), error.delay_s)
        case TookTooLong():
            verdict = Verdict("fail", str(error))
        case CancelledError():
            verdict = Verdict("fail", "the handler was cancelled, and not by the worker")
        case _:
            verdict = Verdict("fail", reason_of(error), traceback=True)
    failures = message.failures + 1
    if subscription.retries is not None and failures >= subscription.retries:
        return verdict._replace(act="kill", delay_s=None)
    if verdict.delay_s is None and subscription.backoff_s is not None:
        token = f"{subscription.group}/{message.id}"
        delay_us = retry_delay_us(subscription.backoff_s, _BACKOFF_MAX_S, failures, token)
        return verdict._replace(delay_s=delay_us / 1_000_000)
    return verdict


def reason_of(error: BaseException) -> str:
    """An error in one line: its type, and the beginning of what it says."""
    try:
        said = str(error).strip()
    except Exception:  # noqa: BLE001 - an error that cannot even be shown is still one
        said = ""
    name = type(error).__name__
    return f"{name}: {said.splitlines()[0]}"[:_REASON_MAX] if said else name
