"""Penstock beside its peers, on one machine in one run: `make bench-peers`, or `python -m benchmarks.peers --help`.

| file | what it has |
| --- | --- |
| `plans.py` | what is done in a row of the table: publish, consume, a steady rate; and what is measured of it |
| `requests.py`, `replies.py` | the bytes of the raw generator, prepared before the clock starts; replies are counted |
| `generator.py`, `steady.py` | the raw generator: the same loops over plain sockets for every protocol |
| `systems/` | one file for each peer: how it is started, its bytes, its client, how its counts are read back |
| `catalogue.py` | all rows, all systems |
| `rounds.py` | every row on every system, round after round, each figure verified |
| `processor.py`, `syncs.py` | processor time of a server, from /proc; its syncs for each message, by strace |
| `targets.py`, `page.py`, `pictures.py` | the ratios that are asked for, and the page with tables and plots |
"""
