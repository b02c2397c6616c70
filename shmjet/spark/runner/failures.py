"""Errors of the user's code on their way from a Spark task to the driver.

Spark passes a task's error on as text. The text that a person would read in Spark's own log comes first; behind it
stands the engine's description of the failure, from which the driver makes the `JobFailedError` that a job of the
engine would have ended with. Must not know RDDs.
"""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from shmjet.data.decoders import from_msgpack
from shmjet.data.errors import JobFailedError
from shmjet.execution.failure import failure_text, make_failure, to_exception
from shmjet.execution.messages import Failure
from shmjet.spark.error_summary import told_by_spark

T = TypeVar("T")

_LARGEST_EXCEPTION = 256 << 10
"""Bytes of a pickled exception that travel along; of a larger one the text does."""

_MARK = re.compile(r"<shmjet-failure ([A-Za-z0-9+/=]+)>")
_MISSING = re.compile(r"No module named '(shmjet|numpy|cloudpickle|msgspec)[\w.]*'")
_SPARK_LINES = 12


class StageFailed(Exception):
    """A stage's code raised in a task; made by `guarded`."""


def guarded(flow: Iterable[T], vertex: str, index: int) -> Iterator[T]:
    """Yield what a flow gives; what it raises becomes a `StageFailed` that names the vertex."""
    try:
        yield from flow
    except StageFailed:
        raise
    except Exception as error:
        raise described(error, vertex, index) from error


def described(error: Exception, vertex: str, index: int) -> StageFailed:
    """Return an error with the engine's description of it in the text."""
    failure = make_failure(error, vertex=vertex, processor_index=index, worker=index)
    if failure.exception is not None and len(failure.exception) > _LARGEST_EXCEPTION:
        failure = msgspec.structs.replace(failure, exception=None)
    coded = base64.b64encode(msgspec.msgpack.encode(failure)).decode()
    return StageFailed(f"{failure_text(failure, 'on Spark')}\n<shmjet-failure {coded}>")


def job_error(error: BaseException, name: str) -> JobFailedError:
    """Return what `run_on_spark` raises when Spark, or what ran on it, has failed.

    Args:
        error: what PySpark raised.
        name: of the run.
    """
    if isinstance(error, JobFailedError):
        return error
    if isinstance(error, Exception):
        found = _MARK.search(_text_of(error))
        if found is not None:
            failure = from_msgpack(base64.b64decode(found[1]), Failure)
            made: Any = to_exception(failure, member="spark", job=name)
            made.__suppress_context__ = True
            return made  # type: ignore[no-any-return]
    told = "\n".join(filter(None, told_by_spark(error))) if hasattr(error, "java_exception") else str(error).strip()
    lines = told.split("\n")
    shown = "\n".join(lines[:_SPARK_LINES] + (["..."] if len(lines) > _SPARK_LINES else []))
    missing = _MISSING.search(str(error))
    hint = ""
    if missing is not None:
        hint = (
            f"{missing[0]}: shmjet and its packages have to be installed for the Python of Spark's executors; "
            f"PYSPARK_PYTHON={sys.executable} lets those of this host run this one\n"
        )
    return JobFailedError(f"job {name} failed on Spark: {hint}{shown}", member="spark", cause=error)


def _text_of(error: BaseException) -> str:
    """Return all that Spark says of an error, the text of its causes in the JVM included."""
    parts = [str(error)]
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    for _ in range(10):
        if java is None:
            break
        try:
            parts.append(str(java.toString()))
            java = java.getCause()
        except Exception:
            break
    return "\n".join(parts)
