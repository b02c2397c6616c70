"""Sinks for tests: the job fails unless exactly the expected items came."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from shmjet.core.job import ProcessingGuarantee
from shmjet.core.processor import ProcessorMetaSupplier
from shmjet.pipeline.definitions import SinkDef
from shmjet.processors.checks.assertion_sinks import AssertAnyOrderProcessor, AssertOrderedProcessor
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
    return SinkDef(
        "assert_ordered",
        _one(Supply(AssertOrderedProcessor, tuple(expected), message)),
        1,
        single=True,
        guarantee=ProcessingGuarantee.EXACTLY_ONCE,
    )


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
    return SinkDef(
        "assert_any_order",
        _one(Supply(AssertAnyOrderProcessor, tuple(expected), message)),
        1,
        single=True,
        guarantee=ProcessingGuarantee.EXACTLY_ONCE,
    )


def _one(supply: Supply) -> ProcessorMetaSupplier:
    return ProcessorMetaSupplier.prefer_local_parallelism_one(supply)
