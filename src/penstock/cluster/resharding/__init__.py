"""Another number of shards for a data directory: offline, and the original stays as it is.

Every topic is copied as a whole to the shard that its name belongs to. Segments do not depend on the shard that they
are in, so they are linked, not copied. The state of a topic goes from the old checkpoint (with the journal behind it
folded in) to a new one, and those blocks of the journal that are in no segment are carried, as settling carries them:
the checkpoint has their meaning, and the new journal their bytes. So nothing has to be settled before, and nothing is
encoded in another way than a broker does it.

| file | what it does |
| --- | --- |
| `stored_shard.py` | a shard as it is on disk, read without changing a byte |
| `shard_plan.py`, `stage_plan.py` | which topics, schedules and stages go where; what cannot be divided is refused |
| `shard_copy.py`, `stage_copy.py` | write one new shard, and the stages of all |
| `comparison.py` | reads the copy again, and compares it with the original |
| `swap.py` | puts the copy in the place of the original, inside the directory |
| `reshard.py` | all of it, in order |

What is numbered for each shard: topics get new numbers, journal files count from 1, the epoch is above all old ones (no
old receipt fits a new lease), and shard 3 keeps the identity of shard 3 if there was one.
"""
