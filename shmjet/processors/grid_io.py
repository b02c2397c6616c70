"""Sources and sinks for the maps and lists of the grid.

Must not know: how they are stored; it sees them through `context.grid` (`DataGrid`). Sources are shared out by
partitions or by ranges of indexes; sinks hand over whole batches. After Jet's `readMapP`, `writeMapP`, `readListP`,
`writeListP`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from shmjet.core.errors import ProcessorError
from shmjet.core.processor import Processor, ProcessorContext, ProcessorMetaSupplier
from shmjet.processors.bulk import BulkProcessor, Supply

LIST_PAGE = 1024
"""Items of a list that are read at once."""

WRITE_SLICE = 4096
"""Items that are written at once, at most: a few milliseconds."""


def _grid(context: ProcessorContext) -> Any:
    if context.grid is None:
        raise ProcessorError(f"vertex {context.vertex_name!r}: there are no maps and lists where it runs")
    return context.grid


class ReadMapProcessor(BulkProcessor):
    """Emits (key, value) of its share of the partitions."""

    def __init__(self, name: str) -> None:
        self._name = name

    def results(self) -> Iterable[Any]:
        """Return the entries, lazily."""
        context = self.context
        share = range(context.global_index, context.partition_count, context.total_parallelism)
        entries: Iterable[Any] = _grid(context).get_map(self._name).items_of(share)
        return entries


class ReadListProcessor(BulkProcessor):
    """Emits its share of a list: pages `index`, `index + parallelism`, ..."""

    def __init__(self, name: str) -> None:
        self._name = name

    def results(self) -> Iterable[Any]:
        """Return the items, lazily; what is appended meanwhile is not read."""
        return chain.from_iterable(self._pages(_grid(self.context).get_list(self._name)))

    def _pages(self, items: Any) -> Iterator[list[Any]]:
        first = self.context.global_index * LIST_PAGE
        for at in range(first, len(items), self.context.total_parallelism * LIST_PAGE):
            yield items[at : at + LIST_PAGE]


class WriteMapProcessor(BulkProcessor):
    """Puts items into a map, batch by batch."""

    def __init__(self, name: str, key_fn: Callable[[Any], Any] | None, value_fn: Callable[[Any], Any] | None) -> None:
        self._name = name
        self._key_fn = key_fn
        self._value_fn = value_fn

    def start(self, context: ProcessorContext) -> None:
        """Open the map."""
        self._map = _grid(context).get_map(self._name)

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Write a list."""
        key_fn, value_fn = self._key_fn, self._value_fn
        if key_fn is not None and value_fn is not None:
            items = [(key_fn(item), value_fn(item)) for item in items]
        for at in range(0, len(items), WRITE_SLICE):
            self._map.put_all(items[at : at + WRITE_SLICE] if len(items) > WRITE_SLICE else items)


class WriteListProcessor(BulkProcessor):
    """Appends items to a list, batch by batch."""

    def __init__(self, name: str) -> None:
        self._name = name

    def start(self, context: ProcessorContext) -> None:
        """Open the list."""
        self._list = _grid(context).get_list(self._name)

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Write a list."""
        self._list.extend(items)


def _checked_name(function: str, name: str) -> str:
    if not isinstance(name, str) or not name:
        raise TypeError(f"{function}: expected a name, got {name!r}")
    return name


def read_map(name: str) -> Callable[[], Processor]:
    """Emit the (key, value) tuples of a map, each once; every processor reads partitions of its own.

    Args:
        name: of the map. One that does not exist is empty.

    Raises:
        TypeError: when `name` is not a non-empty string.

    Example:
        >>> source = read_map("counts")
    """
    return Supply(ReadMapProcessor, _checked_name("read_map", name))


def write_map(
    name: str, key_fn: Callable[[Any], Any] | None = None, value_fn: Callable[[Any], Any] | None = None
) -> Callable[[], Processor]:
    """Put each item into a map; of equal keys the last one written stays.

    Args:
        name: of the map, made when it does not exist.
        key_fn, value_fn: key and value of an item; without both, items are (key, value) tuples.

    Raises:
        TypeError: when `name` is not a non-empty string, or only one function is given.

    Example:
        >>> sink = write_map("lengths", key_fn=lambda word: word, value_fn=len)
    """
    if (key_fn is None) != (value_fn is None):
        raise TypeError("write_map: give both key_fn and value_fn, or neither for (key, value) items")
    return Supply(WriteMapProcessor, _checked_name("write_map", name), key_fn, value_fn)


def read_list(name: str) -> ProcessorMetaSupplier:
    """Emit the items of a list, each once; in order with one processor per member, which is the default.

    Args:
        name: of the list. One that does not exist is empty.

    Raises:
        TypeError: when `name` is not a non-empty string.

    Example:
        >>> source = read_list("primes")
    """
    supplier = Supply(ReadListProcessor, _checked_name("read_list", name))
    return ProcessorMetaSupplier.prefer_local_parallelism_one(supplier)


def write_list(name: str) -> Callable[[], Processor]:
    """Append each item to a list; the order of one processor's items is kept.

    Args:
        name: of the list, made when it does not exist.

    Raises:
        TypeError: when `name` is not a non-empty string.

    Example:
        >>> sink = write_list("primes")
    """
    return Supply(WriteListProcessor, _checked_name("write_list", name))
