"""The headers of .npy files, read and written; they come before an array's plain bytes.

The layout is numpy's (NEP 1, versions 1 to 3): magic, version, length, a Python literal of dtype, order and shape.
Arrays of objects, whose bytes would be a pickle, are refused: nothing here unpickles. Must not know: batches and
processors.
"""

from __future__ import annotations

import ast
import re
import struct
from typing import IO, Any, Final, NamedTuple

import numpy as np

from shmjet.data.errors import BatchError

MAGIC: Final = b"\x93NUMPY"

LARGEST_HEADER: Final = 1 << 20
"""Bytes of a header, at most: thousands of fields."""

_ALIGNMENT: Final = 64
_LARGEST_ROWS: Final = 10**19


class Header(NamedTuple):
    """What a header says."""

    dtype: np.dtype[Any]
    rows: int
    size: int
    """Bytes of the header: the first row begins there."""


def read_header(file: IO[bytes], where: str) -> Header:
    """Read the header of a one-dimensional array.

    Args:
        file: at the beginning of the array.
        where: file and member, for errors.

    Raises:
        BatchError: it is not such an array.
    """
    start = file.read(8)
    if start[:6] != MAGIC or len(start) < 8:
        raise BatchError(f"{where}: expected a .npy array, found {start!r} at its beginning")
    width = "<H" if start[6] == 1 else "<I"
    if start[6] not in (1, 2, 3):
        raise BatchError(f"{where}: expected version 1 to 3 of the .npy format, found {start[6]}.{start[7]}")
    length_bytes = file.read(struct.calcsize(width))
    (length,) = struct.unpack(width, length_bytes) if len(length_bytes) == struct.calcsize(width) else (0,)
    literal = file.read(min(length, LARGEST_HEADER))
    try:
        content = _literal(literal.decode("utf-8" if start[6] == 3 else "latin-1"))
        dtype = np.lib.format.descr_to_dtype(content["descr"])
        shape = content["shape"]
    except (ValueError, SyntaxError, TypeError, KeyError, RecursionError, MemoryError):
        raise BatchError(f"{where}: the header of the array is damaged: {literal[:80]!r}") from None
    if dtype.hasobject:
        raise BatchError(f"{where}: expected values of fixed width, found {dtype}; pickled objects are not read")
    if not isinstance(shape, tuple) or len(shape) != 1 or not isinstance(shape[0], int) or shape[0] < 0:
        raise BatchError(f"{where}: expected a one-dimensional array, found one of shape {shape}")
    return Header(dtype, shape[0], 8 + len(length_bytes) + len(literal))


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text.strip())
    except SyntaxError:  # Python 2 wrote its long integers so
        return ast.literal_eval(re.sub(r"\b(\d+)L\b", r"\1", text.strip()))


def make_header(dtype: np.dtype[Any], rows: int) -> bytes:
    """Return the header of a one-dimensional array; its length does not depend on `rows`."""
    size = len(_header(dtype, _LARGEST_ROWS, 0))
    return _header(dtype, rows, size)


def _header(dtype: np.dtype[Any], rows: int, size: int) -> bytes:
    descr = np.lib.format.dtype_to_descr(dtype)
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': ({rows},), }}"
    try:
        literal, version = text.encode("latin-1"), 1
    except UnicodeEncodeError:
        literal, version = text.encode(), 3
    if len(literal) + 2 * _ALIGNMENT > 0xFFFF:
        version = max(version, 2)
    before = 8 + (2 if version == 1 else 4)
    total = size or -(-(before + len(literal) + 1) // _ALIGNMENT) * _ALIGNMENT
    literal += b" " * (total - before - len(literal) - 1) + b"\n"
    return MAGIC + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(literal)) + literal
