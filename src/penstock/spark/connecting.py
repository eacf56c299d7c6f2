"""One client for each server in every process of Spark, however many tasks it runs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from penstock.client.sync import Client
from penstock.model.errors import BrokerClosed, ConnectionLost, PenstockError
from penstock.spark.options import Secrets

Result = TypeVar("Result")
TASK_PATIENCE_S = 30.0
"""How long a task waits for a server that is being restarted."""
_AGAIN_S = 0.25
_clients: dict[tuple[str, Secrets, int], Client] = {}
_lock = threading.Lock()


def connected(servers: str, secrets: Secrets, *, patient: bool = False) -> Client:
    """The client of this process for a server, which tasks wait for; Python workers are used again and again."""
    place = (servers, secrets, os.getpid())  # a fork needs its own
    with _lock:
        client = _clients.get(place)
        if client is None:
            connect = partial(Client, servers, token=secrets.token, tls=secrets.tls, ca=secrets.ca)
            patience_s = TASK_PATIENCE_S if patient else 0
            client = _clients[place] = patiently(connect, ConnectionLost, patience_s, _AGAIN_S)
        return client


def through_restarts(call: Callable[[], Result]) -> Result:
    """The result of a call that may be done twice, also if the server, or a process of it, is being restarted."""
    return patiently(call, (BrokerClosed, ConnectionLost), TASK_PATIENCE_S, _AGAIN_S)


def patiently(
    call: Callable[[], Result],
    refusal: type[PenstockError] | tuple[type[PenstockError], ...],
    patience_s: float,
    pause_s: float,
) -> Result:
    """The result of a call, which is repeated while it raises such an error, until the patience is over."""
    until_s = time.monotonic() + patience_s
    while True:
        try:
            return call()
        except refusal:
            if time.monotonic() >= until_s:
                raise
            time.sleep(pause_s)
