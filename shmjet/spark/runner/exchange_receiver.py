"""The receiving half of exchanges: the blocks of a partition become lists of items in an order that is always the same.

Must not know RDDs or processors.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from shmjet.spark.runner.blocks import ITEMS, OrderedBlocks, place_of, unpack


def received(blocks: Iterable[bytes], edges: Sequence[int]) -> Iterator[tuple[int, list[Any]]]:
    """Return (ordinal, items), edge by edge, then by the partition that they came from, then as they left it.

    Args:
        blocks: of one partition, in any order.
        edges: the inbound ordinals, those first that are read first.

    Example:
        >>> from shmjet.spark.runner.blocks import pack
        >>> list(received([pack([3], 0), pack([2], 1, 1), pack([1], 1, 0)], edges=[1, 0]))
        [(1, [1, 2]), (0, [3])]
    """
    ranks = {ordinal: rank for rank, ordinal in enumerate(edges)}
    waiting: list[Any] = []
    current = -1
    for block in OrderedBlocks(blocks, ranks.__getitem__):
        ordinal, _, _ = place_of(block)
        if waiting and (ordinal != current or len(waiting) >= ITEMS):
            yield current, waiting
            waiting = []
        current = ordinal
        waiting = waiting + unpack(block) if waiting else unpack(block)
    if waiting:
        yield current, waiting


def merged(blocks: Iterable[bytes], order_key: Callable[[Any], Any] | None) -> Iterator[list[Any]]:
    """Return the items of sorted runs, one from each source partition, as one sorted run.

    Equal items stand in the order of their source partitions.

    Example:
        >>> from shmjet.spark.runner.blocks import pack
        >>> list(merged([pack([1, 4], 0, 0), pack([2], 0, 1), pack([5], 0, 0, 1)], None))
        [[1, 2, 4, 5]]
    """
    runs: dict[int, list[list[Any]]] = {}
    for block in OrderedBlocks(blocks, lambda _: 0):
        runs.setdefault(place_of(block)[1], []).append(unpack(block))
    flows = [(item for items in run for item in items) for run in runs.values()]
    flow = flows[0] if len(flows) == 1 else heapq.merge(*flows, key=order_key)
    while items := list(islice(flow, ITEMS)):
        yield items


def bounds_of(samples: Iterable[Sequence[Any]], targets: int, order_key: Callable[[Any], Any] | None) -> list[Any]:
    """Return what parts sorted items into about equal ranges.

    Args:
        samples: some items of each sorted run, evenly spaced.
        targets: how many ranges; there are fewer when there are few items.

    Returns:
        one key less than there are ranges, ascending.

    Example:
        >>> bounds_of([[1, 2, 3], [4, 5, 6]], 3, None)
        [3, 5]
    """
    found = sorted((item for items in samples for item in items), key=order_key)
    places = {len(found) * number // targets for number in range(1, targets)} - {0}
    return [found[place] if order_key is None else order_key(found[place]) for place in sorted(places)]
