"""A server that is killed again and again while others work with it. Run it with `python examples/server.py`.

One client publishes, another consumes; the server is killed with SIGKILL three times and started again on the same
directory. At the end every message is there exactly once, and every message was handled.
"""

from __future__ import annotations

import collections
import contextlib
import json
import logging
import subprocess
import sys
import tempfile
import threading
import time

import penstock

COUNT = 3000


def serve(directory: str, port: int = 0) -> tuple[subprocess.Popen[str], int]:
    """Start a server, and wait until it listens; it and its port."""
    command = [sys.executable, "-m", "penstock.cli.main", "serve", directory]
    options = ["--native-port", str(port), "--http-port", "off", "--line-port", "off", "--log-format", "json"]
    server = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    line = next(line for line in server.stderr if '"listening"' in line)
    return server, int(json.loads(line)["native"].rpartition(":")[2])


def publish(address: str, published: dict[int, penstock.MessageId]) -> None:
    """Publish one message after the other; the client repeats what the server did not confirm."""
    with penstock.connect(address) as client:
        for number in range(COUNT):
            published[number] = client.publish("payments", f"payment {number}")


def consume(address: str, handled: collections.Counter[bytes]) -> None:
    """Handle messages until all are done; what was in hand at a crash comes again."""
    with penstock.connect(address) as client, client.consumer("payments", "bank") as bank:
        for message in bank:
            handled[message.value] += 1
            with contextlib.suppress(penstock.PenstockError):  # it was lost with the connection: it comes again
                message.ack()
            if len(handled) == COUNT:
                return


def main() -> None:
    """Let the two work, and disturb them."""
    logging.basicConfig(format="  %(message)s")
    published: dict[int, penstock.MessageId] = {}
    handled: collections.Counter[bytes] = collections.Counter()
    with tempfile.TemporaryDirectory(prefix="penstock-") as directory:
        server, port = serve(directory)
        address = f"127.0.0.1:{port}"
        work = [
            threading.Thread(target=publish, args=(address, published)),
            threading.Thread(target=consume, args=(address, handled)),
        ]
        for thread in work:
            thread.start()
        for crash in range(1, 4):
            while len(published) < crash * COUNT // 4:
                time.sleep(0.01)
            print(f"crash {crash}: {len(published)} messages were acknowledged")
            server.kill()
            server.communicate()
            server, _ = serve(directory, port)
        for thread in work:
            thread.join()
        with penstock.connect(address) as client:
            stored = collections.Counter(message.value for message in client.read("payments"))
        server.terminate()
        server.communicate()
    print(f"published {len(published)}, stored {stored.total()}, stored twice {stored.total() - len(stored)}")
    print(f"handled {len(handled)} of {COUNT}; {handled.total() - len(handled)} of them twice")


if __name__ == "__main__":
    main()
