"""Parts for tests, yours and ours: a disk in memory, one that fails as real ones do, buckets alike, a clock you set.

>>> import penstock
>>> from penstock.testing import MemoryStorage
>>> with penstock.open(storage=MemoryStorage()) as broker:
...     print(broker.publish("greetings", "hello"))
greetings/0/0

`seaweed.py` runs a real object store on this machine.
"""

from penstock.testing.clock import VirtualClock
from penstock.testing.faulty import FaultyStorage
from penstock.testing.memory import MemoryStorage
from penstock.testing.objects import FaultyObjects, MemoryObjects

__all__ = ["FaultyObjects", "FaultyStorage", "MemoryObjects", "MemoryStorage", "VirtualClock"]
