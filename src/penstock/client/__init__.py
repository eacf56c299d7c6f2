"""The client of a server: `penstock.connect` in plain calls, `penstock.aio.connect` for asyncio."""

from penstock.client.client import AsyncClient
from penstock.client.sync import Client

connect = Client
aio_connect = AsyncClient

__all__ = ["AsyncClient", "Client", "aio_connect", "connect"]
