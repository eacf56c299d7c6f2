"""The client of a server: `penstock.connect` in plain calls, `penstock.aio.connect` for asyncio.

A request outlives connections: `link.py` keeps it until it is answered, and sends it again on the next connection if
it may be repeated. Publishes are numbered, so the server recognises them.

| file | what it does |
| --- | --- |
| `link.py`, `connection.py`, `tls.py` | requests, repeating and timeouts; one connection; certificates |
| `publisher.py`, `outbox.py`, `staging.py` | batching and numbering; messages from threads; stages |
| `remote.py`, `received.py`, `keeper.py` | what a consumer does; messages and their leases; extending them |
| `reading.py`, `replaying.py` | logs page by page; replays with a filter or a function |
| `client.py`, `consumer.py`, `administration.py` | the methods, awaited |
| `sync.py` and the like, `loop.py` | the methods in plain calls, on an event loop in a thread |
"""

from penstock.client.client import AsyncClient
from penstock.client.sync import Client

connect = Client
aio_connect = AsyncClient

__all__ = ["AsyncClient", "Client", "aio_connect", "connect"]
