"""Items put together: `to_list`, `to_set`, `to_collection`, `to_dict`, `concatenating`, `sorting`.

Must not know: keyed tables. A result in between (`export`) is a copy, the final one is the container itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

from shmjet.aggregate_ops.operation import AggregateOperation, checked_fn, optional_fn
from shmjet.aggregate_ops.tables import ABSENT
from shmjet.core.key_functions import in_order

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)
K = TypeVar("K")
V = TypeVar("V")


def _itself(value: Any) -> Any:
    return value


def _extended(collected: list[Any], items: list[Any]) -> list[Any]:
    collected += items
    return collected


def _list_groups(table: Any, keys: Iterable[Any], items: list[Any]) -> None:
    for key, item in zip(keys, items, strict=True):
        try:
            table[key].append(item)
        except KeyError:
            table[key] = [item]


def to_list() -> AggregateOperation[T, list[T], list[T]]:
    """Collect the items into a list, in the order in which they come.

    Returns:
        An operation whose result is a list.

    Example:
        >>> to_list().aggregate("ba")
        ['b', 'a']
    """
    return AggregateOperation(
        list,
        list.append,
        list.extend,
        export=list.copy,
        finish=_itself,
        accumulate_list=_extended,
        accumulate_groups=_list_groups,
        accumulator="list",
    )


def _updated(collected: set[Any], items: list[Any]) -> set[Any]:
    collected.update(items)
    return collected


def _set_groups(table: Any, keys: Iterable[Any], items: list[Any]) -> None:
    for key, item in zip(keys, items, strict=True):
        try:
            table[key].add(item)
        except KeyError:
            table[key] = {item}


def to_set() -> AggregateOperation[H, set[H], set[H]]:
    """Collect the distinct items into a set.

    Returns:
        An operation whose result is a set.

    Example:
        >>> sorted(to_set().aggregate("bab"))
        ['a', 'b']
    """
    return AggregateOperation(
        set,
        set.add,
        set.update,
        export=set.copy,
        finish=_itself,
        accumulate_list=_updated,
        accumulate_groups=_set_groups,
        accumulator="set",
    )


class _Collecting:
    """The primitives of `to_collection`."""

    def __init__(self, create: Callable[[], Any]) -> None:
        self._create = create
        container = type(create())
        for one, many in (("append", "extend"), ("add", "update")):
            if callable(getattr(container, one, None)) and callable(getattr(container, many, None)):
                self._one, self._many = one, many
                return
        raise TypeError(
            f"to_collection: create must make a container with append and extend, or with add and update, but a "
            f"{container.__name__} has neither"
        )

    def one(self, collected: Any, item: Any) -> None:
        getattr(collected, self._one)(item)

    def whole(self, collected: Any, items: Iterable[Any]) -> Any:
        getattr(collected, self._many)(items)
        return collected

    def copy(self, collected: Any) -> Any:
        return self.whole(self._create(), collected)


def to_collection(create: Callable[[], Any]) -> AggregateOperation[Any, Any, Any]:
    """Collect the items into a container of any type, in the order in which they come.

    Args:
        create: makes an empty container with the methods `append` and `extend` (`collections.deque`), or `add` and
            `update`.

    Returns:
        An operation whose result is the container.

    Raises:
        TypeError: when `create` is not callable, or what it makes has no such methods.

    Example:
        >>> from collections import deque
        >>> to_collection(deque).aggregate([1, 2])
        deque([1, 2])
    """
    kernels = _Collecting(checked_fn("to_collection", "create", create))
    return AggregateOperation(
        create, kernels.one, kernels.whole, export=kernels.copy, finish=_itself, accumulate_list=kernels.whole
    )


class _Entries:
    """The primitives of `to_dict`."""

    def __init__(self, key_fn: Any, value_fn: Any, merge_fn: Callable[[Any, Any], Any] | None) -> None:
        self._key_fn = key_fn
        self._value_fn = value_fn
        self._merge_fn = merge_fn

    def one(self, entries: dict[Any, Any], item: Any) -> None:
        key_fn, value_fn = self._key_fn, self._value_fn
        self.put(entries, item if key_fn is None else key_fn(item), item if value_fn is None else value_fn(item))

    def put(self, entries: dict[Any, Any], key: Any, value: Any) -> None:
        before = entries.setdefault(key, ABSENT)
        if before is ABSENT:
            entries[key] = value
        elif self._merge_fn is not None:
            entries[key] = self._merge_fn(before, value)
        else:
            raise ValueError(
                f"to_dict: the key {key!r} came twice, with the values {before!r} and {value!r}; "
                "give a merge_fn that makes one of two, or collect them by grouping_by"
            )

    def merge(self, entries: dict[Any, Any], other: dict[Any, Any]) -> None:
        for key, value in other.items():
            self.put(entries, key, value)


def to_dict(
    key_fn: Callable[[T], K] | str | None,
    value_fn: Callable[[T], V] | str | None,
    merge_fn: Callable[[V, V], V] | None = None,
) -> AggregateOperation[T, dict[K, V], dict[K, V]]:
    """Collect entries into a dict.

    Args:
        key_fn: key of an item (None: the item itself).
        value_fn: value of an item (None: the item itself).
        merge_fn: `(value, later value) -> value` for two items with one key. None: that is an error.

    Returns:
        An operation whose result is a dict.

    Raises:
        TypeError: when a function is not callable. Without `merge_fn` a key that comes twice makes the job fail with
            a ValueError that names the key and both values.

    Example:
        >>> to_dict(str.lower, len, max).aggregate(["a", "bb", "A"])
        {'a': 1, 'bb': 2}
    """
    kernels = _Entries(
        optional_fn("to_dict", "key_fn", key_fn),
        optional_fn("to_dict", "value_fn", value_fn),
        None if merge_fn is None else checked_fn("to_dict", "merge_fn", merge_fn),
    )
    return AggregateOperation(dict, kernels.one, kernels.merge, export=dict.copy, finish=_itself, accumulator="dict")


class _Text:
    """The result of `concatenating`; its accumulator is the list of pieces."""

    def __init__(self, delimiter: str, prefix: str, suffix: str) -> None:
        self._delimiter = delimiter
        self._prefix = prefix
        self._suffix = suffix

    def joined(self, pieces: list[str]) -> str:
        return f"{self._prefix}{self._delimiter.join(pieces)}{self._suffix}"


def _add_text(pieces: list[str], item: Any) -> None:
    if not isinstance(item, str):
        raise TypeError(f"concatenating: expected text, got {type(item).__name__}: {item!r:.80}; use mapping(str, ...)")
    pieces.append(item)


def _add_texts(pieces: list[str], items: list[Any]) -> list[str]:
    for item in items:
        if not isinstance(item, str):
            _add_text(pieces, item)
    pieces += items
    return pieces


def concatenating(delimiter: str = "", prefix: str = "", suffix: str = "") -> AggregateOperation[str, list[str], str]:
    """Join texts, in the order in which they come.

    Args:
        delimiter: put between any two.
        prefix: put in front of the result.
        suffix: put behind it.

    Returns:
        An operation whose result is a str.

    Raises:
        TypeError: when an argument is not a str. An item that is not a str makes the job fail.

    Example:
        >>> concatenating(", ", "[", "]").aggregate("ab")
        '[a, b]'
    """
    for name, text in (("delimiter", delimiter), ("prefix", prefix), ("suffix", suffix)):
        if not isinstance(text, str):
            raise TypeError(f"concatenating: {name} must be a str, got {type(text).__name__}: {text!r}")
    result = _Text(delimiter, prefix, suffix)
    return AggregateOperation(
        list, _add_text, list.extend, export=result.joined, accumulate_list=_add_texts, accumulator="list of texts"
    )


class _Order:
    """The results of `sorting`."""

    def __init__(self, key: Callable[[Any], Any] | None, reverse: bool) -> None:
        self._key = key
        self._reverse = reverse

    def export(self, items: list[Any]) -> list[Any]:
        return in_order(self._key, items, self._reverse)


def sorting(
    key: Callable[[T], Any] | str | None = None, reverse: bool = False
) -> AggregateOperation[T, list[T], list[T]]:
    """Collect the items into a sorted list; equal ones in the order in which they come.

    Args:
        key: what items are compared by (None: themselves). NaN comes last.
        reverse: descending order; NaN still comes last.

    Returns:
        An operation whose result is a list.

    Raises:
        TypeError: when `key` is neither None nor callable.

    Example:
        >>> sorting(len).aggregate(["bb", "a"])
        ['a', 'bb']
    """
    order = _Order(optional_fn("sorting", "key", key), bool(reverse))
    return AggregateOperation(
        list,
        list.append,
        list.extend,
        export=order.export,
        finish=order.export,
        accumulate_list=_extended,
        accumulate_groups=_list_groups,
        accumulator="list",
    )
