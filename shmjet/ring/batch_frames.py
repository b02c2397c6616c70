"""How a batch of columns lies in a payload, and how it is read from one without copying a column.

A payload is a head, the schema as text, and then the columns' buffers, each at a multiple of 64 from the start. The
schema says everything but the number of rows and bytes, so it is parsed once for each kind of batch and then found by
its bytes. Where all columns are arrays without a mask, as many rows of the same columns have the same head: then the
head is all that is looked up, and it says where the columns lie. `docs/formats/batch.md` has the offsets. Must not know
where a payload comes from or goes to.
"""

from __future__ import annotations

import ast
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from numpy import frombuffer

from shmjet._native import RingCorruptError
from shmjet.data.batch import Batch
from shmjet.data.column import Values
from shmjet.data.column_types import ColumnType, Kind, is_typed_word, type_of_word
from shmjet.data.text import Mask, Text
from shmjet.data.typed_column import TypedColumn

Buffer: TypeAlias = bytes | npt.NDArray[Any]
"""A part of a payload."""

HEAD: Final = struct.Struct("<IIQ")
"""Number of buffers, bytes of the schema, rows."""
ALIGNMENT: Final = 64
TEXT, BYTES = "text", "bytes"
"""What the schema says instead of a dtype for columns of variable width."""

_KEPT: Final = 1024
"""Schemas, and heads of payloads, that are remembered."""
_ZEROS: Final = bytes(ALIGNMENT)
_INT64: Final = np.dtype(np.int64)
_UINT8: Final = np.dtype(np.uint8)
_BOOL: Final = np.dtype(np.bool_)


_K = TypeVar("_K")
_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class _Schema:
    """Name, type and whether there is a mask, of each column; plain if all are arrays without one."""

    fields: list[tuple[str, Kind, bool]]
    is_plain: bool


class BatchCodec:
    """Encodes and decodes batches; remembers the schemas that it has seen. One for each process."""

    def __init__(self) -> None:
        self._encoded: dict[tuple[Any, ...], bytes] = {}
        self._decoded: dict[bytes, _Schema] = {}
        self._heads: dict[tuple[Any, ...], tuple[bytes, int]] = {}
        self._layouts: dict[bytes, list[tuple[str, np.dtype[Any], int]]] = {}

    def encode(self, batch: Batch) -> tuple[tuple[Buffer, ...], int]:
        """Return the parts of the payload, each of which starts at a multiple of `ALIGNMENT`, and its size in bytes."""
        columns, validity = batch.parts()
        if not validity:  # batches of arrays only, one like the other, are what most streams have
            arrays = tuple(columns.values())
            like = (batch.num_rows, *columns, *[array.dtype for array in arrays])
            known = self._heads.get(like)
            if known is not None:
                return (known[0], *arrays), known[1]  # type: ignore[arg-type]
            if all(isinstance(array, np.ndarray) and array.dtype.kind not in "mMV" for array in arrays):
                encoded = self._encode(columns, validity, batch.num_rows)
                head = encoded[0][0]
                assert isinstance(head, bytes)
                _keep(self._heads, like, (head, encoded[1]))
                return encoded
        return self._encode(columns, validity, batch.num_rows)

    def _encode(
        self, columns: dict[str, Values], validity: dict[str, Mask], rows: int
    ) -> tuple[tuple[Buffer, ...], int]:
        parts: list[Buffer] = [b""]
        key: list[Any] = []
        for name, column in columns.items():
            mask = validity.get(name)
            kind = column.dtype
            if isinstance(column, TypedColumn):
                column = column.stored
            if isinstance(column, Text):
                compact = column.compact()
                parts += (compact.offsets, compact.data)
            else:  # numpy exports no buffer of dates, nor of structures that have some
                parts.append(column.view(_UINT8) if column.dtype.kind in "mMV" else column)
            key += (name, kind, mask is not None)
            if mask is not None:
                parts.append(mask)
        schema = self._encoded.get(tuple(key))
        if schema is None:
            schema = self._encode_schema(key)
        sizes = [part.nbytes for part in parts[1:]]  # type: ignore[union-attr]
        count = len(sizes)
        head = HEAD.pack(count, len(schema), rows) + struct.pack(f"<{count}Q", *sizes) + schema
        parts[0] = head
        total = len(head)
        for size in sizes:
            total += -total % ALIGNMENT + size
        return tuple(parts), total

    def _encode_schema(self, key: list[Any]) -> bytes:
        fields = [
            (name, np.lib.format.dtype_to_descr(kind) if isinstance(kind, np.dtype) else str(kind), masked)
            for name, kind, masked in zip(key[::3], key[1::3], key[2::3], strict=True)
        ]
        schema = repr(fields).encode("utf-8", "surrogatepass")
        _keep(self._encoded, tuple(key), schema)
        return schema

    def decode(self, payload: Any) -> Batch:
        """Return the batch in a payload, as views on it.

        Args:
            payload: read-only memory with the buffer protocol; it lives as long as the last view.

        Raises:
            RingCorruptError: it is not a batch.
        """
        try:
            return self._decode(payload)
        except (struct.error, ValueError, SyntaxError, TypeError, IndexError) as error:
            raise RingCorruptError(f"a payload is not a batch: {error}") from error

    def _decode(self, payload: Any) -> Batch:
        count, schema_size, rows = HEAD.unpack_from(payload)
        at = HEAD.size + 8 * count
        head = bytes(memoryview(payload)[: at + schema_size])
        layout = self._layouts.get(head)
        if layout is not None:
            return Batch.trusted({name: frombuffer(payload, dtype, rows, at) for name, dtype, at in layout}, {}, rows)
        sizes = struct.unpack_from(f"<{count}Q", head, HEAD.size)
        schema = head[at:]
        at += schema_size
        known = self._decoded.get(schema)
        if known is None:
            known = self._decode_schema(schema)
        columns: dict[str, Values] = {}
        validity: dict[str, Mask] = {}
        if known.is_plain and len(known.fields) == count:
            layout = []
            for (name, plain, _), size in zip(known.fields, sizes, strict=True):
                at = (at + 63) & -64
                assert isinstance(plain, np.dtype)
                columns[name] = frombuffer(payload, plain, rows, at)
                layout.append((name, plain, at))
                at += size
            _keep(self._layouts, head, layout)
            return Batch.trusted(columns, validity, rows)
        which = 0
        for name, kind, masked in known.fields:
            at += -at % ALIGNMENT
            dtype = kind.stored if isinstance(kind, ColumnType) else kind
            if isinstance(dtype, str):
                offsets = frombuffer(payload, _INT64, rows + 1, at)
                at += sizes[which]
                at += -at % ALIGNMENT
                data = frombuffer(payload, _UINT8, sizes[which + 1], at)
                which += 1
                columns[name] = Text.trusted(offsets, data, dtype == BYTES)
            else:
                columns[name] = frombuffer(payload, dtype, rows, at)
            if isinstance(kind, ColumnType):
                columns[name] = TypedColumn.trusted(kind, columns[name])  # type: ignore[arg-type]
            at += sizes[which]
            which += 1
            if masked:
                at += -at % ALIGNMENT
                validity[name] = frombuffer(payload, _BOOL, rows, at)
                at += sizes[which]
                which += 1
        if which != count:
            raise ValueError(f"{count} buffers for {len(known.fields)} columns")
        return Batch.trusted(columns, validity, rows)

    def _decode_schema(self, schema: bytes) -> _Schema:
        fields: list[tuple[str, Kind, bool]] = []
        for name, descr, masked in ast.literal_eval(schema.decode("utf-8", "surrogatepass")):
            if descr == TEXT:
                fields.append((name, TEXT, masked))
            elif descr == BYTES:
                fields.append((name, BYTES, masked))
            elif isinstance(descr, str) and is_typed_word(descr):
                fields.append((name, type_of_word(descr), masked))
            else:
                fields.append((name, np.lib.format.descr_to_dtype(descr), masked))
        is_plain = not any(masked or not isinstance(dtype, np.dtype) for _, dtype, masked in fields)
        known = _Schema(fields, is_plain)
        _keep(self._decoded, schema, known)
        return known


def _keep(known: dict[_K, _V], key: _K, value: _V) -> None:
    """Remember something, but not without a bound: a stream whose batches all differ gains nothing by it."""
    if len(known) >= _KEPT:
        known.clear()
    known[key] = value


def padded(parts: Sequence[Buffer]) -> list[Any]:
    """Return the parts with what has to lie between them, for writing one after the other."""
    result: list[Any] = []
    total = 0
    for part in parts:
        gap = -total % ALIGNMENT
        if gap:
            result.append(_ZEROS[:gap])
        size = len(part) if isinstance(part, bytes) else part.nbytes
        if size:
            result.append(part)
        total += gap + size
    return result
