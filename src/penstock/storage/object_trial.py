"""Trying whether a store can be trusted: of all that create one object, one must succeed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from penstock.model.errors import InvalidArgument
from penstock.storage.objects import ObjectStore, Outcome, StoreUnavailable

_AT_ONCE, _ROUNDS, _TRIES = 4, 3, 20


def check_creates(store: ObjectStore, nonce: bytes, *, at_once: bool = True) -> None:
    """Raise InvalidArgument if a store lets an object be created twice: nothing would be safe there.

    Some do whenever asked, some only when asked at the same moment, which takes long to try (`at_once`). `nonce`: what
    nobody else tries it with.
    """
    place = f"trial/{nonce.hex()}/"
    rounds, writers = (_ROUNDS, _AT_ONCE) if at_once else (1, 1)
    names = [f"{place}{number}" for number in range(rounds)]
    try:
        for name in names:
            _check_one(store, name, writers)
    finally:
        store.delete(names)


def _check_one(store: ObjectStore, name: str, writers: int) -> None:
    """Have one object created by so many at once, and then once more."""
    with ThreadPoolExecutor(writers) as threads:
        outcomes = list(threads.map(lambda number: store.create(name, b"%d" % number), range(writers)))
    there = _read(store, name)
    outcomes.append(store.create(name, b"later"))
    done = [number for number, outcome in enumerate(outcomes) if outcome == Outcome.DONE]
    is_own = all(there == b"%d" % number for number in done)
    if len(done) > 1 or not is_own or _read(store, name) != there:
        raise InvalidArgument(
            f"{store.address}: this store lets an object be created that is there already (If-None-Match: * is "
            "ignored, or not atomic): messages would be lost on it"
        )


def _read(store: ObjectStore, name: str) -> bytes:
    for _ in range(_TRIES):
        data = store.get(name)
        if data is not None:
            return data
        store.create(name, b"0")
    raise StoreUnavailable(f"{store.address}: what is created is not there")
