"""Looking a data directory over without opening it, and setting aside what is damaged in it.

A check reads every byte that the newest checkpoint needs: its copies, the journal behind it, every segment. It
changes nothing and stops at nothing: whatever goes wrong becomes a problem of the report. A repair copies a damaged
file to `quarantine/<time>/` before it touches it, keeps every block that is whole, and leaves a directory in which a
check finds no problem. The caller holds the lock of the storage for both.
"""

from penstock.shard.checking.check import check_directory
from penstock.shard.checking.repair import repair_directory
from penstock.shard.checking.report import CheckReport, Problem, RepairReport

__all__ = ["CheckReport", "Problem", "RepairReport", "check_directory", "repair_directory"]
