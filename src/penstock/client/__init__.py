"""The client of a server: `penstock.connect` in plain calls, `penstock.aio.connect` for asyncio.

A request outlives connections: `link.py` keeps it until it is answered, and sends it again on the next connection if
it may be repeated. Publishes are numbered, so the server recognises them.

| file | what it does |
| --- | --- |
| `link.py`, `connection.py`, `addresses.py` | requests, repeating and timeouts; one connection; where a server is |
| `direct.py` | how a thread that is alone asks the server without the event loop |
| `publisher.py`, `outbox.py`, `reports.py` | batching and numbering; messages from threads, and what becomes of them |
| `stages.py` | filling a stage |
| `cluster.py` | the links to several processes, and which of them leads to which topic |
| `remote.py`, `seat.py` | what a consumer does; its place in its group, wherever that is |
| `merged.py`, `window.py` | a consumer of topics of several shards; how much it holds |
| `received.py`, `leases.py`, `finishing.py` | messages; their leases; acks and the like, one by one or many |
| `log_reading.py`, `replaying.py` | logs page by page; replays with a filter or a function |
| `calling.py`, `requests.py` | what all calls stand on; checks before a request is sent |
| `client.py`, `messaging.py`, `calls.py`, `administration.py`, `staging.py`, `consumer.py` | the methods, awaited |
| `sync.py` and `sync_*`, `loop.py`, `waited.py` | the methods in plain calls, on an event loop in a thread |

`calls.py` is made from the table of operations, and most of `sync_*` from the awaited half (`make faces`).
"""

from penstock.client.client import AsyncClient
from penstock.client.sync import Client

connect = Client
aio_connect = AsyncClient

__all__ = ["AsyncClient", "Client", "aio_connect", "connect"]
