"""Distinct items.

Must not know: routing; the inbound edge is partitioned by the same key. Items are emitted as soon as they are met, so
it works on streams too, with memory for every key met.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any

from shmjet.core.key_functions import KeyFn, keys_of, named_unhashable, plain
from shmjet.core.processor import Processor
from shmjet.processors.general.base import Supply, TransformingProcessor
from shmjet.processors.general.state_keys import with_one_nan


class DistinctProcessor(TransformingProcessor):
    """Emits the first item of each key."""

    state_kind = "distinct"

    def __init__(self, key_fn: KeyFn) -> None:
        self._key_fn = key_fn
        self._seen: set[Any] = set()

    def transform(self, items: list[Any]) -> list[Any]:
        """Return what is new in a list."""
        keys = keys_of(self._key_fn, items)
        try:
            return self._fresh(keys, items)
        except TypeError as error:
            raise named_unhashable(error, keys) from error.__cause__

    def _fresh(self, keys: list[Any], items: list[Any]) -> list[Any]:
        seen = self._seen
        if keys is items:  # and none of them is NaN
            fresh = [item for item in dict.fromkeys(keys) if item not in seen]
            seen.update(fresh)
        else:
            fresh = []
            for key, item in zip(keys, items, strict=True):
                if key not in seen:
                    seen.add(key)
                    fresh.append(item)
        return fresh

    def saved_entries(self) -> Iterable[tuple[Any, Any]]:
        """Return the keys met."""
        return zip(self._seen, repeat(None))

    def restore_entries(self, entries: list[tuple[Any, Any]]) -> None:
        """Add keys to those met."""
        self._seen.update(key for key, _ in with_one_nan(entries))


def distinct(key_fn: KeyFn = None) -> Callable[[], Processor]:
    """Emit the first item of each key, at once.

    Args:
        key_fn: key of an item (None: the item itself); keys are hashable, and `1 == 1.0 == True` are one key.

    Raises:
        TypeError: when `key_fn` is neither None nor callable.

    Example:
        >>> from shmjet.testing import verify_processor
        >>> verify_processor(distinct(str.lower)).inputs(["a", "A", "b"]).expect(["a", "b"])
    """
    return Supply(DistinctProcessor, plain(key_fn))
