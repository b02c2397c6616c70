"""Estimates of the memory that items take; a processor spills items to disk by them.

Must not know: what is done about it. Python has no cheap exact answer; a sample and the sizes that objects give of
themselves are right within a small factor for plain data. What several items share is counted for each of them.
"""

from __future__ import annotations

from itertools import chain, islice
from sys import getsizeof
from typing import Any

SAMPLE = 16
"""Items of a list that are measured."""

_SLOT = 8
"""Bytes of the list's reference to an item."""

_ATOMS = frozenset((int, float, str, bytes, bool, type(None)))
_MOST_PARTS = 64
_DEEPEST = 6


def memory_size(items: list[Any]) -> int:
    """Return the bytes that a list of items takes, estimated from a sample.

    Example:
        >>> from sys import getsizeof
        >>> memory_size(["x" * 951] * 100) == 100 * (getsizeof("x" * 951) + 8)
        True
    """
    count = len(items)
    if count <= SAMPLE:
        return sum(map(size_of, items)) + _SLOT * count
    step = count // SAMPLE
    sample = items[::step]
    return count * (sum(map(size_of, sample)) // len(sample) + _SLOT)


def size_of(item: Any, depth: int = 0) -> int:
    """Return the bytes of an object with its parts, those of a large container by a sample of them."""
    size = getsizeof(item, 64)
    if type(item) in _ATOMS or depth >= _DEEPEST:
        return size
    if isinstance(item, dict):
        pairs = islice(item.items(), _MOST_PARTS)
        return size + _parts(list(chain.from_iterable(pairs)), 2 * len(item), depth)
    if isinstance(item, (tuple, list, set, frozenset)):
        return size + _parts(list(islice(item, _MOST_PARTS)), len(item), depth)
    attributes = getattr(item, "__dict__", None)
    if isinstance(attributes, dict):
        size += getsizeof(attributes)
        size += _parts(list(islice(attributes.values(), _MOST_PARTS)), len(attributes), depth)
    return size


def _parts(sample: list[Any], count: int, depth: int) -> int:
    return sum(size_of(part, depth + 1) for part in sample) * count // len(sample) if sample else 0
