"""A lake: the history of topics as Parquet files by date, with a log of commits that says which of them count.

<lake>/<topic>/messages/date=2026-11-16/2-00000000000000045678-9c01f2aa.parquet   partition, first offset, checksum
<lake>/<topic>/events/date=2026-11-16/2-00000000000000000000-77ab01c3.parquet
<lake>/<topic>/_log/00000000000000000000.json                                     commits: files added and removed
<lake>/<topic>/_new/                                                              what is being written
"""
