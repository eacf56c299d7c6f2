"""The classes that Spark loads, kept in a file that Java maps: sessions of the tests start in half of the time.

`python -m tests.spark.class_data FILE` makes it (`make test` does); `java_options` has Java use it, if it is there.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

CLASS_DATA = Path(sys.prefix) / "spark-classes.jsa"
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.maxPlanStringLength": "1000",
}
"""What sessions of tests have unless they say otherwise: little data is no reason to compile, plan and tell much."""
_QUICK = " ".join(
    ["-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xlog:disable", *(f"-D{key}={value}" for key, value in SETTINGS.items())]
)


def java_options() -> str:
    """What sessions of tests are started with; a file that does not fit this Java is not used."""
    return f"{_QUICK} -XX:SharedArchiveFile={CLASS_DATA}" if CLASS_DATA.exists() else _QUICK


def make(file: Path) -> None:
    """Do what tests do, and keep the classes that it took."""
    os.environ["SPARK_SUBMIT_OPTS"] = f"{_QUICK} -XX:ArchiveClassesAtExit={file}.new"
    from pyspark import SparkContext

    import penstock
    import penstock.spark
    from penstock.spark.jobs import Place, archive, audit
    from tests.spark.conftest import QUICK
    from tests.spark.harness import Served

    spark = penstock.spark.session(master="local[2]", settings=QUICK)
    with tempfile.TemporaryDirectory() as scratch, Served(Path(scratch) / "data") as server:
        with penstock.connect(server.address) as client:
            client.publish_many("orders", [penstock.Message(f'{{"n": {n}}}', key=f"{n}") for n in range(10)])
        place = Place(servers=server.address)
        archive(spark, place, ["orders"], f"{scratch}/lake")
        audit(spark, place, lake=f"{scratch}/lake")
        rows = spark.readStream.format("penstock").options(servers=server.address, subscribe="orders").load()
        rows = rows.selectExpr("from_json(CAST(value AS STRING), 'n INT').n AS n", "timestamp")
        counted = rows.withWatermark("timestamp", "1 minute").groupBy("n", "timestamp").count()
        written = counted.selectExpr("to_json(struct(*)) AS value").writeStream.format("penstock").outputMode("append")
        written = written.options(servers=server.address, topic="counted", checkpointLocation=f"{scratch}/checkpoint")
        written.trigger(availableNow=True).start().awaitTermination()
    java = SparkContext._gateway.proc  # type: ignore[union-attr]
    spark.stop()
    java.stdin.close()
    java.wait(300)
    Path(f"{file}.new").replace(file)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
