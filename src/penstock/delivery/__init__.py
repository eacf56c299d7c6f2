"""Pure state machines of delivery: commands and time in, events out; no clock, no disk, no lock.

Progress is durable: it is folded from events and kept in the checkpoint. Leases and cursors are volatile.
A shard owns them and uses them under its state lock, which `shard/dispatch` asserts.

| file | what it does |
| --- | --- |
| `offsets.py` | sets of offsets: compressed bitmaps |
| `progress.py`, `partition.py` | the durable state of a group |
| `index.py`, `lanes.py`, `timers.py`, `keys.py` | what a partition has for all groups: lanes, what is due, key order |
| `claims.py`, `leases.py`, `backoff.py` | what a group may take now: cursors, leases, retries |
| `lease_book.py` | leases that ended lately, in few bytes each |
| `group.py`, `outcomes.py` | the commands (fetch, ack, fail, …); what they return |
| `standing.py` | how far a group is: the one place that counts |
| `assignment.py`, `cron.py` | who owns which partition; when a schedule fires |
"""
