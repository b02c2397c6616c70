"""Whether a remote operation brings pickles into a store: for members that take none.

Looks at how values are encoded (`entries`) and decodes none of them to objects. A value is judged by the kind of the
record that it is written to, because that is how it is read; what this module does not know counts as a pickle.
"""

from __future__ import annotations

from typing import Any

import msgspec

from shmjet.data.decoders import msgpack_decoder
from shmjet.grid.entries import BLOCK_HEAD, COLUMNS_BLOCK
from shmjet.grid.layout import LIST_RECORD, MAP_RECORD
from shmjet.grid.operations import (
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
    LoadClass,
    Numbered,
    Operation,
    Pop,
    ReadBlob,
    ReadLog,
    ReadPage,
    ReadPartitions,
    ReadPiece,
    Replace,
    Size,
    Sizes,
    Swap,
    Write,
)
from shmjet.ipc.decode_errors import UNREADABLE

_BRINGS_NOTHING = (
    Find,
    FindAll,
    Size,
    Sizes,
    ReadLog,
    Pop,
    Drop,
    ReadPage,
    Counts,
    ReadPartitions,
    DropPartitions,
    BlockOf,
    ReadBlob,
    ReadPiece,
    DeleteBlobs,
    LoadClass,
    Describe,
)


class _Extension(Exception):
    pass


def _refuse(code: int, data: memoryview) -> Any:
    raise _Extension


_decode = msgpack_decoder(Operation).decode
_parts = msgpack_decoder(tuple[msgspec.Raw, msgspec.Raw]).decode
_plain = msgpack_decoder(tuple[Any, Any], ext_hook=_refuse).decode
_NESTED = frozenset((*range(0x80, 0xA0), 0xC0, 0xC1, *range(0xDC, 0xE0)))
"""First bytes of lists, dicts, None and nothing. No entry of ours is one, and decoded they may take fifty times the
memory of their bytes."""


def brings_pickles(body: bytes) -> bool:
    """Say whether an encoded operation writes anything but values of plain types; True as well for what is none.

    Example:
        >>> from shmjet.grid.operations import Size
        >>> brings_pickles(msgspec.msgpack.encode(Size(0, b"record")))
        False
    """
    try:
        operation = _decode(body)
        if isinstance(operation, Numbered):
            operation = _decode(operation.operation)
    except UNREADABLE:
        return True
    match operation:
        case Write() if operation.record.startswith(MAP_RECORD):
            return not all(_is_plain(entry) for _, entry in operation.entries)
        case Replace() | Add() if operation.record.startswith(MAP_RECORD):
            return not _is_plain(operation.value)
        case Swap() if operation.record.startswith(MAP_RECORD):
            return operation.value is not None and not _is_plain(operation.value)
        case Append() if operation.record.startswith(LIST_RECORD):
            return not all(len(block) >= BLOCK_HEAD.size and block[0] == COLUMNS_BLOCK for _, block in operation.blocks)
    return not isinstance(operation, _BRINGS_NOTHING)


def _is_plain(stored: bytes) -> bool:
    try:
        if any(bytes(part)[0] in _NESTED for part in _parts(stored)):
            return False
        _plain(stored)
    except (_Extension, *UNREADABLE):
        return False
    return True
