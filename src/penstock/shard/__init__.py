"""One log with its delivery.

`shard` puts the parts together: `core` (state, journal, lock, clock), `topics`, `publishing`, `checkpoints`,
`schedules`, `dispatch` (who gets which message), `staging`, `metering`. On a whole shard work `operations` (what faces
and ports ask for), `upkeep` (settling, retention, tidying) and, on its directory, `checking`.
"""
