"""Blocks: lists of items as bytes, the form in which they cross from one process to another on Spark.

Spark sees arrays of bytes and never a user's object, so that classes of `__main__` travel as they do in the engine, and
a block costs one record however many items it has. Must not know RDDs or processors.

A block is a header, little-endian, and a payload:

    ordinal u16 | source partition u32 | sequence u32 | form u8 | items u32 | payload

Form 0 is a frame of columns of the item codec (`docs/formats/codec.md`), form 1 a pickle with its buffers
(`docs/formats/frame.md`).
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

from shmjet._native import Codec
from shmjet.data.columnar import Columnar
from shmjet.ring import pickling

ITEMS = 4096
"""Items of a block, at most."""

HEAVY = 4 << 20
"""Bytes of batches after which a block is closed before it has `ITEMS`."""

HELD = 64 << 20
"""Bytes of blocks that wait in memory before they are moved to a file."""

HEAD = struct.Struct("<HIIBI")
_COLUMNS, _PICKLE = 0, 1
_codec = Codec()

Place = tuple[int, int, int]
"""Ordinal, source partition and sequence of a block."""


def pack(items: list[Any], ordinal: int = 0, source: int = 0, sequence: int = 0) -> bytes:
    """Return a list as a block.

    Args:
        items: not empty.
        ordinal: of the edge that they take.
        source: partition that they come from.
        sequence: of the block among those of the same ordinal, source and target.

    Example:
        >>> block = pack([1, "a"], ordinal=2)
        >>> unpack(block), place_of(block)
        ([1, 'a'], (2, 0, 0))
    """
    columns = _codec.encode(items, 0, len(items))
    if columns is not None:
        return HEAD.pack(ordinal, source, sequence, _COLUMNS, len(items)) + columns
    head = HEAD.pack(ordinal, source, sequence, _PICKLE, len(items))
    return b"".join([head, *pickling.dumps_by_value(items)])


def unpack(block: bytes) -> list[Any]:
    """Return the items of a block. Raises ValueError when it is damaged."""
    *_, form, count = HEAD.unpack_from(block)
    with memoryview(block) as view, view[HEAD.size :] as payload:
        if form == _COLUMNS:
            return _codec.decode(payload, count)
        items: list[Any] = pickling.loads(payload)
        return items


def place_of(block: bytes) -> Place:
    """Return where a block belongs among others."""
    ordinal, source, sequence, _, _ = HEAD.unpack_from(block)
    return ordinal, source, sequence


def packed(chunks: Iterable[list[Any]], ordinal: int = 0, source: int = 0) -> Iterator[bytes]:
    """Return lists as blocks, small ones joined and large ones cut."""
    for sequence, items in enumerate(sized(chunks)):
        yield pack(items, ordinal, source, sequence)


def sized(chunks: Iterable[list[Any]]) -> Iterator[list[Any]]:
    """Return the same items in lists that are worth a block and not too large for one.

    Example:
        >>> list(sized([[1, 2], [], [3]]))
        [[1, 2, 3]]
    """
    waiting: list[Any] = []
    for chunk in chunks:
        waiting = waiting + chunk if waiting else chunk
        at = 0
        while len(waiting) - at >= ITEMS or weight(waiting, at) >= HEAVY:
            count = fitting(waiting, at)
            yield waiting[at : at + count]
            at += count
        waiting = waiting[at:] if at else waiting
    if waiting:
        yield waiting


def weight(items: list[Any], at: int = 0) -> int:
    """Return the bytes of the batches from a place on; what begins with another item counts as light."""
    if at >= len(items) or not isinstance(items[at], Columnar):
        return 0
    return sum(item.nbytes for item in items[at:] if isinstance(item, Columnar))


def fitting(items: list[Any], at: int) -> int:
    """Return how many items from a place on make a block: at least one."""
    most = min(ITEMS, len(items) - at)
    if not isinstance(items[at], Columnar):
        return most
    size = 0
    for count in range(most):
        size += getattr(items[at + count], "nbytes", 0)
        if size >= HEAVY:
            return count + 1
    return most


class OrderedBlocks:
    """Blocks that came in any order, given back in that of their places.

    Spark may fetch the outputs of an exchange in another order each time; a task that is done again has to do the same
    again, and some edges are read before others. So all blocks of a partition are held before the first is used, in
    memory up to a limit and then in a file without a name.

    Args:
        rank: of an ordinal; blocks of lower ranks come first.
        limit: bytes held in memory.

    Example:
        >>> blocks = OrderedBlocks([pack([2], 0, 1), pack([1], 0, 0), pack([0], 1)], rank=lambda ordinal: -ordinal)
        >>> [unpack(block) for block in blocks]
        [[0], [1], [2]]
    """

    def __init__(self, blocks: Iterable[bytes], rank: Callable[[int], int], limit: int = HELD) -> None:
        self._file: IO[bytes] | None = None
        self._held: list[tuple[tuple[int, Place], bytes | tuple[int, int]]] = []
        size = 0
        for block in blocks:
            place = place_of(block)
            self._held.append(((rank(place[0]), place), block))
            size += len(block)
            if size >= limit:
                self._spill()
                size = 0
        self._held.sort(key=lambda entry: entry[0])

    def __iter__(self) -> Iterator[bytes]:
        """Give each block once; what is given is held no longer."""
        held, self._held = self._held, []
        held.reverse()
        try:
            while held:
                _, block = held.pop()
                yield block if isinstance(block, bytes) else self._read(*block)
        finally:
            if self._file is not None:
                self._file.close()

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="shmjet-blocks-")  # noqa: SIM115
        self._file.seek(0, 2)
        for number, (key, block) in enumerate(self._held):
            if isinstance(block, bytes):
                self._held[number] = key, (self._file.tell(), len(block))
                self._file.write(block)

    def _read(self, start: int, size: int) -> bytes:
        assert self._file is not None
        self._file.seek(start)
        return self._file.read(size)
