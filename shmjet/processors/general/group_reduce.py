"""The seeds' two ways to reduce groups: transform an immutable value, or update a mutable container.

Must not know: aggregate operations with two stages (`aggregating_by_key`). After Jet 0.3's `groupAndAccumulate` and
`groupAndCollect`. The inbound edge is partitioned by the same key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from shmjet.core.key_functions import KeyFn, keys_of, plain
from shmjet.core.processor import Processor
from shmjet.processors.general.base import BulkProcessor, Supply
from shmjet.processors.general.state_keys import put_back

_ADVICE = "partition the edge by the key that the items are grouped by"


class _GroupingProcessor(BulkProcessor):
    """Keeps a value per key, and emits (key, value) at the end."""

    _table: defaultdict[Any, Any]

    def results(self) -> Iterable[Any]:
        """Return (key, value) for every key."""
        return self._table.items()

    def saved_entries(self) -> Iterable[tuple[Any, Any]]:
        """Return (key, value) for every key that has not been emitted."""
        return islice(self._table.items(), self.emission.drawn, None)

    def restore_entries(self, entries: list[tuple[Any, Any]]) -> None:
        """Put values back."""
        put_back(self._table, entries, self.context, _ADVICE)


class GroupAndAccumulateProcessor(_GroupingProcessor):
    """Keeps an immutable value per key."""

    state_kind = "group_and_accumulate"

    def __init__(self, key_fn: KeyFn, initial: Any, accumulate: Callable[[Any, Any], Any]) -> None:
        self._key_fn = key_fn
        self._accumulate = accumulate
        self._table = defaultdict(initial if callable(initial) else lambda: initial)

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Fold a list."""
        table, accumulate = self._table, self._accumulate
        for key, item in zip(keys_of(self._key_fn, items), items, strict=True):
            table[key] = accumulate(table[key], item)


class GroupAndCollectProcessor(_GroupingProcessor):
    """Keeps a mutable container per key."""

    state_kind = "group_and_collect"

    def __init__(self, key_fn: KeyFn, container: Callable[[], Any], collect: Callable[[Any, Any], Any]) -> None:
        self._key_fn = key_fn
        self._collect = collect
        self._table = defaultdict(container)

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Collect a list."""
        table, collect = self._table, self._collect
        for key, item in zip(keys_of(self._key_fn, items), items, strict=True):
            collect(table[key], item)


def group_and_accumulate(key_fn: KeyFn, initial: Any, accumulate: Callable[[Any, Any], Any]) -> Callable[[], Processor]:
    """Reduce the items of each key by transforming an immutable value; emit (key, value) at the end.

    Args:
        key_fn: key of an item (None: the item itself).
        initial: the value before a key's first item, or a function without arguments that makes one (`int`,
            `lambda: 0`). A value is shared by all keys, so it must not be mutable.
        accumulate: `(value, item) -> value`.

    Raises:
        TypeError: when a function is not callable, or `initial` is a list, dict, set or bytearray.

    Example:
        >>> from shmjet.testing import verify_processor
        >>> total = group_and_accumulate(lambda word: word[0], 0, lambda n, word: n + len(word))
        >>> verify_processor(total).inputs(["ab", "abc", "x"]).expect([("a", 5), ("x", 1)])
    """
    if isinstance(initial, (list, dict, set, bytearray)):
        raise TypeError(
            f"group_and_accumulate: initial must be an immutable value, got a {type(initial).__name__}; "
            "use group_and_collect for containers"
        )
    if not callable(accumulate):
        raise TypeError(f"group_and_accumulate: accumulate must be callable, got {accumulate!r}")
    return Supply(GroupAndAccumulateProcessor, plain(key_fn), initial, accumulate)


def group_and_collect(
    key_fn: KeyFn, container: Callable[[], Any], collect: Callable[[Any, Any], Any]
) -> Callable[[], Processor]:
    """Reduce the items of each key by updating a mutable container; emit (key, container) at the end.

    Args:
        key_fn: key of an item (None: the item itself).
        container: makes an empty container.
        collect: `(container, item)`, changes the container; what it returns is ignored.

    Raises:
        TypeError: when a function is not callable.

    Example:
        >>> from shmjet.testing import verify_processor
        >>> verify_processor(group_and_collect(len, list, list.append)).inputs(["a", "bb", "c"]).expect(
        ...     [(1, ["a", "c"]), (2, ["bb"])]
        ... )
    """
    for name, fn in (("container", container), ("collect", collect)):
        if not callable(fn):
            raise TypeError(f"group_and_collect: {name} must be callable, got {fn!r}")
    return Supply(GroupAndCollectProcessor, plain(key_fn), container, collect)
