"""One file per figure; each has `run`, which measures and gives the rows of the table."""

from benchmarks.bench import Figure
from benchmarks.figures import (
    batches,
    brokers,
    bucket,
    consume,
    delayed,
    holes,
    http,
    jobs,
    processes,
    read_arrow,
    recovery,
    server,
    settle,
    shards,
    singles,
    spark,
    spark_bucket,
    topics,
)

FIGURES: dict[str, Figure] = {
    "batches": batches.run,
    "singles": singles.run,
    "topics": topics.run,
    "settle": settle.run,
    "recovery": recovery.run,
    "read_arrow": read_arrow.run,
    "consume": consume.run,
    "delayed": delayed.run,
    "holes": holes.run,
    "shards": shards.run,
    "server": server.run,
    "http": http.run,
    "processes": processes.run,
    "bucket": bucket.run,
    "brokers": brokers.run,
    "spark": spark.run,
    "spark_bucket": spark_bucket.run,
    "jobs": jobs.run,
}
