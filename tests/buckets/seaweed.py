"""The object store of the tests: a real one."""

from __future__ import annotations

from penstock.testing.seaweed import BUCKET, Seaweed

__all__ = ["BUCKET", "Seaweed"]
