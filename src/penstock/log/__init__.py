"""The log's meaning, pure: what is written, the state that it makes, and the one place that makes it.

No disk, no threads, no clock, no lock of its own. Imports of the parts only: nothing here starts anything. A shard owns
the state and uses it under its state lock; `folding.py`, through which all commits go, asserts it.

| file | what it does |
| --- | --- |
| `records.py` | the kinds of record, written and read |
| `state.py`, `topics.py`, `partition_log.py` | the state: catalog, topics, partitions and where their offsets are |
| `producers.py`, `dedupe.py`, `schedules.py` | what is remembered to publish once; schedules |
| `fold.py`, `effects.py` | what a record does to the state, and what that means to others |
| `reservations.py` | what is given out before it is committed, and its undo |
| `usage.py`, `checkpoint.py`, `invariants.py` | which files are needed; the state as bytes; what must always hold |
"""
