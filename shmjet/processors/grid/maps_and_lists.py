"""Sources and sinks for the maps and lists of the grid.

Must not know: how they are stored; it sees them through `context.grid` (`DataGrid`). Sources are shared out by
partitions or by ranges of indexes; sinks hand over whole batches. After Jet's `readMapP`, `writeMapP`, `readListP`,
`writeListP`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from shmjet.core.grid_calls import extend_once
from shmjet.core.ownership import owners_in
from shmjet.core.processor import Processor, ProcessorContext, ProcessorMetaSupplier
from shmjet.data.errors import ProcessorError
from shmjet.processors.general.base import Supply
from shmjet.processors.general.unit_source import ShareSource, UnitSource
from shmjet.processors.grid.writers import WriteAheadProcessor, WriteProcessor, grid_of

LIST_PAGE = 1024
"""Items of a list that are read at once."""


class ReadMapProcessor(UnitSource):
    """Emits (key, value) of its share of the partitions.

    Under a guarantee each partition is a unit, else the share is one. The number of its entries emitted so far is the
    position, which holds as long as the map does not change.
    """

    state_kind = "read_map"

    def __init__(self, name: str) -> None:
        self._name = name

    def start(self, context: ProcessorContext) -> None:
        """Open the map and ask for its size, once for all processors."""
        self._map = grid_of(context).get_map(self._name)
        self._total = len(self._map) if context.global_index == 0 else 0

    def first_units(self) -> list[Any]:
        """Return the partitions; without a guarantee all of them are one unit."""
        share = self._share()
        return list(share) if self.context.snapshotting_enabled else [tuple(share)]

    def restored_units(self, saved: Mapping[Any, int]) -> list[Any]:
        """Return the partitions that are the processor's now, or the shares that are dealt to it."""
        shares = sorted(unit for unit in saved if isinstance(unit, tuple))
        if not shares:
            return list(self._share())
        return shares[self.context.global_index :: self.context.total_parallelism]

    def open(self, unit: Any, position: int) -> tuple[Iterable[Any], int]:
        """Return the entries of a partition, lazily."""
        entries: Iterable[Any] = self._map.items_of(unit if isinstance(unit, tuple) else (unit,))
        return entries, position

    def describe(self) -> int:
        """Return the size of the map."""
        return len(self._map)

    def check(self, described: int) -> None:
        """Warn when the map has another size than at the time of the snapshot."""
        if described != len(self._map):
            self.context.logger.warning(
                "map %r had %d entries at the time of the snapshot and has %d now; what was changed meanwhile may be "
                "missing, or come twice",
                *(self._name, described, len(self._map)),
            )

    def progress(self) -> tuple[int, int]:
        """Return the entries emitted, and how many there are; the first processor has the number of all."""
        return self.emission.drawn, self._total

    def _share(self) -> Sequence[int]:
        return owners_in(self.context).share_of(self.context, self.context.partition_count)


class ReadListProcessor(ShareSource):
    """Emits its share of a list: pages `index`, `index + parallelism`, ... of the items that it had at the beginning.

    A unit is (index, parallelism, size of the list).
    """

    state_kind = "read_list"

    def __init__(self, name: str) -> None:
        self._name = name
        self._total = 0

    def start(self, context: ProcessorContext) -> None:
        """Open the list."""
        self._list = grid_of(context).get_list(self._name)

    def first_units(self) -> list[Any]:
        """Return the share; what is appended from now on is not read."""
        return [(*unit, len(self._list)) for unit in super().first_units()]

    def open(self, unit: tuple[int, int, int], position: int) -> tuple[Iterable[Any], int]:
        """Return the items from a position on, lazily.

        Raises:
            ProcessorError: the list has become shorter since the job began.
        """
        index, count, size = unit
        if len(self._list) < size:
            raise ProcessorError(
                f"vertex {self.context.vertex_name!r}: list {self._name!r} had {size} items when the job began and has "
                f"{len(self._list)} now; the positions in the snapshot do not hold any more"
            )
        self._total = size if index == 0 else self._total
        pages, left_out = divmod(position, LIST_PAGE)
        return chain.from_iterable(self._pages((index + pages * count) * LIST_PAGE, size, count)), left_out

    def _pages(self, first: int, size: int, count: int) -> Iterator[list[Any]]:
        for at in range(first, size, count * LIST_PAGE):
            yield self._list[at : min(at + LIST_PAGE, size)]

    def progress(self) -> tuple[int, int]:
        """Return the items emitted, and how many there are; the first processor has the number of all."""
        return self.emission.drawn, self._total


class WriteMapProcessor(WriteProcessor):
    """Puts items into a map."""

    def __init__(self, name: str, key_fn: Callable[[Any], Any] | None, value_fn: Callable[[Any], Any] | None) -> None:
        super().__init__()
        self._name = name
        self._key_fn = key_fn
        self._value_fn = value_fn

    def start(self, context: ProcessorContext) -> None:
        """Open the map."""
        self._map = grid_of(context).get_map(self._name)

    def write(self, items: list[Any]) -> None:
        """Put a list."""
        key_fn, value_fn = self._key_fn, self._value_fn
        if key_fn is not None and value_fn is not None:
            items = [(key_fn(item), value_fn(item)) for item in items]
        elif not _is_entry(items[0]):
            raise TypeError(
                f"map {self._name!r}: expected (key, value) items, got {type(items[0]).__name__} {items[0]!r:.80}; "
                "give a key_fn and a value_fn"
            )
        self._map.put_all(items)


class WriteListProcessor(WriteAheadProcessor):
    """Appends items to a list."""

    state_kind = "write_list"

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def start(self, context: ProcessorContext) -> None:
        """Open the list."""
        super().start(context)
        self._list = grid_of(context).get_list(self._name)

    def write(self, items: list[Any]) -> None:
        """Append a list."""
        self._list.extend(items)

    def write_once(self, items: list[Any], marker: bytes, mark: int) -> None:
        """Append a list unless that is done."""
        extend_once(self._list, items, marker, mark)


def _is_entry(item: Any) -> bool:
    """Tell whether an item is a pair; a text or a row of two columns, which come apart in two by chance, is none."""
    return isinstance(item, Sequence) and not isinstance(item, str | bytes) and len(item) == 2


def _checked_name(function: str, name: str) -> str:
    if not isinstance(name, str) or not name:
        raise TypeError(f"{function}: expected a name, got {name!r}")
    return name


def read_map(name: str) -> Callable[[], Processor]:
    """Emit the (key, value) tuples of a map, each once; every processor reads partitions of its own.

    In a job with a processing guarantee the position is the number of entries read of each partition. It holds only
    if the map does not change while the job runs: a restarted job may miss entries of a changed map or read them twice.

    Args:
        name: of the map. A map that does not exist is empty.

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

    A restarted job puts some items again, which changes nothing if their values are the same.

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

    It reads the items that the list has when the job begins. A restarted job goes on behind the last item that its
    snapshot knows; items may be appended meanwhile, but the list must not be cleared.

    Args:
        name: of the list. A list that does not exist is empty.

    Raises:
        TypeError: when `name` is not a non-empty string.

    Example:
        >>> source = read_list("primes")
    """
    supplier = Supply(ReadListProcessor, _checked_name("read_list", name))
    return ProcessorMetaSupplier.prefer_local_parallelism_one(supplier)


def write_list(name: str) -> Callable[[], Processor]:
    """Append each item to a list; the order of one processor's items is kept.

    In an EXACTLY_ONCE job items wait in memory for the next snapshot, which has them, and are appended once when it is
    valid, also if the job is restarted in between. Otherwise they are appended as they come.

    Args:
        name: of the list, made when it does not exist.

    Raises:
        TypeError: when `name` is not a non-empty string.

    Example:
        >>> sink = write_list("primes")
    """
    return Supply(WriteListProcessor, _checked_name("write_list", name))
