"""The asynchronous face of the embedded broker: the same operations, awaited.

    import asyncio, penstock.aio

    async def main():
        async with penstock.aio.open("./data") as broker:
            await broker.publish("orders", b"two coffees")
            async with await broker.consumer("orders", "kitchen") as consumer:
                async for message in consumer:
                    print(message.id, message.value)
                    await message.ack()

Publishing and acking wait for the disk without a thread of their own: everything that tasks do meanwhile goes into
the next commit. Reading and upkeep run in worker threads.
"""

from typing import TYPE_CHECKING

from penstock.lazy import lazy_names

if TYPE_CHECKING:
    from penstock.aio.broker import AsyncBroker, open
    from penstock.aio.consumer import AsyncConsumer, AsyncDelivery
    from penstock.client import AsyncClient
    from penstock.client import aio_connect as connect
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "penstock.aio.broker": ("AsyncBroker", "open"),
            "penstock.aio.consumer": ("AsyncConsumer", "AsyncDelivery"),
            "penstock.client": ("AsyncClient", "aio_connect as connect"),
        },
    )

__all__ = ["AsyncBroker", "AsyncClient", "AsyncConsumer", "AsyncDelivery", "connect", "open"]
