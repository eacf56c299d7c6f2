"""Spark looks for packages of this kind of name, and finds the data source `penstock` without any registration."""

from penstock.spark.source import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]
