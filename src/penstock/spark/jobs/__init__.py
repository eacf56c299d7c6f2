"""Bulk jobs on Spark: each is a function here, and a command `penstock job NAME`.

from penstock.spark import session
from penstock.spark.jobs import Place, archive

archive(session(), Place(servers="localhost:9000"), ["orders"], "/lake")

A job plans on the driver, lets tasks do the work, and makes the result visible in one step: a publish for a producer
and sequence, a commit in the log of a lake, or a rename. All share `place.py`, `outcome.py` (with
progress) and `failing.py` (clear errors).
"""

from typing import TYPE_CHECKING

from penstock.lazy import lazy_names

if TYPE_CHECKING:
    from penstock.spark.errors import JobFailed
    from penstock.spark.jobs.archiving import archive
    from penstock.spark.jobs.auditing.job import audit
    from penstock.spark.jobs.compacting import compact
    from penstock.spark.jobs.dlq_redriving import dlq_redrive
    from penstock.spark.jobs.dlq_reporting import dlq_report
    from penstock.spark.jobs.exporting import export
    from penstock.spark.jobs.loading import load
    from penstock.spark.jobs.outcome import Outcome, Progress
    from penstock.spark.jobs.place import Place
    from penstock.spark.jobs.replaying import replay
    from penstock.spark.jobs.tracing.job import trace_report

__all__ = [
    "JobFailed",
    "Outcome",
    "Place",
    "Progress",
    "archive",
    "audit",
    "compact",
    "dlq_redrive",
    "dlq_report",
    "export",
    "load",
    "replay",
    "trace_report",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "penstock.spark.errors": ("JobFailed",),
        "penstock.spark.jobs.archiving": ("archive",),
        "penstock.spark.jobs.auditing.job": ("audit",),
        "penstock.spark.jobs.compacting": ("compact",),
        "penstock.spark.jobs.dlq_redriving": ("dlq_redrive",),
        "penstock.spark.jobs.dlq_reporting": ("dlq_report",),
        "penstock.spark.jobs.exporting": ("export",),
        "penstock.spark.jobs.loading": ("load",),
        "penstock.spark.jobs.outcome": ("Outcome", "Progress"),
        "penstock.spark.jobs.place": ("Place",),
        "penstock.spark.jobs.replaying": ("replay",),
        "penstock.spark.jobs.tracing.job": ("trace_report",),
    },
)
