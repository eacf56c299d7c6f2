"""Where bytes are kept: two small interfaces, and what is behind them in production. Nothing else.

| file | what it does |
| --- | --- |
| `interface.py`, `files.py`, `read_only.py` | a directory: files that are written, synced and renamed |
| `scratch.py` | changes that stay in memory, over what is only read |
| `content.py` | bytes in memory, as a file |
| `refusals.py` | errors of a disk that are no failures |
| `objects.py`, `buckets.py`, `object_directory.py` | a bucket: objects that are created, put, read and listed |
| `persistent.py` | a bucket that is asked again until it answers |
| `object_cache.py` | what is hot of a bucket, kept near |
| `counted.py` | what is asked of a bucket, counted |
| `object_trial.py` | trying whether a bucket can be trusted |
| `aws_files.py` | keys in the files of AWS profiles |
| `prices.py` | what a bucket costs |
"""

from penstock.storage.files import FileStorage
from penstock.storage.interface import File, Storage, put_file, read_file

__all__ = ["File", "FileStorage", "Storage", "put_file", "read_file"]
