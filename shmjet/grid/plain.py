"""Whether an operation from afar brings pickles into a store: for those who take none.

Looks at how values are encoded (`entries`) and decodes none of them to objects.
"""

from __future__ import annotations

from typing import Any

import msgspec

from shmjet.grid.entries import BLOCK_HEAD, COLUMNS_BLOCK
from shmjet.grid.operations import Add, Append, KeepClass, Operation, Replace, Write, WriteBlob


class _Extension(Exception):
    pass


def _refuse(code: int, data: memoryview) -> Any:
    raise _Extension


_decode = msgspec.msgpack.Decoder(Operation).decode
_plain = msgspec.msgpack.Decoder(tuple[Any, Any], ext_hook=_refuse).decode


def brings_pickles(body: bytes) -> bool:
    """Say whether an encoded operation writes anything but values of plain types; True as well for what is none.

    Example:
        >>> from shmjet.grid.operations import Size
        >>> brings_pickles(msgspec.msgpack.encode(Size(0, b"record")))
        False
    """
    try:
        operation = _decode(body)
    except msgspec.DecodeError:
        return True
    match operation:
        case Write():
            return not all(_is_plain(entry) for _, entry in operation.entries)
        case Replace() | Add():
            return not _is_plain(operation.value)
        case Append():
            return not all(len(block) >= BLOCK_HEAD.size and block[0] == COLUMNS_BLOCK for _, block in operation.blocks)
        case WriteBlob() | KeepClass():
            return True
    return False


def _is_plain(stored: bytes) -> bool:
    try:
        _plain(stored)
    except (_Extension, msgspec.DecodeError):
        return False
    return True
