"""What one may ask of a store remotely, as msgspec structs: the methods of `Table`, of the blobs and of the classes.

Everything in them is bytes as they are stored. Objects are encoded and decoded where they are used; who performs an
operation unpickles nothing.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from shmjet.grid.blobs import STAGED_BYTES
from shmjet.grid.kept_results import CLIENT_BYTES
from shmjet.grid.times import LONGEST_NS

NO_PREFIX: Final = bytes(4)
"""In front of the keys of `Write`: only the store knows the incarnation."""

UNKNOWN: Final = "this is not an operation on maps and lists"
"""How the text of the error begins if a member does not know an operation: one of the last version lacks some."""

MOST_ENTRIES: Final = 4096
"""Entries, keys, blocks or names that one operation may bring."""
_FEW: Final = msgspec.Meta(max_length=MOST_ENTRIES)


_Once = tuple[Annotated[bytes, msgspec.Meta(min_length=1, max_length=64)], Annotated[int, msgspec.Meta(ge=0)]]
"""Marker and mark, see `table.Once`."""


_Partition = Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]
_Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
_Ident = Annotated[bytes, msgspec.Meta(min_length=STAGED_BYTES, max_length=STAGED_BYTES)]


class _Operation(msgspec.Struct, frozen=True, tag=True, array_like=True):
    pass


class _OnTable(_Operation, frozen=True, tag=True, array_like=True):
    environment: int
    record: bytes


class Find(_OnTable, frozen=True, tag=True, array_like=True):
    """`Table.find`; a value or None."""

    key: bytes


class FindAll(_OnTable, frozen=True, tag=True, array_like=True):
    """`Table.find_some`; how many keys were looked for, and (key, value) pairs of the keys that are there."""

    keys: Annotated[list[bytes], _FEW]


class Size(_OnTable, frozen=True, tag=True, array_like=True):
    """`Table.size`."""


class Sizes(_OnTable, frozen=True, tag=True, array_like=True):
    """`Table.sizes`; a dict."""


class ReadLog(_OnTable, frozen=True, tag=True, array_like=True):
    """`Table.read_log`; a `log.Piece`."""

    number: _Number | None


class Write(_OnTable, frozen=True, tag=True, array_like=True):
    """`Table.write`, or `Table.write_once`, where the answer is a list; keys begin with `NO_PREFIX`."""

    entries: Annotated[list[tuple[bytes, bytes]], _FEW]
    with_blobs: bool
    gone: Annotated[list[bytes], _FEW] = []
    once: _Once | None = None


class Replace(_OnTable, frozen=True, tag=True, array_like=True):
    """`Table.replace`; a value or None."""

    key: bytes
    value: bytes
    with_blobs: bool
    ttl: Annotated[int, msgspec.Meta(ge=0, le=LONGEST_NS)] = 0
    only_present: bool = False


class Swap(_OnTable, frozen=True, tag=True, array_like=True):
    """`Table.swap`; a bool."""

    key: bytes
    expected: bytes | None
    value: bytes | None
    with_blobs: bool
    end: Annotated[int, msgspec.Meta(ge=0, le=LONGEST_NS)] = 0


class Add(_OnTable, frozen=True, tag=True, array_like=True):
    """`Table.add`; a value or None."""

    key: bytes
    value: bytes
    with_blobs: bool


class Pop(_OnTable, frozen=True, tag=True, array_like=True):
    """`Table.pop`; a value or None."""

    key: bytes


class Append(_OnTable, frozen=True, tag=True, array_like=True):
    """`Table.append`; a bool."""

    blocks: Annotated[list[tuple[int, bytes]], _FEW]
    with_blobs: bool
    once: _Once | None = None


class Drop(_OnTable, frozen=True, tag=True, array_like=True):
    """`Table.drop`."""

    keep_name: bool


class ReadPage(_OnTable, frozen=True, tag=True, array_like=True):
    """`scan.read_page`; a `PageRead`."""

    low: bytes
    high: bytes | None
    step: int
    limit: int
    skip: bool


class Counts(_OnTable, frozen=True, tag=True, array_like=True):
    """`DividedTable.counts`; a list of `divided_table.Count`."""


class ReadPartitions(_OnTable, frozen=True, tag=True, array_like=True):
    """`DividedTable.read_partitions`; a `divided_table.PartitionsRead`."""

    partitions: Annotated[list[_Partition], _FEW]
    low: bytes
    limit: int
    skip: bool = True


class DropPartitions(_OnTable, frozen=True, tag=True, array_like=True):
    """`DividedTable.drop_partitions`."""

    partitions: Annotated[list[_Partition], _FEW]


class BlockOf(_OnTable, frozen=True, tag=True, array_like=True):
    """`Table.block_of`; (prefix, first, bytes) or None."""

    index: _Number
    known: tuple[bytes, int, int] | None


class Numbered(_Operation, frozen=True, tag=True, array_like=True):
    """An operation on a map or list that is done once, however often it is asked for; see `kept_results.OperationId`.

    `operation` is encoded; the answer is the answer to that one.
    """

    client: Annotated[bytes, msgspec.Meta(min_length=CLIENT_BYTES, max_length=CLIENT_BYTES)]
    number: _Number
    answered: _Number
    operation: bytes


class WriteBlob(_Operation, frozen=True, tag=True, array_like=True):
    """`BlobStore.write`; a name."""

    parts: list[bytes]


class ReadBlob(_Operation, frozen=True, tag=True, array_like=True):
    """`BlobStore.read`; its parts, None when it has vanished. For clients and members of the last version."""

    name: bytes


class ReadPiece(_Operation, frozen=True, tag=True, array_like=True):
    """`BlobStore.read_piece`; the bytes of the file and a piece of it, None when it has vanished."""

    name: bytes
    offset: _Number


class StagePiece(_Operation, frozen=True, tag=True, array_like=True):
    """`BlobStore.stage`: a piece of a large value whose entry comes afterwards."""

    ident: _Ident
    offset: _Number
    data: memoryview


class DeleteBlobs(_Operation, frozen=True, tag=True, array_like=True):
    """`BlobStore.delete`."""

    names: Annotated[list[bytes], _FEW]


class LoadClass(_Operation, frozen=True, tag=True, array_like=True):
    """The pickle of a class, or None."""

    class_id: str


class KeepClass(_Operation, frozen=True, tag=True, array_like=True):
    """Keep the pickle of a class."""

    class_id: str
    data: bytes


class Describe(_Operation, frozen=True, tag=True, array_like=True):
    """(partition count, environments, settings of maps) of the store."""


Operation = (
    Find
    | FindAll
    | Size
    | Sizes
    | ReadLog
    | Write
    | Replace
    | Swap
    | Add
    | Pop
    | Append
    | Drop
    | ReadPage
    | Counts
    | ReadPartitions
    | DropPartitions
    | BlockOf
    | Numbered
    | WriteBlob
    | ReadBlob
    | ReadPiece
    | StagePiece
    | DeleteBlobs
    | LoadClass
    | KeepClass
    | Describe
)


class PageRead(msgspec.Struct, frozen=True, array_like=True):
    """A page: its values, whether one of them may lie in a file, and where the next page begins, None at the end.

    `store` says which store it is of, so that a reader of page after page notices when another one answers.
    """

    values: list[bytes]
    has_blobs: bool
    last: bytes | None
    store: int
    has_ends: bool = False
