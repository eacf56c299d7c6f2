"""Topics as tables of Spark: `spark.read.format("penstock")`, and helpers in Python with types.

from penstock.spark import read_topic, session

spark = session()
read_topic(spark, "orders", servers="localhost:9000").groupBy("key").count().show()
"""

from typing import TYPE_CHECKING

from penstock.lazy import lazy_names

if TYPE_CHECKING:
    from penstock.spark.errors import DataLoss
    from penstock.spark.frames import explode_events, read_events, read_topic, topics
    from penstock.spark.payloads import from_json, infer_schema
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
        "penstock.spark.frames": ("explode_events", "read_events", "read_topic", "topics"),
        "penstock.spark.payloads": ("from_json", "infer_schema"),
        "penstock.spark.registering": ("register",),
        "penstock.spark.sessions": ("session",),
        "penstock.spark.source": ("PenstockDataSource",),
    },
)
