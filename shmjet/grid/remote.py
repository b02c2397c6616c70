"""Tables and large values that lie on another member: the same methods, over operations that a transport carries there.

The other side sees bytes only; `routed` makes maps and lists of them. Each operation costs a round trip; those on many
entries (`put_all`, `get_all`, iteration, `extend`) go in pages of about a megabyte.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from shmjet.data.decoders import from_msgpack
from shmjet.grid.blobs import PIECE_BYTES, STAGED_BYTES, BlobVanishedError, Pieces, read_contents
from shmjet.grid.carried import Stage, staged_block, staged_entry
from shmjet.grid.changes import Entry
from shmjet.grid.divided_table import Count, PartitionsRead
from shmjet.grid.errors import GridError, NotOnDiskError
from shmjet.grid.kept_results import CLIENT_BYTES, OperationId
from shmjet.grid.log import Piece
from shmjet.grid.operations import (
    MOST_ENTRIES,
    NO_PREFIX,
    UNKNOWN,
    Add,
    Append,
    BlockOf,
    Counts,
    DeleteBlobs,
    Drop,
    DropPartitions,
    Find,
    FindAll,
    Numbered,
    PageRead,
    Pop,
    ReadBlob,
    ReadLog,
    ReadPage,
    ReadPartitions,
    ReadPiece,
    Replace,
    Size,
    Sizes,
    StagePiece,
    Swap,
    Write,
    WriteBlob,
)
from shmjet.grid.portions import Survey, portions, survey
from shmjet.grid.scan import FIRST_STEP, LAST_STEP, PAGE_ENTRIES, Page
from shmjet.grid.table import Once
from shmjet.grid.table_reads import Block

if TYPE_CHECKING:
    from typing_extensions import Buffer

Call = Callable[[bytes], bytes]
"""Carries an encoded operation to where the store is, and brings its encoded result."""

PORTION_BYTES = 1 << 20
PORTION_ENTRIES = MOST_ENTRIES
FRESH_NS = 50_000_000
"""For so long a page that was read ahead counts as current."""

Result = TypeVar("Result")
_encode = msgspec.msgpack.Encoder().encode


class NumberedCalls:
    """Asks for what changes something, each time under a number of its own, so that a transport may ask again.

    Args:
        call: carries operations.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self._client = os.urandom(CLIENT_BYTES)
        self._lock = threading.Lock()
        self._last = 0
        self._unanswered: set[int] = set()

    def ask(self, operation: object, kind: type[Result] | None) -> Result:
        """As the function `ask`; the operation is done at most once."""
        with self.number() as number:
            return ask_numbered(self._call, number, operation, kind)

    @contextlib.contextmanager
    def number(self) -> Iterator[OperationId]:
        """Give out a number, which counts as answered behind the block."""
        with self._lock:
            self._last += 1
            number = self._last
            self._unanswered.add(number)
            answered = min(self._unanswered)
        try:
            yield OperationId(self._client, number, answered)
        finally:
            with self._lock:
                self._unanswered.discard(number)


class Changing(Protocol):
    """What asks for changes."""

    def ask(self, operation: object, kind: type[Result] | None) -> Result:
        """As the function `ask`; the operation is done at most once."""


class OneNumber:
    """Asks for one change, as often as need be.

    Args:
        call: carries operations.
        number: of the change.
    """

    def __init__(self, call: Call, number: OperationId) -> None:
        self._call = call
        self._number = number

    def ask(self, operation: object, kind: type[Result] | None) -> Result:
        """See `Changing`."""
        return ask_numbered(self._call, self._number, operation, kind)


class RemoteBlobs:
    """A remote `BlobStore`.

    Args:
        call: carries operations.
    """

    def __init__(self, call: Call) -> None:
        self._call = call

    def write(self, parts: Sequence[Buffer]) -> bytes:
        """Write the buffers and return the name of the new file."""
        return ask(self._call, WriteBlob([bytes(part) for part in parts]), bytes)

    def read(self, name: bytes) -> list[bytearray]:
        """Return the buffers of a file. Raises `BlobVanishedError` when it is gone."""
        return read_blob(self._call, name)

    def delete(self, names: Iterable[bytes]) -> None:
        """Delete files."""
        wanted = [bytes(name) for name in names]
        for at in range(0, len(wanted), PORTION_ENTRIES):
            ask(self._call, DeleteBlobs(wanted[at : at + PORTION_ENTRIES]), None)


class RemoteTable:
    """A remote `Table`: the same methods, with the same meaning.

    Args:
        call: carries operations.
        changes: numbers operations that change something.
        environment: in which it is.
        record_key: from `layout.record_key`.
    """

    prefix = NO_PREFIX

    def __init__(self, call: Call, changes: Changing, environment: int, record_key: bytes) -> None:
        self._change = changes.ask
        self._call = call
        self._at = (environment, record_key)
        self.announced = Recently()

    def find(self, key: bytes) -> bytes | None:
        """See `Table.find`."""
        return ask(self._call, Find(*self._at, key), bytes | None)  # type: ignore[arg-type]

    def find_all(self, keys: Iterable[bytes]) -> list[Entry]:
        """See `Table.find_all`."""
        wanted, found, at = list(keys), [], 0
        while at < len(wanted):
            operation = FindAll(*self._at, wanted[at : at + PORTION_ENTRIES])
            looked, entries = ask(self._call, operation, tuple[int, list[tuple[bytes, bytes]]])
            found += entries
            at += looked
        return found

    def size(self) -> int:
        """See `Table.size`."""
        return ask(self._call, Size(*self._at), int)

    def sizes(self) -> dict[int, int]:
        """See `Table.sizes`."""
        return ask(self._call, Sizes(*self._at), dict[int, int])

    def read_log(self, number: int | None) -> Piece:
        """See `Table.read_log`."""
        return ask(self._call, ReadLog(*self._at, number), Piece)

    def last_write(self) -> None:
        """Not known here."""

    def write(self, entries: list[Entry], *, with_blobs: bool, found: Survey | None = None) -> None:
        """See `Table.write`."""
        found = found or survey(entries)
        if len(entries) <= PORTION_ENTRIES and found.size <= PORTION_BYTES:
            self._change(Write(*self._at, entries, with_blobs), None)
            return
        for portion, _ in portions(entries, PORTION_BYTES, PORTION_ENTRIES):
            portion = [(key, self._ahead(value)) for key, value in portion]
            self._change(Write(*self._at, portion, with_blobs), None)

    def replace(
        self, key: bytes, value: bytes, *, with_blobs: bool, ttl: int = 0, only_present: bool = False
    ) -> bytes | None:
        """See `Table.replace`."""
        operation = Replace(*self._at, key, self._ahead(value), with_blobs, ttl, only_present)
        return self._change(operation, bytes | None)  # type: ignore[arg-type]

    def swap(self, key: bytes, expected: bytes | None, value: bytes | None, *, with_blobs: bool, end: int = 0) -> bool:
        """See `Table.swap`."""
        put = None if value is None else self._ahead(value)
        return self._change(Swap(*self._at, key, expected, put, with_blobs, end), bool)

    def add(self, key: bytes, value: bytes, *, with_blobs: bool) -> bytes | None:
        """See `Table.add`."""
        return self._change(Add(*self._at, key, self._ahead(value), with_blobs), bytes | None)  # type: ignore[arg-type]

    def pop(self, key: bytes) -> bytes | None:
        """See `Table.pop`."""
        return self._change(Pop(*self._at, key), bytes | None)  # type: ignore[arg-type]

    def write_once(self, entries: list[Entry], gone: list[bytes], once: Once, *, with_blobs: bool) -> list[int]:
        """See `Table.write_once`."""
        put = [(key, self._ahead(value)) for key, value in entries]
        return self._change(Write(*self._at, put, with_blobs, gone, once), list[int])

    def append(self, blocks: list[tuple[int, bytes]], *, with_blobs: bool, once: Once | None = None) -> bool:
        """See `Table.append`."""
        blocks = [(count, self._ahead(block, staged_block)) for count, block in blocks]
        return self._change(Append(*self._at, blocks, with_blobs, once), bool)

    def _ahead(self, value: bytes, staged: Callable[[bytes, Stage], bytes] = staged_entry) -> bytes:
        """Return an entry or a block as it is sent: what is large in it is brought in pieces before."""
        if len(value) <= PORTION_BYTES:
            return value
        try:
            return staged(value, self._stage)
        except GridError as error:
            if _is_unknown(error):
                return value
            raise

    def _stage(self, data: memoryview) -> bytes:
        ident = os.urandom(STAGED_BYTES)
        for at in range(0, len(data), PIECE_BYTES):
            ask(self._call, StagePiece(ident, at, data[at : at + PIECE_BYTES]), None)
        return ident

    def drop(self, *, keep_name: bool) -> None:
        """See `Table.drop`."""
        self._change(Drop(*self._at, keep_name), None)

    def block_of(self, index: int, known: tuple[bytes, int, int] | None = None) -> Block | None:
        """See `Table.block_of`."""
        found: tuple[bytes, int, bytes] | None
        found = ask(self._call, BlockOf(*self._at, index, known), tuple[bytes, int, bytes] | None)  # type: ignore[arg-type]
        return None if found is None else Block(*found)

    def pages(self, low: bytes = b"", high: bytes | None = None, *, limit: int = PAGE_ENTRIES) -> Iterator[Page]:
        """See `Table.pages`; a page may be empty, and then says which store has nothing there."""
        step, skip = FIRST_STEP, False
        while True:
            page = ask(self._call, ReadPage(*self._at, low, high, step, limit, skip), PageRead)
            yield Page(page.values, self.announced.note(), page.has_blobs, page.has_ends, page.store)
            if page.last is None:
                return
            low, skip, step = page.last, True, LAST_STEP

    def read_home_page(
        self, low: bytes, high: bytes | None, *, step: int, limit: int, skip: bool
    ) -> tuple[Page, bytes | None]:
        """See `DividedTable.read_home_page`."""
        page = ask(self._call, ReadPage(*self._at, low, high, step, limit, skip), PageRead)
        return Page(page.values, 0, page.has_blobs, page.has_ends, page.store), page.last

    def counts(self) -> list[Count]:
        """See `DividedTable.counts`."""
        return ask(self._call, Counts(*self._at), list[Count])

    def read_partitions(
        self, partitions: Sequence[int], low: bytes, limit: int = PAGE_ENTRIES, *, skip: bool = True
    ) -> PartitionsRead:
        """See `DividedTable.read_partitions`."""
        return ask(self._call, ReadPartitions(*self._at, list(partitions), low, limit, skip), PartitionsRead)

    def drop_partitions(self, partitions: Sequence[int]) -> None:
        """See `DividedTable.drop_partitions`."""
        self._change(DropPartitions(*self._at, list(partitions)), None)


class Recently:
    """Stands in for the number of the last write, which is not known here: a page counts as current for a moment."""

    def __init__(self) -> None:
        self._at = 0

    def note(self) -> int:
        """Return a number for a page that has just been read."""
        self._at = time.monotonic_ns()
        return self._at

    def __getitem__(self, _: int) -> int:
        return self._at if time.monotonic_ns() - self._at < FRESH_NS else -1


def read_blob(call: Call, name: bytes) -> list[bytearray]:
    """Return the buffers of a file, which come in pieces. Raises `BlobVanishedError` when it is gone."""
    piece: Any = tuple[int, bytes] | None
    whole: Any = list[bytearray] | None

    def read(offset: int) -> tuple[int, bytes]:
        size, data = _there(ask(call, ReadPiece(name, offset), piece), name)
        return size, data

    try:
        size, first = read(0)
    except GridError as error:
        if not _is_unknown(error):
            raise
        return _there(ask(call, ReadBlob(name), whole), name)
    return read_contents(Pieces(first, lambda offset: read(offset)[1]).read_into, size, name.decode())


def _there(found: Result | None, name: bytes) -> Result:
    if found is None:
        raise BlobVanishedError(name.decode())
    return found


def _is_unknown(error: GridError) -> bool:
    """Whether a member of the last version does not know an operation."""
    return str(error).startswith(UNKNOWN)


def ask_numbered(call: Call, number: OperationId, operation: object, kind: type[Result] | None) -> Result:
    """Have an operation performed under a number, and return its result, of this type."""
    return ask(call, Numbered(*number, _encode(operation)), kind)


def ask(call: Call, operation: object, kind: type[Result] | None) -> Result:
    """Have an operation performed and return its result, of this type."""
    try:
        answer = call(_encode(operation))
    except NotOnDiskError as error:  # it is done, and so has a result
        if error.result:
            error.result = from_msgpack(error.result, kind)
        raise
    return from_msgpack(answer, kind)
