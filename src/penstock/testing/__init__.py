"""Parts for tests, yours and ours: a disk in memory, a disk that fails as real ones do, a clock you set.

>>> import penstock
>>> from penstock.testing import MemoryStorage
>>> with penstock.open(storage=MemoryStorage()) as broker:
...     print(broker.publish("greetings", "hello"))
greetings/0/0
"""

from penstock.testing.clock import VirtualClock
from penstock.testing.faulty import FaultyStorage
from penstock.testing.memory import MemoryStorage

__all__ = ["FaultyStorage", "MemoryStorage", "VirtualClock"]
