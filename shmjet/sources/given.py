"""`items()`: items that travel with the job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from shmjet import processors
from shmjet.core.checks import check_at_least
from shmjet.core.job import ProcessingGuarantee
from shmjet.data.columnar import Columnar
from shmjet.data.errors import PartitionCountError
from shmjet.pipeline.definitions import BatchSourceDef, SourceDef
from shmjet.processors.general.base import Supply
from shmjet.processors.general.generate import ItemsProcessor
from shmjet.processors.grid.partitioned_items import PartitionedItemsProcessor, partitioned

T = TypeVar("T")

_GUARANTEE = ProcessingGuarantee.EXACTLY_ONCE

MANY = 1 << 16
"""So many items are emitted by all processors, each a run of them; fewer by one, in order."""


def items(iterable: Iterable[T], partitions: int | None = None, key: Callable[[T], Any] | None = None) -> SourceDef[T]:
    """Emit items that are given with the pipeline, each once.

    Up to 65536 items are emitted by one processor on each member, in order; more by all, each a run of its own. A
    `range` travels as such, however long it is. A stage behind it shares them between all workers, so their order is
    lost there unless it is told to run on one processor (`set_local_parallelism(1)`), and on several members unless it
    is `sort`.

    Args:
        iterable: finite; it is read here. None is never an item.
        partitions: put the items into so many partitions by `key`, so that a join with another source that is
            partitioned alike need not move them.
        key: function of an item that gives the key of its partition; needed with `partitions`.

    Raises:
        TypeError: it is not iterable, contains None, a key is of a type that has no partition, or one of `partitions`
            and `key` is missing. ConfigError, PlanError: `partitions` is below 1.

    Example:
        >>> items(["a", "b"]).parallelism, items(range(1_000_000)).parallelism
        (1, -1)
        >>> items([("a", 1)], partitions=8, key=lambda pair: pair[0]).partitions
        8
    """
    if partitions is None and key is None:
        return _plain(iterable)
    if partitions is None or not callable(key):
        raise TypeError(f"sources.items: give both partitions and key, got partitions={partitions!r}, key={key!r}")
    check_at_least("sources.items: partitions", partitions, 1, PartitionCountError)
    given = partitioned(_checked(iterable), partitions, key)
    return SourceDef(
        "items",
        Supply(PartitionedItemsProcessor, given),
        partitions=partitions,
        partition_key=key,
        guarantee=_GUARANTEE,
    )


def _plain(iterable: Iterable[T]) -> SourceDef[T]:
    given: Any = iterable if type(iterable) is range else _checked(iterable)
    supply: Any
    supply, parallelism = (
        (processors.read_items(given), 1) if len(given) < MANY else (Supply(ItemsProcessor, given), -1)
    )
    columnar = _columnar(given)
    if not columnar:
        return SourceDef("items", supply, parallelism, columnar=columnar, guarantee=_GUARANTEE)
    size = sum(int(item.nbytes) for item in given)
    names = given[0].names if all(set(item.names) == set(given[0].names) for item in given) else None
    return BatchSourceDef(
        "items", supply, parallelism, columnar=True, guarantee=_GUARANTEE, nbytes=size, column_names=names
    )


def _columnar(given: Sequence[Any]) -> bool | None:
    """Tell whether items are batches: all, none, or (None) some."""
    if type(given) is range:
        return False
    count = sum(isinstance(item, Columnar) for item in given)
    return None if 0 < count < len(given) else count > 0


def _checked(iterable: Iterable[T]) -> tuple[T, ...]:
    given = tuple(iterable)
    if any(item is None for item in given):
        raise TypeError("sources.items: None is never an item, but is among the items given")
    return given
