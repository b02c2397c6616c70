"""Sources whose items are in partitions: given ones, and maps read by another count of partitions than they have.

Each processor emits the partitions that a distributed partitioned edge would bring it (`shmjet.core.ownership`), and
nothing else, so two such sources with equal counts and equal parallelism have equal keys on processors of the same
index, and what comes over such an edge meets them. Must not know: what makes use of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from shmjet.core.keys import partition_id
from shmjet.core.ownership import owners_in
from shmjet.processors.general.base import BulkProcessor
from shmjet.processors.grid.maps_and_lists import grid_of


class PartitionedItemsProcessor(BulkProcessor):
    """Emits the items of its partitions.

    Args:
        partitions: the items of each partition.
    """

    def __init__(self, partitions: tuple[tuple[Any, ...], ...]) -> None:
        self._partitions = partitions

    def results(self) -> Iterable[Any]:
        """Return the share, lazily."""
        for partition in owners_in(self.context).share_of(self.context, len(self._partitions)):
            yield from self._partitions[partition]


class PartitionedMapProcessor(BulkProcessor):
    """Emits (key, value) of the partitions that are its own when keys are hashed into `count` of them.

    With the grid's own count each processor reads its partitions; with another one every processor reads everything
    and keeps its share, which is right, and slow.
    """

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count

    def results(self) -> Iterable[Any]:
        """Return the entries, lazily."""
        context, count = self.context, self._count
        entries = grid_of(context).get_map(self._name)
        own = frozenset(owners_in(context).share_of(context, count))
        if count == context.partition_count:
            return entries.items_of(sorted(own))  # type: ignore[no-any-return]
        context.logger.warning(
            "map %r has %d partitions but is read as if it had %d; say sources.map(%r, partitions=%d)",
            *(self._name, context.partition_count, count, self._name, context.partition_count),
        )
        return (entry for entry in entries.items() if partition_id(entry[0], count) in own)


def partitioned(items: Iterable[Any], count: int, key: Callable[[Any], Any]) -> tuple[tuple[Any, ...], ...]:
    """Return the items of each of `count` partitions, in order.

    Example:
        >>> partitioned("abca", 2, lambda letter: letter)
        (('a', 'a'), ('b', 'c'))
    """
    shares: list[list[Any]] = [[] for _ in range(count)]
    for item in items:
        shares[partition_id(key(item), count)].append(item)
    return tuple(map(tuple, shares))
