"""A TCP proxy that passes everything on a while later, as a network or a store far away does.

    python -m benchmarks.delaying_proxy --to 8333 --delay 0.045

It prints its port, and ends with its standard input.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

_CHUNK_BYTES = 1 << 16


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    loop = asyncio.get_running_loop()
    while data := await reader.read(_CHUNK_BYTES):
        loop.call_later(delay_s, writer.write, data)
    await asyncio.sleep(delay_s)
    writer.close()


async def _serve(to: int, delay_s: float) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_store, to_store = await asyncio.open_connection("127.0.0.1", to)
        answers = asyncio.create_task(_pass_on(from_store, writer, 0.0))
        await asyncio.gather(_pass_on(reader, to_store, delay_s), answers, return_exceptions=True)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.delaying_proxy", description="Delay what is sent.")
    parser.add_argument("--to", type=int, required=True, help="the port that everything is passed on to")
    parser.add_argument("--delay", type=float, required=True, help="how many seconds later")
    options = parser.parse_args()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(_serve(options.to, options.delay))
    os._exit(0)  # with connections open, which nobody waits for


if __name__ == "__main__":
    main()
