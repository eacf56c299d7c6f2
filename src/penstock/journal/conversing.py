"""Holding the conversations of a chain with a store."""

from __future__ import annotations

from typing import Any, TypeVar

from penstock.journal.chain import Conversation, Create, Get, List, Put, Request
from penstock.storage.objects import ObjectStore
from penstock.storage.persistent import Pause, PersistentObjects

T = TypeVar("T")


def carry_out(conversation: Conversation[T], store: ObjectStore, pause: Pause) -> T:
    """What a conversation comes to. Requests that fail are made again, each time after a longer pause."""
    persistent = PersistentObjects(store, pause)
    try:
        request = next(conversation)
        while True:
            request = conversation.send(answer(persistent, request, pause))
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        conversation.close()


def answer(store: ObjectStore, request: Request, pause: Pause) -> Any:
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
