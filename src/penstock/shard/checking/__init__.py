"""Checking a data directory without opening it, and repairing it.

A check reads every byte that the newest checkpoint needs: its copies, the journal after it, every segment. It changes
nothing and never stops early: every error becomes a problem in the report. A repair copies a damaged file to
`quarantine/<time>/` before changing it, keeps every intact block, and leaves a directory in which a check finds no
problem. The caller holds the lock of the storage for both.

A bucket is checked while it is in use, with the chain that its journal is (`chain.py`), and is not repaired.
"""

from penstock.shard.checking.check import check_bucket, check_directory
from penstock.shard.checking.repair import repair_directory
from penstock.shard.checking.report import CheckReport, Problem, RepairReport

__all__ = ["CheckReport", "Problem", "RepairReport", "check_bucket", "check_directory", "repair_directory"]
