"""The session and the server of the tests of Spark's tables, here too."""

from tests.spark.conftest import server, spark

__all__ = ["server", "spark"]
