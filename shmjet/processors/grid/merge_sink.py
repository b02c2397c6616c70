"""A sink that merges values into those a map has already. After Jet's `mapWithMerging`.

Two steps: the first makes pairs and merges those of one list, the second, to which pairs come by key, merges them into
the map. So only one processor ever reads and writes an entry. Must not know: how the map stores them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from shmjet.core.dag import DAG
from shmjet.core.edge import between
from shmjet.core.grid_calls import put_once
from shmjet.core.processor import ProcessorContext
from shmjet.core.vertex import Vertex
from shmjet.processors.general.base import Supply, TransformingProcessor
from shmjet.processors.grid.writers import WriteAheadProcessor, grid_of

Merge = Callable[[Any, Any], Any]


class PairProcessor(TransformingProcessor):
    """Makes (key, value) of each item, and one of those with equal keys in a list."""

    def __init__(
        self, key_fn: Callable[[Any], Any] | None, value_fn: Callable[[Any], Any] | None, merge_fn: Merge
    ) -> None:
        self._key_fn = key_fn
        self._value_fn = value_fn
        self._merge_fn = merge_fn

    def transform(self, items: list[Any]) -> list[Any]:
        """Return pairs with different keys."""
        key_fn, value_fn = self._key_fn, self._value_fn
        if key_fn is not None and value_fn is not None:
            items = [(key_fn(item), value_fn(item)) for item in items]
        return list(merged(items, self._merge_fn).items())


class WriteMergingProcessor(WriteAheadProcessor):
    """Merges pairs into a map; all pairs of a key come to the same processor."""

    state_kind = "write_map with merge_fn"

    def __init__(self, name: str, merge_fn: Merge) -> None:
        super().__init__()
        self._name = name
        self._merge_fn = merge_fn

    def start(self, context: ProcessorContext) -> None:
        """Open the map."""
        super().start(context)
        self._map = grid_of(context).get_map(self._name)

    def write(self, items: list[Any]) -> None:
        """Merge a list; a result of None removes the entry."""
        values = self._new_values(items)
        gone = [key for key, value in values.items() if value is None]
        for key in gone:
            del values[key]
            self._map.pop(key, None)
        self._map.put_all(values)

    def write_once(self, items: list[Any], marker: bytes, mark: int) -> None:
        """Merge a list unless that is done; what is done in some environments of the map is left out in these."""
        put_once(self._map, self._new_values(items), marker, mark)

    def _new_values(self, items: list[Any]) -> dict[Any, Any]:
        merge = self._merge_fn
        values = merged(items, merge)
        for key, old in self._map.get_all(values).items():
            values[key] = merge(old, values[key])
        return values


def merged(pairs: Iterable[tuple[Any, Any]], merge: Merge) -> dict[Any, Any]:
    """Return a dict of pairs; the values of equal keys are merged, the earlier one first.

    Example:
        >>> merged([("a", 1), ("b", 2), ("a", 3)], lambda old, new: old + new)
        {'a': 4, 'b': 2}
    """
    values: dict[Any, Any] = {}
    for key, value in pairs:
        values[key] = merge(values[key], value) if key in values else value
    return values


def add_merging(
    dag: DAG,
    name: str,
    parallelism: int,
    *,
    map_name: str,
    key_fn: Callable[[Any], Any] | None,
    value_fn: Callable[[Any], Any] | None,
    merge_fn: Merge,
) -> Vertex:
    """Add both steps to a DAG and return the first one."""
    pairs = dag.new_unique_vertex(f"{name}-pairs", Supply(PairProcessor, key_fn, value_fn, merge_fn), parallelism)
    sink = dag.new_unique_vertex(name, Supply(WriteMergingProcessor, map_name, merge_fn), parallelism)
    dag.edge(between(pairs, sink).partitioned(_key).distributed())
    return pairs


def _key(pair: tuple[Any, Any]) -> Any:
    return pair[0]
