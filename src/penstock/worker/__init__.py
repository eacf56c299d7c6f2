"""Workers: functions that are called with the messages of topics, and everything around them.

    from penstock.worker import Discard, Worker

    worker = Worker("127.0.0.1:9000")            # or Worker(directory="./data")

    @worker.subscribe("orders", "processors", concurrency=8, retries=3)
    def handle(message):                         # or async def
        if not message.value:
            raise Discard("it is empty")
        print(message.id, message.value)

    worker.run()                                 # until Ctrl-C or SIGTERM

A handler that returns has done the message; one that raises has failed it.

| file | what it does |
| --- | --- |
| `worker.py`, `subscription.py`, `verdict.py` | what a program declares; what a handler may raise |
| `running.py` | subscriptions at work, and how they end: by Ctrl-C and SIGTERM, too |
| `session.py`, `leases.py` | a consumer, what it holds, and its threads; keeping leases and finishing them |
| `reload.py` | restarting when a file changes |
| `surface.py` | what a worker needs of a broker or a client |
"""

from penstock.worker.verdict import Discard, Release, Retry
from penstock.worker.worker import Worker

__all__ = ["Discard", "Release", "Retry", "Worker"]
