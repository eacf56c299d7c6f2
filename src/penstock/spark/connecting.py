"""One client for each server in every process of Spark, however many tasks it runs."""

from __future__ import annotations

import os
import threading
import time

from penstock.client.sync import Client
from penstock.model.errors import ConnectionLost
from penstock.spark.options import Secrets

TASK_PATIENCE_S = 30.0
"""How long a task waits for a server that is just being started again."""
_AGAIN_S = 0.25
_clients: dict[tuple[str, Secrets, int], Client] = {}
_lock = threading.Lock()


def connected(servers: str, secrets: Secrets, *, patient: bool = False) -> Client:
    """The client of this process for a server, which tasks wait for; Python workers are used again and again."""
    place = (servers, secrets, os.getpid())  # a fork needs its own
    with _lock:
        client = _clients.get(place)
        if client is None:
            until_s = time.monotonic() + (TASK_PATIENCE_S if patient else 0)
            client = _clients[place] = _connect(servers, secrets, until_s)
        return client


def _connect(servers: str, secrets: Secrets, until_s: float) -> Client:
    while True:
        try:
            return Client(servers, token=secrets.token, tls=secrets.tls, ca=secrets.ca)
        except ConnectionLost:
            if time.monotonic() >= until_s:
                raise
            time.sleep(_AGAIN_S)
