"""Topics as tables of Spark: `spark.read.format("penstock")`, and helpers in Python with types.

from penstock.spark import read_topic, session

spark = session()
read_topic(spark, "orders", servers="localhost:9000").groupBy("key").count().show()

The driver plans: which offsets, in which files, cut into slices. Tasks read segment files that they can see, and the
rest through the server. A write is staged by tasks and published once by the driver.

| file | what it does |
| --- | --- |
| `source.py`, `options.py`, `tables.py` | what Spark calls; options and their errors; tables and their batches |
| `origins.py`, `finding.py` | server, directory or bucket, archive; which of them (or a lake) a table comes from |
| `buckets.py`, `paths.py` | a client of each bucket in each process; places in a bucket, used as paths |
| `planning.py`, `filters.py` | positions and slices; what need not be read |
| `slices.py`, `connecting.py`, `spreading.py` | what a task reads; one client in each process; work by items |
| `batch.py`, `streaming.py`, `listed.py` | the readers: batches, streams, lists |
| `writing.py`, `rows.py`, `packing.py` | the writers; rows as messages; columns as they are sent |
| `frames.py` | `read_topic` and the like; JSON |
| `sessions.py`, `java.py`, `registering.py` | a session that works, with a Java and the data source |
| `shell.py`, `packaging.py` | the prompt; the archive for workers |
"""

from typing import TYPE_CHECKING

from penstock.lazy import lazy_names

if TYPE_CHECKING:
    from penstock.spark.errors import DataLoss
    from penstock.spark.frames import explode_events, from_json, infer_schema, read_events, read_topic, topics
    from penstock.spark.registering import register
    from penstock.spark.sessions import session
    from penstock.spark.source import PenstockDataSource

__all__ = [
    "DataLoss",
    "PenstockDataSource",
    "explode_events",
    "from_json",
    "infer_schema",
    "read_events",
    "read_topic",
    "register",
    "session",
    "topics",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "penstock.spark.errors": ("DataLoss",),
        "penstock.spark.frames": (
            *("explode_events", "from_json", "infer_schema", "read_events", "read_topic", "topics"),
        ),
        "penstock.spark.registering": ("register",),
        "penstock.spark.sessions": ("session",),
        "penstock.spark.source": ("PenstockDataSource",),
    },
)
