"""Frames: the accumulators of each slide by key.

Must not know: where events come from, or which windows there are.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable
from typing import Any

from shmjet.aggregate_ops import AggregateOperation
from shmjet.aggregate_ops.tables import ABSENT, NativeTable
from shmjet.core.key_functions import named_unhashable
from shmjet.data.errors import ProcessorError

Op = AggregateOperation[Any, Any, Any]
Pairs = Iterable[tuple[Any, Any]]
"""Keys and accumulators."""


class Frames:
    """The accumulators of frames by key; without keys by the key None.

    Args:
        op: the operation.
        keyed: there are keys.
    """

    def __init__(self, op: Op, keyed: bool) -> None:
        self.op = op
        self._keyed = keyed
        self.new_table: Callable[[], Any] = op.table if keyed else dict
        self._tables: dict[int, Any] = {}
        self.ends: list[int] = []
        """Of the frames that are there, ascending."""

    def __bool__(self) -> bool:
        return bool(self.ends)

    def at(self, end: int) -> Any:
        """Return the table of a frame; a new one if it has none."""
        table = self._tables.get(end)
        if table is None:
            table = self._tables[end] = self.new_table()
            insort(self.ends, end)
        return table

    def add(self, end: int, keys: list[Any] | None, items: list[Any], ordinal: int) -> None:
        """Accumulate items into a frame; `keys` is None where there are none."""
        table, op = self.at(end), self.op
        if keys is not None:
            try:
                op.fold_groups(table, keys, items, ordinal)
            except TypeError as error:
                raise named_unhashable(error, keys) from error.__cause__
        else:
            accumulator = table.get(None, ABSENT)
            table[None] = op.fold(op.create() if accumulator is ABSENT else accumulator, items, ordinal)

    def merge(self, end: int, pairs: list[tuple[Any, Any]]) -> None:
        """Combine accumulators into a frame."""
        self.op.merge_groups(self.at(end), pairs)

    def put_back(self, end: int, pairs: list[tuple[Any, Any]]) -> None:
        """Take saved accumulators back, which are the frame's from now on; those of one key are combined.

        Raises:
            ProcessorError: there are two for one key, and the operation has no `combine`.
        """
        table, op = self.at(end), self.op
        if isinstance(table, NativeTable):
            table.put(pairs)
            return
        if type(table) is not dict:
            op.merge_groups(table, pairs)
            return
        met = [pair for pair in pairs if table.setdefault(*pair) is not pair[1]]
        if met and op.combine is None:
            raise ProcessorError(
                "the snapshot has several accumulators for one key and frame, which cannot be combined; partition the "
                "edge by the key that the items are grouped by"
            )
        if met:
            op.merge_groups(table, met)

    def pairs(self, end: int) -> Pairs:
        """Return the keys and accumulators of a frame, none where there is no frame."""
        table = self._tables.get(end)
        return () if table is None else table.items()

    def remove(self, end: int) -> Any:
        """Remove a frame and return its table; an empty one where there is no frame."""
        table = self._tables.pop(end, None)
        if table is None:
            return {}
        del self.ends[bisect_right(self.ends, end) - 1]
        return table

    def seen_now(self) -> Frames:
        """Return other frames with the same accumulators, from which frames can be removed."""
        seen = Frames(self.op, self._keyed)
        seen._tables = self._tables.copy()
        seen.ends = self.ends.copy()
        return seen

    def any_within(self, after: int, last: int) -> bool:
        """Tell whether there is a frame whose end is above `after` and at most `last`."""
        return bisect_right(self.ends, after) < bisect_right(self.ends, last)

    def within(self, after: int, last: int) -> list[int]:
        """Return the ends of the frames that are there, from above `after` to `last`."""
        return self.ends[bisect_right(self.ends, after) : bisect_right(self.ends, last)]
