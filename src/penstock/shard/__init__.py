"""One log with its delivery.

`shard` puts the parts together: `core` (state, journal, lock, clock), `topics`, `publishing`, `checkpoints`,
`schedules`, `dispatch` (who gets which message), `staging`, `metering`. On a whole shard work `operations` (what faces
and ports ask for), `upkeep` (settling, retention, tidying) and, on its directory, `checking`.

One state lock for all of it, held for memory work only. A part or a function that has the core (or the whole shard)
takes the lock itself, or asserts that it is held: once for an operation, not for each message. What is given no more
than a topic, a log or a group is pure, and its caller has the lock.

A publish: `publishing.py` checks it, reserves the offset and adds a record to the open group of the journal; the
caller waits for the commit, or commits it if nobody else does; the record is folded, and the caller gets the id.

A delivery: `operations/consuming.py` asks `dispatch`, which lets the group take the best ready offsets under a lease;
`reading` finds their values; the event is logged and not waited for. An ack ends the lease, logs an event, and returns
when that is durable. The last failure copies the message to the dead letters and logs its death, in one commit.
"""
