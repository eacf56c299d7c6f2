"""Receipts that several processes gave out, finished by one request: each process finishes its own."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from penstock.server.http.bodies import Settled
from penstock.server.http.destinations import split_by_process
from penstock.server.http.failures import Problem, encode
from penstock.server.http.forwarding import Forwarder, Scope

_LOST = 410
_decode_settled = msgspec.json.Decoder(Settled).decode
_decode_problem = msgspec.json.Decoder(Problem).decode


class _Handles(msgspec.Struct):
    receipt_handle: str | None = None
    receipt_handles: list[str] | None = None


def parts_of(body: bytes, here: int) -> dict[int, bytes] | None:
    """The body for each process; None if there is nothing to split. What names no process is judged here."""
    try:
        given: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Any])
        handles = msgspec.convert(given, _Handles)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    named = dict.fromkeys(
        [*([handles.receipt_handle] if handles.receipt_handle else ()), *(handles.receipt_handles or ())]
    )
    by_process: dict[int, list[str]] = {}
    for process, some in split_by_process(named).items():
        by_process.setdefault(here if process is None else process, []).extend(some)
    if len(by_process) < 2:
        return None
    given.pop("receipt_handle", None)
    return {process: msgspec.json.encode({**given, "receipt_handles": some}) for process, some in by_process.items()}


async def finish_parts(forwarder: Forwarder, scope: Scope, parts: dict[int, bytes]) -> tuple[int, bytes]:
    """Have each process finish its part; the status and the body of one reply for all."""
    replies = await asyncio.gather(*(forwarder.fetch(process, scope, body) for process, body in parts.items()))
    settled, lost, problem = 0, list[str](), None
    for status, body in replies:
        if status == 200:
            settled += _decode_settled(body).settled
        elif status == _LOST:
            problem = _decode_problem(body)
            settled += problem.settled or 0
            lost += problem.lost or []
        else:
            return status, body  # what others finished is finished: a repeated ack is harmless
    if problem is None:
        return 200, encode(Settled(settled))
    text = f"not leased (any more) by {len(lost)} of {len(lost) + settled} receipts, such as {lost[0]}"
    return _LOST, encode(Problem(text, _LOST, problem.hint, lost, settled))
