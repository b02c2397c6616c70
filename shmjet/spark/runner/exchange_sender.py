"""The sending half of exchanges: lists of items become blocks for target partitions, by key, evenly, or all for one.

The partition of a key is the engine's: murmur3 of its canonical bytes, modulo the number of partitions of the stream;
partition `p` is done by task `p` modulo their number. Must not know RDDs.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from shmjet._native import index_of_special, split
from shmjet.core.column_key import ColumnKey
from shmjet.core.key_functions import KeyFn
from shmjet.core.keys import canonical_bytes
from shmjet.data.columnar import Columnar
from shmjet.data.errors import BatchError
from shmjet.spark.runner.blocks import HEAVY, ITEMS, pack, sized, weight

Targeted = tuple[int, bytes]
"""Target partition and block."""


class _Shares:
    """What waits for each target until it is worth a block."""

    def __init__(self, targets: int, ordinal: int, source: int) -> None:
        self._waiting: list[list[Any]] = [[] for _ in range(targets)]
        self._sequences = [0] * targets
        self._ordinal = ordinal
        self._source = source

    def add(self, target: int, items: list[Any]) -> Iterator[Targeted]:
        """Add items for a target; give its block when it is full."""
        waiting = self._waiting[target]
        waiting += items
        if len(waiting) >= ITEMS or weight(waiting) >= HEAVY:
            self._waiting[target] = []
            yield from self._blocks(target, waiting)

    def rest(self) -> Iterator[Targeted]:
        """Give what is left."""
        for target, waiting in enumerate(self._waiting):
            self._waiting[target] = []
            yield from self._blocks(target, waiting)

    def _blocks(self, target: int, items: list[Any]) -> Iterator[Targeted]:
        for piece in sized([items]):
            sequence, self._sequences[target] = self._sequences[target], self._sequences[target] + 1
            yield target, pack(piece, self._ordinal, self._source, sequence)


def by_key(
    chunks: Iterable[list[Any]],
    key_fn: KeyFn,
    count: int,
    targets: int,
    ordinal: int,
    source: int,
    *,
    tells_schemas: bool = False,
) -> Iterator[Targeted]:
    """Deal items by the partitions of their keys.

    Args:
        chunks: the items, or batches when `key_fn` is a `ColumnKey`.
        key_fn: key of an item; None: the item itself.
        count: partitions of the stream.
        targets: tasks that share them.
        ordinal, source: see `blocks.pack`.
        tells_schemas: every target is told which columns the batches have, by batches without rows.

    Raises:
        TypeError: a key has no canonical bytes. BatchError: a batch in which the key is not a column.

    Example:
        >>> from shmjet.core.keys import partition_id
        >>> from shmjet.spark.runner.blocks import unpack
        >>> parts = {target: unpack(block) for target, block in by_key([["a", "b", "c"]], None, 271, 2, 0, 0)}
        >>> all(partition_id(item) % 2 == target for target, items in parts.items() for item in items)
        True
    """
    shares = _Shares(targets, ordinal, source)
    heads: Any = None
    if tells_schemas:
        from shmjet.data.schema_heads import SchemaHeads  # only here, as it needs numpy

        heads = SchemaHeads()
    table = array("H", [partition % targets for partition in range(count)])
    for items in chunks:
        for run in _runs(items):
            if isinstance(run[0], Columnar):
                dealt: Iterable[tuple[int, list[Any]]] = _rows_by_key(run[0], key_fn, count, targets)
                head = None if heads is None else heads.before(run[0])
                if head is not None:
                    dealt = chain(((target, [head]) for target in range(targets)), dealt)
            else:
                keys = run if key_fn is None else list(map(key_fn, run))
                found = split(run, keys, count, table, targets, canonical_bytes)
                dealt = ((target, share) for target, share in enumerate(found) if share)
            for target, share in dealt:
                yield from shares.add(target, share)
    yield from shares.rest()


def _runs(items: list[Any]) -> Iterator[list[Any]]:
    """Cut a list so that each batch is alone."""
    start, at = 0, index_of_special(items, 0, Columnar)
    while at >= 0:
        if at > start:
            yield items[start:at]
        yield items[at : at + 1]
        start = at + 1
        at = index_of_special(items, start, Columnar)
    if start < len(items):
        yield items[start:] if start else items


def _rows_by_key(batch: Any, key_fn: KeyFn, count: int, targets: int) -> Iterator[tuple[int, list[Any]]]:
    """Deal the rows of a batch."""
    if not isinstance(key_fn, ColumnKey):
        raise BatchError(
            "a Batch cannot be spread by a function of an item; say column('name') for the key, so that each of its "
            "rows goes to the owner of its key"
        )
    import numpy as np

    from shmjet.data.column_keys import hash_rows

    owners = hash_rows(batch, key_fn.names) % np.uint32(count) % np.uint32(targets)
    for target in np.unique(owners).tolist():
        yield target, [batch.take(np.flatnonzero(owners == target))]


def evenly(chunks: Iterable[list[Any]], targets: int, ordinal: int, source: int) -> Iterator[Targeted]:
    """Deal items to all targets in turn, beginning with another one for each source."""
    shares = _Shares(targets, ordinal, source)
    turn = source
    for items in chunks:
        for offset in range(min(targets, len(items))):
            yield from shares.add((turn + offset) % targets, items[offset::targets])
        turn += len(items)
    yield from shares.rest()


def to_one(chunks: Iterable[list[Any]], ordinal: int, source: int) -> Iterator[Targeted]:
    """Send all items to the only target."""
    shares = _Shares(1, ordinal, source)
    for items in chunks:
        yield from shares.add(0, items)
    yield from shares.rest()


def by_range(
    chunks: Iterable[list[Any]], order_key: Callable[[Any], Any] | None, bounds: list[Any], ordinal: int, source: int
) -> Iterator[Targeted]:
    """Deal items that are sorted: those below the first bound to target 0, and so on.

    Example:
        >>> from shmjet.spark.runner.blocks import unpack
        >>> [(target, unpack(block)) for target, block in by_range([[1, 4, 9]], None, [4], 0, 0)]
        [(0, [1]), (1, [4, 9])]
    """
    shares = _Shares(len(bounds) + 1, ordinal, source)
    for items in chunks:
        runs: dict[int, list[Any]] = {}
        for item in items:
            target = bisect_right(bounds, item if order_key is None else order_key(item))
            runs.setdefault(target, []).append(item)
        for target, run in runs.items():
            yield from shares.add(target, run)
    yield from shares.rest()
