"""The durable write path: how bytes are laid out, gathered, committed in groups, and found again.

| file | what it does |
| --- | --- |
| `layout.py` | the bytes of a file: groups, blocks, checksums |
| `journal.py`, `commit.py`, `files.py` | gathering blocks, committing them together, and the files that hold them |
| `scan.py` | reading a file: what is whole, what is a torn tail, what is damage |
| `chain.py`, `chain_layout.py`, `conversing.py` | a journal as numbered objects of a bucket, and who owns it |
| `bucket_storage.py`, `bucket_files.py`, `bucket_state.py` | the directory of a shard on a bucket |
| `bucket_reading.py` | the same, and a whole bucket, for whoever owns nothing there |
| `object_folder.py` | objects as plain files, and archives on buckets |
"""

from penstock.journal.commit import Block, Commit, together
from penstock.journal.journal import Journal
from penstock.journal.layout import BlockEntry, BlockKind
from penstock.journal.scan import Scan, scan_journal

__all__ = ["Block", "BlockEntry", "BlockKind", "Commit", "Journal", "Scan", "scan_journal", "together"]
