"""Thrift's compact protocol, as far as the footer and the page headers of a Parquet file need it: writing, no reading.

A struct is a list of (field id, value) in ascending order of the ids. https://github.com/apache/thrift, doc/specs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

_TRUE, _FALSE, _BYTE, _I32, _I64, _BINARY, _LIST, _STRUCT = 1, 2, 3, 5, 6, 8, 9, 12


@dataclass(frozen=True)
class I64:
    """An integer of 64 bits; plain ints have 32."""

    value: int


@dataclass(frozen=True)
class Byte:
    """An integer of 8 bits."""

    value: int


@dataclass(frozen=True)
class Struct:
    """Fields by their ids, ascending; those whose value is None are left out."""

    fields: tuple[tuple[int, Value | None], ...]


Value: TypeAlias = bool | int | I64 | Byte | str | bytes | Struct | list["Value"]


def struct(*fields: tuple[int, Value | None]) -> Struct:
    """Return a struct of (id, value) pairs.

    Example:
        >>> encoded(struct((1, 7), (3, "a"))).hex()
        '150e28016100'
    """
    return Struct(fields)


def encoded(value: Struct) -> bytes:
    """Return a struct's bytes."""
    out = bytearray()
    _write_struct(out, value)
    return bytes(out)


def varint(value: int) -> bytes:
    """Return an unsigned integer, seven bits a byte, the lowest first.

    Example:
        >>> varint(300).hex()
        'ac02'
    """
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _zigzag(value: int) -> bytes:
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)


def _type_of(value: Value) -> int:
    match value:
        case bool():
            return _TRUE if value else _FALSE
        case int():
            return _I32
        case I64():
            return _I64
        case Byte():
            return _BYTE
        case str() | bytes():
            return _BINARY
        case list():
            return _LIST
    return _STRUCT


def _write_struct(out: bytearray, value: Struct) -> None:
    last = 0
    for field, content in value.fields:
        if content is None:
            continue
        kind = _type_of(content)
        if 0 < field - last <= 15:
            out.append((field - last) << 4 | kind)
        else:
            out.append(kind)
            out += _zigzag(field)
        last = field
        if kind not in (_TRUE, _FALSE):
            _write(out, content)
    out.append(0)


def _write(out: bytearray, value: Value) -> None:
    match value:
        case bool():
            out.append(_TRUE if value else _FALSE)
        case int():
            out += _zigzag(value)
        case I64():
            out += _zigzag(value.value)
        case Byte():
            out.append(value.value & 0xFF)
        case str() | bytes():
            data = value.encode() if isinstance(value, str) else value
            out += varint(len(data)) + data
        case list():
            _write_list(out, value)
        case Struct():
            _write_struct(out, value)


def _write_list(out: bytearray, values: list[Value]) -> None:
    kind = _type_of(values[0]) if values else _STRUCT
    kind = _TRUE if kind == _FALSE else kind
    if len(values) < 15:
        out.append(len(values) << 4 | kind)
    else:
        out.append(0xF0 | kind)
        out += varint(len(values))
    for value in values:
        _write(out, value)
