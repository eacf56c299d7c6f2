"""Modules of broker and server keep no state: any number of brokers can live in one process."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import itertools
import pkgutil
import queue
import random
import re
import threading
import weakref
from array import array
from collections import deque
from types import ModuleType

import penstock

SHARED = {
    "forks._owners": "a fork lets go of every broker of the process",
    "connection._names": "the names of commands",
    "failures._decode_more": "the decoders of errors that tell more",
}
"""What modules keep that can change, and why that is right for many brokers."""
_ELSEWHERE = ("aio", "bench", "cli", "client", "spark", "testing", "worker")
_CHANGEABLE = (
    *(list, dict, set, bytearray, deque, array, itertools.count, random.Random, asyncio.Queue, queue.Queue),
    *(weakref.WeakSet, weakref.WeakKeyDictionary, weakref.WeakValueDictionary),
    *(type(threading.Lock()), type(threading.RLock()), threading.local, threading.Event, threading.Condition),
)
_OF_PYTHON = re.compile("__.*__|_field_defaults|_.*_")  # of modules, named tuples and enums


def changeable(owner: ModuleType | type) -> list[str]:
    """What a module or a class has that can change, but for constants."""
    return [
        f"{owner.__name__.rpartition('.')[2]}.{name}"
        for name, value in vars(owner).items()
        if isinstance(value, _CHANGEABLE) and not name.isupper() and not _OF_PYTHON.fullmatch(name)
    ]


def test_R7_no_module_and_no_class_of_broker_and_server_keeps_state() -> None:
    found: set[str] = set()
    for info in pkgutil.walk_packages(penstock.__path__, "penstock."):
        if info.name.split(".")[1] in _ELSEWHERE:
            continue
        module = importlib.import_module(info.name)
        assert not re.search(r"^ +global ", inspect.getsource(module), re.MULTILINE), info.name
        found.update(changeable(module))
        for kind in vars(module).values():
            if isinstance(kind, type) and kind.__module__ == info.name:
                found.update(changeable(kind))
    assert found == SHARED.keys()


def test_state_of_a_module_is_found() -> None:
    module = ModuleType("penstock.some")
    vars(module).update(_seen={}, numbers=itertools.count(), _LIMITS={"a": 1}, lock=threading.Lock(), name="text")
    assert changeable(module) == ["some._seen", "some.numbers", "some.lock"]
