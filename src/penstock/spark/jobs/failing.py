"""Errors of Spark, as errors that say in a line or two what is wrong."""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterator

from pyspark.errors import AnalysisException, ParseException, PySparkException

import penstock.model.errors as errors
from penstock.model.errors import DiskFull, InvalidArgument, PenstockError
from penstock.spark.errors import DataLoss, JobFailed

_RAISED = re.compile(r"(?:penstock\.(?:model|spark)\.errors\.)(\w+): (.*?)(?:\n\s*\n|\n\tat |\Z)", re.DOTALL)
_OTHER = re.compile(r"^(\w+(?:\.\w+)*(?:Error|Exception)): (.*)$", re.MULTILINE)
_NO_SPACE = ("No space left on device", "Disk quota exceeded")
_LINES_MAX = 6


@contextlib.contextmanager
def told_clearly() -> Iterator[None]:
    """Turn errors of Spark into a PenstockError, without the tracebacks of tasks and Java."""
    try:
        yield
    except PenstockError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(f"there is no space left for {error.filename or 'what is to be written'}") from error
        raise
    except Exception as error:
        if not is_of_spark(error):
            raise
        raise clear(error) from error


def is_of_spark(error: Exception) -> bool:
    """Whether an error comes from Spark, or from the Java below it."""
    return isinstance(error, PySparkException) or type(error).__name__ == "Py4JJavaError"


def clear(error: Exception) -> PenstockError:
    """An error of Spark, as one of ours with a short message."""
    text = str(error)
    if isinstance(error, ParseException | AnalysisException):
        return InvalidArgument(f"the SQL is wrong: {_short(text)}")
    if any(sign in text for sign in _NO_SPACE):
        return DiskFull("there is no space left on a disk that the job writes to")
    if found := _RAISED.search(text):
        kind = getattr(errors, found[1], {"DataLoss": DataLoss}.get(found[1], JobFailed))
        told = " ".join(found[2].split())
        with contextlib.suppress(TypeError):  # some take more than a text
            return kind(told)
        return JobFailed(told)
    found_all = _OTHER.findall(text)
    return JobFailed(": ".join(found_all[-1]) if found_all else _short(text))


def _short(text: str) -> str:
    """The part of a message of Spark that speaks of the query."""
    told = text.partition("JVM stacktrace:")[0].partition("\n\tat ")[0]
    lines = [line.rstrip() for line in told.splitlines() if line.strip() and not line.startswith("== ")]
    kept = [
        line for line in lines if not re.match(r"^['+:\- ]*(Project|Filter|Relation|LogicalRDD|SubqueryAlias)\b", line)
    ]
    return "\n".join(kept[:_LINES_MAX])
