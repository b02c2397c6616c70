"""The Java source of the writer that runs inside Spark's JVM, filled in for the columns of one schema.

`writer.java` and `attempt.java` have what all schemas share. Here: for each column the statements that copy a value of
a row of Spark's (`UnsafeRow`) into the column's bytes. Must not know PySpark, nor where the source is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from shmjet.data.column_types import NARROW_DIGITS
from shmjet.ring.batch_frames import BYTES, TEXT
from shmjet.spark.protocol import Content
from shmjet.spark.schema import Field

_TOGETHER = 16
"""Columns whose statements are one method: Java's compiler leaves methods of more than 8000 bytes uncompiled."""
_PARTS = ("writer.java", "attempt.java")


@dataclass(frozen=True)
class _Kind:
    """How a column of fixed width is copied.

    Args:
        dtype: of the column's physical values.
        put: Platform's method for its width.
        value: what is read from a row, with a place for the column's number.
        zero: what a null is.
    """

    dtype: str
    put: str
    value: str
    zero: str = "0L"


_LONG = ("putLong", "row.getLong({})")
_DAYS = ("putLong", "(long) row.getInt({})")
_KINDS = {
    "int8": _Kind("int8", "putByte", "row.getByte({})", "(byte) 0"),
    "int16": _Kind("int16", "putShort", "row.getShort({})", "(short) 0"),
    "int32": _Kind("int32", "putInt", "row.getInt({})", "0"),
    "int64": _Kind("int64", *_LONG),
    "float32": _Kind("float32", "putInt", "row.getInt({})", "0"),
    "float64": _Kind("float64", *_LONG),
    "bool": _Kind("bool", "putByte", "row.getBoolean({}) ? (byte) 1 : (byte) 0", "(byte) 0"),
    "date": _Kind("datetime64[D]", *_DAYS),
    "timestamp": _Kind("datetime64[us]", *_LONG),
    "timestamp_ntz": _Kind("datetime64[us]", *_LONG),
    "duration": _Kind("timedelta64[us]", *_LONG),
    "months": _Kind("timedelta64[M]", *_DAYS),
    "time": _Kind("timedelta64[ns]", *_LONG),
    "null": _Kind("float64", "putLong", "0L"),
}
_VARIABLE = {"text": TEXT, "bytes": BYTES}


def is_writable(fields: Sequence[Field]) -> bool:
    """Whether the writer knows all columns: it leaves out decimals of many digits, and what is nested."""
    return all(field.kind in _VARIABLE or _kind(field) is not None for field in fields)


def _kind(field: Field) -> _Kind | None:
    if field.kind == "decimal" and field.digits <= NARROW_DIGITS:
        return _Kind("int64", *_LONG)
    return _KINDS.get(field.kind)


def _fixed(field: Field) -> _Kind:
    kind = _kind(field)
    assert kind is not None, f"{field.name}: {field.kind}"
    return kind


def schema_text(fields: Sequence[Field]) -> str:
    """Return how a batch describes its columns (`docs/formats/batch.md`): each without and with a mask, in turn.

    Example:
        >>> schema_text([Field("a", "int64")])
        "('a', '<i8', False)\\n('a', '<i8', True)"
    """
    return "\n".join(repr((field.name, _described(field), masked)) for field in fields for masked in (False, True))


def source_of(fields: Sequence[Field], nullable: Sequence[bool]) -> str:
    """Return the body of the class.

    Args:
        fields: for which `is_writable`.
        nullable: of each, whether there may be nulls.
    """
    columns = range(len(fields))
    may_miss = [can or field.kind == "null" for field, can in zip(fields, nullable, strict=True)]
    width = sum(_width(field) or 8 for field in fields) + sum(may_miss)
    calls = [f"cells{first}(row, n);" for first in columns[::_TOGETHER]]
    cells = [
        "\n".join(
            [
                f"    void cells{first}(org.apache.spark.sql.catalyst.expressions.UnsafeRow row, int n) {{",
                *(_cell(i, fields[i], may_miss[i]) for i in columns[first : first + _TOGETHER]),
                "    }\n",
            ]
        )
        for first in columns[::_TOGETHER]
    ]
    parts = [f"part(frame, {i}, {_width(field)});" for i, field in enumerate(fields)]
    allocations = [_allocation(i, fields[i], may_miss[i]) for i in columns]
    body = _template()
    for place, text in {
        "$allocations": "\n        ".join(allocations),
        "$calls": "\n        ".join(calls),
        "$cells": "\n".join(cells),
        "$columns": str(len(fields)),
        "$content": str(int(Content.BATCH)),
        "$isFixed": "false" if any(field.kind in _VARIABLE for field in fields) else "true",
        "$parts": "\n        ".join(parts),
        "$width": str(width),
    }.items():
        body = body.replace(place, text)
    return body


@cache
def _template() -> str:
    return "\n".join(Path(__file__).with_name(name).read_text("utf-8") for name in _PARTS)


def _described(field: Field) -> object:
    if field.kind in _VARIABLE:
        return _VARIABLE[field.kind]
    kind = field.column_kind
    return np.lib.format.dtype_to_descr(kind) if isinstance(kind, np.dtype) else str(kind)


def _width(field: Field) -> int:
    """Return the bytes of a value; 0 for text and bytes."""
    return 0 if field.kind in _VARIABLE else np.dtype(_fixed(field).dtype).itemsize


def _allocation(column: int, field: Field, may_miss: bool) -> str:
    width = _width(field)
    if width:
        made = f"fixed[{column}] = new byte[most * {width}];"
    else:
        made = f"ends[{column}] = new byte[(most + 1) * 8]; texts[{column}] = new byte[1024];"
    if may_miss:
        made += f" masks[{column}] = new byte[most]; nulls[{column}] = true;"
    return made


def _cell(column: int, field: Field, may_miss: bool) -> str:
    """Return the statements for one value of a row."""
    if field.kind in _VARIABLE:
        take = f"text({column}, n, row, row.getLong({column}));"
        leave = f"end({column}, n, used[{column}]);"
    else:
        kind = _fixed(field)
        place = f"(long) org.apache.spark.unsafe.Platform.BYTE_ARRAY_OFFSET + {_width(field)}L * n"
        put = f"org.apache.spark.unsafe.Platform.{kind.put}(fixed[{column}], {place}, "
        take, leave = f"{put}{kind.value.format(column)});", f"{put}{kind.zero});"
    if not may_miss:
        return f"        {take}"
    return f"        if (row.isNullAt({column})) {{ missing({column}, n); {leave} }} else {{ {take} }}"
