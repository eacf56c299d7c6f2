"""`penstock job`: the table of all jobs; the module of a job is imported when it is called."""

from __future__ import annotations

from penstock.cli.lazy import CommandGroup, Entry, new_app

_LAKE, _LETTERS, _FILES, _PROOF = "History", "Dead letters", "Files", "Look into it"


class Jobs(CommandGroup):
    """Everything that `penstock job` can do."""

    entries = (
        Entry(_LAKE, "archive", "jobs.history:archive", "Copy or move the history of topics into a lake of Parquet."),
        Entry(_LAKE, "replay", "jobs.history:replay", "Send a window of the past to a topic, or write it to files."),
        Entry(_LAKE, "compact", "jobs.history:compact", "Merge small files of a lake, or keep the latest of each key."),
        Entry(_FILES, "load", "jobs.files:load", "Publish CSV, JSON lines or Parquet files to a topic."),
        Entry(_FILES, "export", "jobs.files:export", "Write a topic to CSV, JSON lines or Parquet files."),
        Entry(_LETTERS, "dlq-report", "jobs.letters:dlq_report", "Group dead letters by what they have in common."),
        Entry(_LETTERS, "dlq-redrive", "jobs.letters:dlq_redrive", "Bring dead letters back by an SQL condition."),
        Entry(_PROOF, "trace-report", "jobs.proof:trace_report", "Latencies, causes and stuck messages, as HTML."),
        Entry(_PROOF, "audit", "jobs.proof:audit", "Prove that a data directory, a server or a lake is whole."),
    )


app = new_app(
    """Bulk work on Spark: archive, replay, load, export, audit and more.

It runs local, or on any master with `--master`.

Each job has `--dry-run`, which tells what it would do, and `--output json`. A job that was killed is run again with the
same words, and the result is the same. Each is a function of `penstock.spark.jobs` too.""",
    cls=Jobs,
)


@app.callback()
def _jobs() -> None:
    """Bulk work on Spark."""
