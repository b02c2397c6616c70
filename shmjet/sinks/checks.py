"""Sinks for tests: the job fails unless the expected items came."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, TypeVar

from shmjet.core.job import ProcessingGuarantee
from shmjet.core.processor import ProcessorMetaSupplier
from shmjet.pipeline.definitions import SinkDef
from shmjet.processors.checks.assertion_sinks import (
    AssertAnyOrderProcessor,
    AssertCollectedEventuallyProcessor,
    AssertCollectedProcessor,
    AssertContainsProcessor,
    AssertOrderedProcessor,
)
from shmjet.processors.general.base import Supply

T = TypeVar("T")


def assert_ordered(expected: Iterable[T], message: str = "assert_ordered") -> SinkDef[T]:
    """Fail the job with an `AssertionError` unless exactly these items come, in this order.

    It fails at the first item that differs, and shows it. The order is that of an upstream stage with one processor;
    put `sort` in front of it, or `set_local_parallelism(1)` on all stages. The rows of a batch are compared as dicts.

    Args:
        expected: the items.
        message: what an error begins with.

    Example:
        >>> stage.sort().write_to(sinks.assert_ordered([1, 2, 3]))        # doctest: +SKIP
    """
    return _one("assert_ordered", Supply(AssertOrderedProcessor, tuple(expected), message))


def assert_any_order(expected: Iterable[T], message: str = "assert_any_order") -> SinkDef[T]:
    """Fail the job with an `AssertionError` unless exactly these items come, each as often as here, in any order.

    The error shows what is missing and what was not expected. All items are kept until the end. The rows of a batch are
    compared as dicts.

    Args:
        expected: the items.
        message: what an error begins with.

    Example:
        >>> stage.write_to(sinks.assert_any_order(["a", "b"]))            # doctest: +SKIP
    """
    return _one("assert_any_order", Supply(AssertAnyOrderProcessor, tuple(expected), message))


def assert_contains(expected: Iterable[T], message: str = "assert_contains") -> SinkDef[T]:
    """Fail the job with an `AssertionError` unless each of these items comes, among others, in any order.

    The error shows what is missing at the end of the job. The rows of a batch are compared as dicts.

    Args:
        expected: the items; an item that is here twice need not come twice.
        message: what an error begins with.

    Example:
        >>> stage.write_to(sinks.assert_contains(["a", "b"]))             # doctest: +SKIP
    """
    return _one("assert_contains", Supply(AssertContainsProcessor, tuple(expected), message))


def assert_collected(fn: Callable[[list[Any]], Any]) -> SinkDef[Any]:
    """Have a function look at all items at the end; what it raises fails the job, and so does False that it returns.

    All items are kept until the end. The rows of a batch count as dicts, one each.

    Args:
        fn: `fn(items)`, called once, in the process of the sink.

    Raises:
        TypeError: `fn` is not callable.

    Example:
        >>> assert_collected(lambda items: len(items) == 100).name
        'assert_collected'
    """
    return _one("assert_collected", Supply(AssertCollectedProcessor, _function("assert_collected", fn)))


def assert_collected_eventually(timeout: float | timedelta, fn: Callable[[list[Any]], Any]) -> SinkDef[Any]:
    """Have a function look at all items so far, until it accepts them; for jobs with an endless source.

    Whenever items have come `fn` is called with all of them. As long as it raises an exception, or returns False, the
    job goes on. Otherwise the job is ended with a `shmjet.testing.AssertionCompletedError`, which is the cause of the
    `JobFailedError` that `run` raises. After `timeout`, or when the input ends, it is ended with an `AssertionError`
    that has the last exception of `fn`.

    Args:
        timeout: seconds (or a `timedelta`) from the start of the job; after a restart they begin anew.
        fn: `fn(items)`; it must not change the list.

    Raises:
        TypeError, ValueError: an argument makes no sense.

    Example:
        >>> stage.write_to(sinks.assert_collected_eventually(5, lambda items: 42 in items))      # doctest: +SKIP
        >>> with pytest.raises(JobFailedError) as failed:                                        # doctest: +SKIP
        ...     jet.new_job(pipeline).run()
        >>> assert isinstance(failed.value.cause, shmjet.testing.AssertionCompletedError)        # doctest: +SKIP
    """
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        raise TypeError(f"sinks.assert_collected_eventually: timeout must be seconds, got {timeout!r}")
    if not 0 < seconds < math.inf:
        raise ValueError(f"sinks.assert_collected_eventually: timeout must be above 0, got {timeout!r}")
    checked = _function("assert_collected_eventually", fn)
    return _one("assert_collected_eventually", Supply(AssertCollectedEventuallyProcessor, float(seconds), checked))


def _one(name: str, supply: Supply) -> SinkDef[Any]:
    """Return a sink with one processor in the cluster."""
    supplier = ProcessorMetaSupplier.prefer_local_parallelism_one(supply)
    return SinkDef(name, supplier, 1, single=True, guarantee=ProcessingGuarantee.EXACTLY_ONCE)


def _function(name: str, fn: Any) -> Any:
    if not callable(fn):
        raise TypeError(f"sinks.{name}: expected a function of the items, got {fn!r} ({type(fn).__name__})")
    return fn
