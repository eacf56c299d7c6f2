"""Holding the conversations of a chain with a store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from penstock.journal.chain import Conversation, Create, Get, List, Put, Request
from penstock.storage.objects import ObjectStore, StoreUnavailable

T = TypeVar("T")


def carry_out(conversation: Conversation[T], store: ObjectStore, pause: Callable[[int], None]) -> T:
    """What a conversation comes to. Requests that fail are made again, each time after a longer pause.

    `pause` is given how often in a row something has failed; what it raises ends the conversation.
    """
    try:
        request = next(conversation)
        while True:
            request = conversation.send(_answered(store, request, pause))
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        conversation.close()


def _answered(store: ObjectStore, request: Request, pause: Callable[[int], None]) -> Any:
    attempt = 0
    while True:
        try:
            return answer(store, request, pause)
        except StoreUnavailable:
            attempt += 1
            pause(attempt)


def answer(store: ObjectStore, request: Request, pause: Callable[[int], None]) -> Any:
    """What a store answers to one request; raises StoreUnavailable if it does not."""
    match request:
        case Create(name, data):
            return store.create(name, data)
        case Put(name, data):
            return store.put(name, data)
        case Get(names):
            return store.get_many(names)
        case List(prefix):
            return store.list(prefix)
    return pause(request.attempt)
