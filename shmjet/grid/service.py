"""Performs operations of other hosts on the store of this host."""

from __future__ import annotations

import contextlib
import os
import struct
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from shmjet.core.map_config import config_of
from shmjet.data.decoders import msgpack_decoder
from shmjet.grid import carried
from shmjet.grid.blobs import BlobVanishedError
from shmjet.grid.change_log import unsettled
from shmjet.grid.checks import check_operation
from shmjet.grid.divided_table import DividedTable
from shmjet.grid.errors import GridError, NotOnDiskError, PartitionMovedError
from shmjet.grid.kept_results import OperationId
from shmjet.grid.layout import PARTITION, name_of
from shmjet.grid.lease import holds
from shmjet.grid.operations import (
    UNKNOWN,
    Add,
    Append,
    BlockOf,
    Counts,
    DeleteBlobs,
    Describe,
    Drop,
    DropPartitions,
    Find,
    FindAll,
    KeepClass,
    LoadClass,
    Numbered,
    Operation,
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
from shmjet.grid.ownership import admit
from shmjet.grid.scan import FIRST_STEP, PAGE_ENTRIES, read_page
from shmjet.grid.store import Grid, Opened
from shmjet.grid.table import Once, Table
from shmjet.grid.table_reads import Block
from shmjet.ipc.decode_errors import UNREADABLE

_first: Any = itemgetter(0)
_STORE = struct.Struct("<Q")
SHORT_BYTES = 1 << 14
"""An encoded operation of more bytes is not a short one."""
_SHORT_READS = Find | Size | BlockOf
_SHORT_CHANGES = Replace | Swap | Add | Pop | Append
_decode = msgpack_decoder(Operation).decode
_encode = msgspec.msgpack.Encoder().encode


class GridService:
    """The store in one folder, for clients that cannot open it themselves. Blocks; safe for several threads.

    Args:
        folder: of the store.
    """

    def __init__(self, folder: Path) -> None:
        self._grid = Grid.open(folder)
        self.store = _new_number()
        """Which store this is: another number than that of any other member, and after `clear`."""
        self.has_staged = False
        """Whether large values may have come of which the entries have not: `sweep_staged` deletes them in the end."""

    def perform(self, body: bytes) -> bytes:
        """Perform one encoded operation and return its encoded result; see `perform_and_note`."""
        return self.perform_and_note(body)[0]

    def perform_and_note(self, body: bytes) -> tuple[bytes, Unsettled | None]:
        """Perform one encoded operation.

        Returns:
            its encoded result, and what has to be on all backups before the result is true.

        Raises:
            GridError: it is not an operation, or it failed; the text says why.
        """
        return self._perform_decoded(*self._checked(body))

    def perform_if_short(self, body: bytes) -> tuple[bytes, Unsettled | None] | None:
        """As `perform_and_note`, if that takes microseconds and waits for no writer; else do nothing: None."""
        if len(body) > SHORT_BYTES:
            return None
        operation, asked = self._checked(body)
        return self._perform_decoded(operation, asked) if self._is_short(operation) else None

    def _checked(self, body: bytes) -> tuple[Any, OperationId | None]:
        """Return an operation that a client could have sent, and under which number it was asked."""
        operation, asked = _unnumbered(body)
        if hasattr(operation, "record"):
            check_operation(operation, self._grid.opened.layout)
        return operation, asked

    def _perform_decoded(self, operation: Any, asked: OperationId | None) -> tuple[bytes, Unsettled | None]:
        opened = self._grid.opened
        try:
            encoded = _encode(self._perform(opened, operation, asked))
        except NotOnDiskError as error:
            error.result = _encode(error.result)
            raise
        return encoded, _unsettled(opened, operation) if opened.is_divided else None

    def _is_short(self, operation: Any) -> bool:
        opened = self._grid.opened
        if not isinstance(operation, _SHORT_READS | _SHORT_CHANGES):
            return False
        if isinstance(operation, _SHORT_READS):
            return True
        is_busy = opened.environment(operation.environment).is_busy
        return not is_busy and config_of(name_of(operation.record), opened.layout.maps).is_plain

    def sweep_staged(self) -> None:
        """Delete large values whose entries will not come any more."""
        self.has_staged = self._grid.opened.blobs.sweep_staged()

    def close(self) -> None:
        """Let go of the store."""
        self._grid.close()

    def _perform(self, opened: Opened, operation: Any, asked: OperationId | None) -> Any:
        match operation:
            case WriteBlob():
                return opened.blobs.write(operation.parts)
            case ReadBlob():
                with contextlib.suppress(BlobVanishedError):
                    return opened.blobs.read(operation.name)
                return None
            case ReadPiece():
                with contextlib.suppress(BlobVanishedError):
                    return opened.blobs.read_piece(operation.name, operation.offset)
                return None
            case StagePiece():
                self.has_staged = True
                return opened.blobs.stage(operation.ident, operation.offset, operation.data)
            case DeleteBlobs():
                if opened.is_divided:
                    _admit_files(opened, operation.names)
                return opened.blobs.delete(operation.names)
            case LoadClass():
                return opened.load_class(operation.class_id)
            case KeepClass():
                return opened.keep_class(operation.class_id, operation.data)
            case Describe():
                return opened.layout.partition_count, opened.layout.environments, opened.layout.maps
        if opened.is_divided:
            if not holds(opened.environment(0).announced):
                raise PartitionMovedError("the member has stood still")
            divided = opened.divided_table(operation.environment, operation.record)
            divided.operation = asked
            return self._perform_on_partitions(divided, operation)
        table = opened.table(operation.environment, operation.record)
        table.operation = asked
        return self._perform_on(table, operation)

    def _perform_on_partitions(self, divided: DividedTable, operation: Any) -> Any:
        """Perform an operation where the store is divided among members."""
        match operation:
            case Counts():
                return divided.counts()
            case ReadPartitions():
                limit = max(1, min(operation.limit, PAGE_ENTRIES))
                return divided.read_partitions(operation.partitions, operation.low, limit, skip=operation.skip)
            case DropPartitions():
                return divided.drop_partitions(operation.partitions)
            case ReadPage():
                step, limit = max(1, min(operation.step, FIRST_STEP)), max(1, min(operation.limit, PAGE_ENTRIES))
                low, high, skip = operation.low, operation.high, operation.skip
                page, last = divided.read_home_page(low, high, step=step, limit=limit, skip=skip)
                return PageRead(page.values, page.has_blobs, last, page.store, page.has_ends)
            case ReadLog():
                return divided.read_log(operation.number)
        return self._perform_on(divided, operation)

    def _perform_on(self, table: Table, operation: Any) -> Any:
        match operation:
            case Find():
                return table.find(operation.key)
            case FindAll():
                return table.find_some(operation.keys)
            case Size():
                return table.size()
            case Sizes():
                return table.sizes()
            case ReadLog():
                return table.read_log(operation.number)._replace(store=self.store)
            case Write():
                if operation.once is not None:
                    written = Once(*operation.once)
                    return table.write_once(operation.entries, operation.gone, written, with_blobs=operation.with_blobs)
                entries = sorted(operation.entries, key=_first)  # stable, so of equal keys the last one stays last
                return table.write(entries, with_blobs=operation.with_blobs) if entries else None
            case Replace():
                with_blobs, ttl = operation.with_blobs, operation.ttl
                return table.replace(
                    operation.key, operation.value, with_blobs=with_blobs, ttl=ttl, only_present=operation.only_present
                )
            case Swap():
                changed = (operation.key, operation.expected, operation.value)
                return table.swap(*changed, with_blobs=operation.with_blobs, end=operation.end)
            case Add():
                return table.add(operation.key, operation.value, with_blobs=operation.with_blobs)
            case Pop():
                return table.pop(operation.key)
            case Append():
                once = None if operation.once is None else Once(*operation.once)
                return table.append(operation.blocks, with_blobs=operation.with_blobs, once=once)
            case Drop():
                return table.drop(keep_name=operation.keep_name)
            case BlockOf():
                return self._block_of(table, operation)
            case ReadPage():
                page, last = read_page(
                    table.env,
                    table.record_key,
                    operation.low,
                    operation.high,
                    step=max(1, min(operation.step, FIRST_STEP)),
                    limit=max(1, min(operation.limit, PAGE_ENTRIES)),
                    skip=operation.skip,
                    last_step=FIRST_STEP,
                )
                if page is None:
                    return PageRead([], False, last, self.store)
                return PageRead(page.values, page.has_blobs, last, self.store, page.has_ends)
        raise GridError(f"a table does not do {type(operation).__name__}")

    def _block_of(self, table: Table, operation: BlockOf) -> Block | None:
        """Return a block; its prefix says which store it is of, because another one may have the same incarnations."""
        store, known = _STORE.pack(self.store), operation.known
        if known is not None:
            known = (known[0][: -_STORE.size], *known[1:]) if known[0].endswith(store) else None
        block = table.block_of(operation.index, known)
        return None if block is None else block._replace(prefix=block.prefix + store)


def _admit_files(opened: Opened, names: list[bytes]) -> None:
    """Raise PartitionMovedError unless the partitions of files are here: else they would stay where they are now."""
    for place in {carried.place_of(name) for name in names if opened.blobs.is_name(name)}:
        if place < opened.layout.partition_count:
            with opened.environment(place % opened.layout.environments).begin() as txn:
                admit(txn, (PARTITION.pack(place),))


class Unsettled(NamedTuple):
    """The number of a record in the log of changes of an environment."""

    environment: int
    number: int


def _unsettled(opened: Opened, operation: Any) -> Unsettled | None:
    """Return the last change of what an operation has read or changed, if not all backups have it."""
    environment = getattr(operation, "environment", None)
    if environment is None:
        return None
    partitions = None
    key = getattr(operation, "key", None)
    if key is not None:
        table = opened.table(environment, operation.record)
        partitions = (table.place_of(key[: PARTITION.size]),)
    number = unsettled(opened.environment(environment), partitions)
    return Unsettled(environment, number) if number else None


def _unnumbered(body: bytes) -> tuple[Any, OperationId | None]:
    """Return an operation, and under which number it was asked."""
    operation = _decoded(body)
    if not isinstance(operation, Numbered):
        return operation, None
    asked = OperationId(operation.client, operation.number, operation.answered)
    operation = _decoded(operation.operation)
    if isinstance(operation, Numbered):
        raise GridError("an operation is numbered once")
    return operation, asked


def _decoded(body: bytes) -> Any:
    try:
        return _decode(body)
    except UNREADABLE as error:
        raise GridError(f"{UNKNOWN}: {error}") from error


def _new_number() -> int:
    return int.from_bytes(os.urandom(_STORE.size)) | 1  # 0 stands for an unknown one
