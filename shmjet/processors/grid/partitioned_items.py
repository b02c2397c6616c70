"""Sources whose items are in partitions: given ones, and maps read by another count of partitions than they have.

Each processor emits the partitions that a distributed partitioned edge would bring it (`shmjet.core.ownership`), and
nothing else, so two such sources with equal counts and equal parallelism have equal keys on processors of the same
index, and what comes over such an edge meets them. Must not know: what makes use of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from shmjet.core.keys import partition_id
from shmjet.core.ownership import owners_in
from shmjet.data.errors import ProcessorError
from shmjet.processors.general.unit_source import UnitSource
from shmjet.processors.grid.maps_and_lists import ReadMapProcessor


class PartitionedItemsProcessor(UnitSource):
    """Emits the items of its partitions.

    Args:
        partitions: the items of each partition.
    """

    state_kind = "items in partitions"

    def __init__(self, partitions: tuple[tuple[Any, ...], ...]) -> None:
        self._partitions = partitions

    def first_units(self) -> list[int]:
        """Return the partitions."""
        return owners_in(self.context).share_of(self.context, len(self._partitions))

    def restored_units(self, saved: Mapping[Any, int]) -> list[Any]:
        """Return the partitions that are the processor's now."""
        return self.first_units()

    def open(self, unit: int, position: int) -> tuple[Iterable[Any], int]:
        """Return the items of a partition from a position on."""
        return self._partitions[unit][position:], 0

    def describe(self) -> tuple[int, int]:
        """Return the number of partitions and of items."""
        return len(self._partitions), sum(map(len, self._partitions))

    def check(self, described: tuple[int, int]) -> None:
        """Raise ProcessorError when there were others."""
        if tuple(described) != self.describe():
            raise ProcessorError(
                f"vertex {self.context.vertex_name!r}: the snapshot is of {described[1]} items in {described[0]} "
                "partitions, these are others; go on with the items that the job began with"
            )


class PartitionedMapProcessor(ReadMapProcessor):
    """Emits (key, value) of the partitions that are its own when keys are hashed into `count` of them.

    With the grid's own count each processor reads its partitions; with another one every processor reads everything
    and keeps its share, which is right, and slow. Then its unit is that share, (index, parallelism).
    """

    state_kind = "read_map in partitions"

    def __init__(self, name: str, count: int) -> None:
        super().__init__(name)
        self._count = count

    def first_units(self) -> list[Any]:
        """Return the partitions, or the share as a whole where the map has others."""
        if self._count == self.context.partition_count:
            return super().first_units()
        self.context.logger.warning(
            "map %r has %d partitions but is read as if it had %d; say sources.map(%r, partitions=%d)",
            *(self._name, self.context.partition_count, self._count, self._name, self.context.partition_count),
        )
        return [(self.context.global_index, self.context.total_parallelism)]

    def restored_units(self, saved: Mapping[Any, int]) -> list[Any]:
        """Return the partitions that are the processor's now.

        Raises:
            ProcessorError: a share as a whole was saved, of another number of processors.
        """
        if self._count == self.context.partition_count:
            return super().restored_units(saved)
        units = self.first_units()
        if any(count != self.context.total_parallelism for _, count in saved):
            raise ProcessorError(
                f"vertex {self.context.vertex_name!r}: map {self._name!r} is read with partitions={self._count}, so "
                f"the job has to go on with as many processors as before; say partitions={self.context.partition_count}"
            )
        return units

    def open(self, unit: Any, position: int) -> tuple[Iterable[Any], int]:
        """Return the entries, lazily."""
        if self._count == self.context.partition_count:
            return super().open(unit, position)
        own = frozenset(owners_in(self.context).share_of(self.context, self._count))
        return (entry for entry in self._map.items() if partition_id(entry[0], self._count) in own), position


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
