"""The entries of a map as a stream: page after page of its tables, turned into keys and pairs as they are asked for.

Holds about a page at a time and no transaction between pages, see `scan`. A large value is read when its turn comes;
if it has been replaced meanwhile, its key is looked up. Must not write, nor know what users call an iteration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import index, itemgetter
from typing import Any

from shmjet.grid.blobs import BlobVanishedError
from shmjet.grid.entries import EntryCodec
from shmjet.grid.layout import PARTITION
from shmjet.grid.map_entries import MapEntries
from shmjet.grid.scan import Page, of_one_store
from shmjet.grid.table import Table

_MISSING: Any = object()
_first: Any = itemgetter(0)
_second: Any = itemgetter(1)


class MapScan:
    """The streams of one map. No Python code runs for an entry, but for large values.

    Args:
        tables: of the map, one for each environment.
        codec: turns entries into objects.
        entries: where a value that was replaced meanwhile is looked up.
    """

    def __init__(self, tables: Sequence[Table], codec: EntryCodec, entries: MapEntries) -> None:
        self._tables = tables
        self._codec = codec
        self._entries = entries

    def keys(self) -> Iterator[Any]:
        """Yield all keys; values are not looked at."""
        return chain.from_iterable(map(_first, self._codec.keys_of(page.values)) for page in self._all())

    def pairs(self) -> Iterator[tuple[Any, Any]]:
        """Yield all (key, value) pairs."""
        return chain.from_iterable(self._pairs_of(self._all()))

    def values(self) -> Iterator[Any]:
        """Yield all values."""
        return map(_second, self.pairs())

    def pairs_of(self, partitions: Iterable[int]) -> Iterator[tuple[Any, Any]]:
        """Yield the (key, value) pairs of some partitions; ValueError when one does not exist."""
        numbers = (int(index(partition)) for partition in partitions)  # also those of numpy, and bools
        return chain.from_iterable(self._pairs_of(of_one_store(self._pages_of(numbers))))

    def _pages_of(self, partitions: Iterable[int]) -> Iterator[Page]:
        for partition in partitions:
            if not 0 <= partition < self._codec.partition_count:
                raise ValueError(f"partition {partition} is not one of 0 to {self._codec.partition_count - 1}")
            table = self._tables[partition % len(self._tables)]
            yield from table.pages(PARTITION.pack(partition), PARTITION.pack(partition + 1))

    def _all(self) -> Iterator[Page]:
        return of_one_store(page for table in self._tables for page in table.pages())

    def _pairs_of(self, pages: Iterable[Page]) -> Iterator[Iterable[tuple[Any, Any]]]:
        for page in pages:
            if page.has_blobs:
                yield self._one_by_one(page.values)  # a page of large values is not held in memory at once
            else:
                yield self._codec.pairs(page.values)

    def _one_by_one(self, stored: list[bytes]) -> Iterator[tuple[Any, Any]]:
        for entry in stored:
            try:
                yield self._codec.pairs([entry])[0]
            except BlobVanishedError:
                key = self._codec.keys_of([entry])[0][0]
                value = self._entries.get(key, _MISSING)
                if value is not _MISSING:
                    yield key, value
