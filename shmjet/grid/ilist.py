"""IList: a list that all processes of an instance can append to and read.

A list lies in one environment, so that the order of its items is the order in which its writers committed. What one
`extend()` brings is stored in blocks of up to a few thousand items under the index of their first item: encoding
happens before the transaction, which then only learns the list's size and adds the blocks behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from operator import index as as_index
from typing import Any, NamedTuple, NoReturn, TypeVar, overload

from shmjet._native import index_of_special
from shmjet.grid.blobs import BlobVanishedError, Vanished, missing
from shmjet.grid.disk_errors import DiskErrors
from shmjet.grid.entries import EntryCodec
from shmjet.grid.errors import NotOnDiskError
from shmjet.grid.layout import INDEX
from shmjet.grid.scan import of_one_store
from shmjet.grid.table import TRANSACTION_BYTES, Once, Table

T = TypeVar("T")

_SLICE = 8192
"""Items that extend() encodes before it stores them."""
_PLAIN = frozenset((str, int, float, bytes, bool))


class _Block(NamedTuple):
    prefix: bytes
    first: int
    items: list[Any]


class IList(Sequence[T]):
    """A list shared by the client, all workers and all jobs of an instance; get one with `jet.get_list(name)`.

    It grows at its end and is read anywhere. Items are anything that can be pickled except None, and each read
    gives fresh copies. The items of one `extend` keep their order; between writers the order of commits decides, so
    that a long `extend` may have items of others in between.

    Iteration is streamed and sees items appended meanwhile; when the list is cleared meanwhile, it goes on with what is
    there behind its place, or ends.

    Any operation may raise `GridError` when the instance is gone, and a write `GridFullError`. In a cluster
    `MemberLostError` says that the member which had the list was lost meanwhile.

    Example:
        >>> primes = jet.get_list("primes")                 # doctest: +SKIP
        >>> primes.extend([2, 3, 5])                        # doctest: +SKIP
        >>> primes[-1], primes[:2], len(primes)             # doctest: +SKIP
        (5, [2, 3], 3)
    """

    def __init__(self, name: str, table: Table, codec: EntryCodec) -> None:
        self._name = name
        self._table = table
        self._codec = codec
        self._last: _Block | None = None

    @property
    def name(self) -> str:
        """The list's name."""
        return self._name

    def append(self, item: T) -> None:
        """Add one item. Atomic.

        Raises:
            TypeError: it is None, or cannot be pickled (`ItemEncodingError`).
        """
        self.extend([item])

    def extend(self, items: Iterable[T]) -> None:
        """Add many items: the fast way. Others see them arrive in portions; the iterable is consumed piece by piece.

        Raises:
            TypeError: one is None, or cannot be pickled (`ItemEncodingError`); the portions before it stay.
        """
        source, errors = iter(items), DiskErrors()
        while portion := list(islice(source, _SLICE)):
            none = index_of_special(portion, 0, type(None))
            if none >= 0:
                raise TypeError(f"{self!r}: an item must not be None (item {none} of this portion)")
            errors.result_of(partial(self._append, portion))
        errors.report()

    def _extend_once(self, items: list[T], marker: bytes, mark: int) -> bool:
        """Add items in one transaction, unless that is done; for sinks that repeat it after a restart.

        Args:
            items: at most a few thousand.
            marker, mark: see `table.Once`.

        Returns:
            False when they had been added before.
        """
        blobs: list[bytes] = []
        is_new = False
        try:
            blocks = list(self._codec.blocks(items, blobs))
            is_new = self._table.append(blocks, with_blobs=bool(blobs), once=Once(marker, mark))
        except NotOnDiskError:  # it is stored
            is_new = True
            raise
        finally:
            if not is_new:
                self._codec.blobs.delete(blobs)
        return is_new

    def clear(self) -> None:
        """Remove all items. Atomic."""
        self._table.drop(keep_name=True)

    def destroy(self) -> None:
        """Remove the list; its name may be used again at once, also through this object."""
        self._table.drop(keep_name=False)

    def __len__(self) -> int:
        return self._table.size()

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step < 0:
                chosen = range(start, stop, step)
                return list(self._between(chosen[-1], start + 1))[::-1][::-step] if chosen else []
            return list(islice(self._between(start, stop), 0, None, step))
        index = as_index(index)
        vanished = Vanished()
        while True:
            size = len(self)
            at = index + size if index < 0 else index
            if not 0 <= at < size:
                raise IndexError(f"{self!r}: index {index} is out of range, it has {size} items")
            try:
                return self._at(at)
            except BlobVanishedError as error:  # cleared between the two reads
                vanished.note(error, f"item {index} of list {self._name!r}")
            except LookupError:
                continue

    def __iter__(self) -> Iterator[T]:
        return self._from(0)

    def __repr__(self) -> str:
        return f"IList({self._name!r})"

    def _repr_html_(self) -> str:
        """Show its first items, in a notebook."""
        from shmjet.data.html_tables import MOST_ROWS
        from shmjet.grid.collection_html import collection_html

        return collection_html(repr(self), lambda: (len(self), list(islice(self, MOST_ROWS))))

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be pickled; processors get it with context.grid.get_list({self._name!r})")

    def _append(self, items: list[T]) -> None:
        blobs: list[bytes] = []
        errors = DiskErrors()
        try:
            waiting: list[tuple[int, bytes]] = []
            size = 0
            for count, block in self._codec.blocks(items, blobs):
                waiting.append((count, block))
                size += len(block)
                if size >= TRANSACTION_BYTES:
                    errors.result_of(partial(self._table.append, waiting, with_blobs=bool(blobs)))
                    waiting, size = [], 0
                    blobs.clear()
            if waiting:
                errors.result_of(partial(self._table.append, waiting, with_blobs=bool(blobs)))
        except BaseException:
            self._codec.blobs.delete(blobs)
            raise
        errors.report()

    def _at(self, index: int) -> T:
        """Return one item, or raise LookupError. The last block is remembered if its items cannot be changed."""
        last = self._last
        known = None if last is None else (last.prefix, last.first, len(last.items))
        block = self._table.block_of(index, known)
        if block is None:
            raise LookupError(index)
        if last is not None and not block.data:
            item: T = last.items[index - last.first]
            return item
        items = self._codec.items(block.data)
        if type(items[index - block.first]) in _PLAIN:
            self._last = _Block(block.prefix, block.first, items)
        return items[index - block.first]  # type: ignore[no-any-return]

    def _between(self, start: int, stop: int) -> Iterator[T]:
        return islice(self._from(start), max(0, stop - start))

    def _from(self, start: int) -> Iterator[T]:
        """Yield the items from index `start` on."""
        if start:
            start, skip = self._block_of(start)
        else:
            skip = 0
        for page in of_one_store(self._table.pages(INDEX.pack(start), limit=16)):
            for block in page.values:
                try:
                    items = self._codec.items(block)
                except BlobVanishedError as error:
                    again = self._table.block_of(start, None)
                    if again is not None and again.data == block:
                        raise missing(error, f"item {start} of list {self._name!r}") from error
                    continue  # the list has been cleared
                yield from items[skip:] if skip else items
                start += len(items)
                skip = 0

    def _block_of(self, index: int) -> tuple[int, int]:
        """Return the first index of the block that holds `index`, and the distance to it."""
        block = self._table.block_of(index)
        return (index, 0) if block is None else (block.first, index - block.first)
