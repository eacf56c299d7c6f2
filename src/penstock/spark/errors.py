"""Errors that only Spark's tables know."""

from __future__ import annotations

from penstock.model.errors import PenstockError


class DataLoss(PenstockError):
    """Messages that a query has to read are gone; `failOnDataLoss` decides whether that ends it."""


class JobFailed(PenstockError):
    """A job could not go on; the text says why."""
