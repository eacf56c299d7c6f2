"""Copies of whole data directories and buckets: a backup, a restore, a move from one to the other.

A copy is made shard by shard. First comes the state, as a cut: the newest checkpoint and the journal behind it, read
again if the owner wrote another checkpoint meanwhile. So the source may be in use. Then come the segments that this
state needs; one that the owner has removed meanwhile means another cut. At the end everything that the copy has is read
back. Only then it is declared complete, in `penstock.json`: until then no broker opens it, and the same command goes on
with it.

| file | what it does |
| --- | --- |
| `shard_cut.py` | what a shard is at one moment |
| `needed_files.py` | which segments and stages belong to a cut, and whether they are what they should be |
| `targets.py`, `directory_target.py`, `bucket_target.py` | where copies are written |
| `shard_copy.py`, `verification.py` | copy one shard, and read it back |
| `copying.py` | all of it, in order |

On a bucket, a copy begins a chain. The epochs before are one seal, at the very beginning, which says that the chain
goes on with the epoch of the source: so epochs of shard and chain are equal, and no old receipt fits a new lease. The
pieces of that epoch are the journal file that was being written; older files are bundles.
"""
