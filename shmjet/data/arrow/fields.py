"""Which types of Arrow are which kinds of columns: format strings, as the C data interface writes types.

A type that is not here has no column that holds its values, and the error names it. Must not know buffers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from shmjet.data.column_types import (
    MOST_DIGITS,
    CategoryType,
    ColumnType,
    DecimalType,
    Kind,
    ListType,
    StructType,
    ZonedType,
)
from shmjet.data.errors import BatchError

if TYPE_CHECKING:
    from shmjet._native._arrow import SchemaTree

NULLABLE: Final = 2

NUMBERS: Final[dict[str, np.dtype[Any]]] = {
    "c": np.dtype(np.int8),
    "C": np.dtype(np.uint8),
    "s": np.dtype(np.int16),
    "S": np.dtype(np.uint16),
    "i": np.dtype(np.int32),
    "I": np.dtype(np.uint32),
    "l": np.dtype(np.int64),
    "L": np.dtype(np.uint64),
    "e": np.dtype(np.float16),
    "f": np.dtype(np.float32),
    "g": np.dtype(np.float64),
}
BOOL: Final = np.dtype(np.bool_)
DAYS: Final = np.dtype("M8[D]")
MONTHS: Final = np.dtype("m8[M]")
NOTHING: Final = np.dtype(np.float64)
"""The dtype of a column of nulls alone, as of a list of None."""

TEXTS: Final = {"u": "text", "U": "text", "vu": "text", "z": "bytes", "Z": "bytes", "vz": "bytes"}
UNITS: Final = {"s": "s", "m": "ms", "u": "us", "n": "ns"}
LETTERS: Final = {unit: letter for letter, unit in UNITS.items()}

_DECIMAL: Final = re.compile(r"d:(\d+),(-?\d+)(?:,(\d+))?")
_FIXED_BYTES: Final = re.compile(r"w:(\d+)")
_FIXED_LIST: Final = re.compile(r"\+w:(\d+)")
_TIME: Final = re.compile(r"tt([smun])")
_INSTANT: Final = re.compile(r"ts([smun]):(.*)", re.DOTALL)
_SPAN: Final = re.compile(r"tD([smun])")

_NAMES: Final = {
    "tiD": "interval of days and milliseconds",
    "tin": "interval of months, days and nanoseconds",
    "+vl": "list view",
    "+vL": "large list view",
}


@dataclass(frozen=True, slots=True)
class Field:
    """A column, or a part of a nested one, as a producer describes it.

    Args:
        name: of the field.
        format: its type.
        path: where it is, for messages.
        children: of a nested type.
        dictionary: of the values, where `format` is that of indices.
        extension: name of the extension type, whose storage all else describes; empty for none.
    """

    name: str
    format: str
    path: str
    children: tuple[Field, ...]
    dictionary: Field | None
    extension: str

    @classmethod
    def of(cls, tree: SchemaTree, path: str = "") -> Field:
        """Return what a schema describes."""
        code, name, metadata, _, children, dictionary = tree
        where = f"{path}.{name}" if path else name
        return cls(
            name,
            code,
            where,
            tuple(cls.of(child, where) for child in children),
            None if dictionary is None else cls.of(dictionary, where),
            _pairs(metadata).get(b"ARROW:extension:name", b"").decode("utf-8", "replace"),
        )

    def error(self, text: str) -> BatchError:
        """Return an error that names the column."""
        return BatchError(f"column {self.path!r}: {text}")

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Match the format."""
        return pattern.fullmatch(self.format)

    # -- parts of formats ----------------------------------------------------------------------------------------------

    @property
    def decimal(self) -> tuple[int, int, int] | None:
        """Precision, scale and bits of a decimal; None for others."""
        found = self.match(_DECIMAL)
        if found is None:
            return None
        bits = int(found[3] or 128)
        if bits not in (32, 64, 128, 256):
            raise self.error(f"a decimal of {bits} bits is not known")
        return int(found[1]), int(found[2]), bits

    @property
    def byte_width(self) -> int | None:
        """Bytes of each value of fixed-size binary; None for others."""
        found = self.match(_FIXED_BYTES)
        return None if found is None else self._size(found[1])

    @property
    def list_size(self) -> int | None:
        """Items of each value of a fixed-size list; None for others."""
        found = self.match(_FIXED_LIST)
        return None if found is None else self._size(found[1])

    def _size(self, digits: str) -> int:
        size = int(digits)
        if size >= 1 << 31:
            raise self.error(f"a fixed size of {digits} is too large")
        return size

    @property
    def is_list(self) -> bool:
        """Whether the values are lists, of a fixed size or not; a map is a list of its entries."""
        return self.format in ("+l", "+L", "+m") or self.list_size is not None

    def check_children(self, count: int) -> None:
        """Check the number of children. Raises BatchError."""
        if len(self.children) != count:
            raise self.error(f"its type {self.format!r} needs {count} children, and has {len(self.children)}")

    # -- kinds ---------------------------------------------------------------------------------------------------------

    def kind(self) -> Kind:
        """Return the kind of the column that holds the values.

        Raises:
            BatchError: there is none; the text names the type.
        """
        if self.dictionary is not None:
            values = self.dictionary.kind()
            return CategoryType() if values == "text" else values
        code = self.format
        if code in NUMBERS:
            return BOOL if self.extension == "arrow.bool8" and code == "c" else NUMBERS[code]
        if code in TEXTS:
            return TEXTS[code]
        if code == "b":
            return BOOL
        if code == "n":
            return NOTHING
        if self.byte_width is not None:
            return "bytes"
        if self.decimal is not None:
            return self._decimal_kind(*self.decimal)
        if code.startswith("t"):
            return self._time_kind()
        if code == "+r":
            self.check_children(2)
            return self.children[1].kind()
        if code == "+s":
            return self._checked(lambda: StructType(tuple((child.name, child.kind()) for child in self.children)))
        if self.is_list:
            self.check_children(1)
            return self._checked(lambda: ListType(self.children[0].kind()))
        raise self.unknown()

    def _checked(self, make: Any) -> Kind:
        try:
            kind: Kind = make()
        except BatchError as error:
            raise error if str(error).startswith("column ") else self.error(str(error)) from None
        return kind

    def _decimal_kind(self, precision: int, scale: int, bits: int) -> Kind:
        if scale < 0:  # counts of 10, 100 ...: the same numbers without a scale
            precision, scale = precision - scale, 0
        if precision > MOST_DIGITS and bits < 256:
            raise self.error(f"decimals of {precision} digits do not fit; at most {MOST_DIGITS} do")
        return self._checked(lambda: DecimalType(min(precision, MOST_DIGITS), scale))

    def _time_kind(self) -> Kind:
        if self.format in ("tdD", "tdm"):
            return DAYS
        if self.format == "tiM":
            return MONTHS
        instant = self.match(_INSTANT)
        if instant is not None:
            unit, zone = UNITS[instant[1]], instant[2]
            return self._checked(lambda: ZonedType(unit, zone)) if zone else np.dtype(f"M8[{unit}]")
        span = self.match(_SPAN) or self.match(_TIME)
        if span is not None:
            return np.dtype(f"m8[{UNITS[span[1]]}]")
        raise self.unknown()

    def unknown(self) -> BatchError:
        """Return the error for a type that no column holds."""
        if self.format.startswith("+u"):
            name = "union"
        else:
            name = _NAMES.get(self.format, "")
        shown = f"{name} ({self.format!r})" if name else repr(self.format)
        return self.error(f"values of the Arrow type {shown} cannot be a column; cast them where they are made")


def _pairs(metadata: bytes | None) -> dict[bytes, bytes]:
    """Return the metadata of a field, whose lengths are known to be right."""
    if not metadata:
        return {}
    at = 4
    parts = []
    while at < len(metadata):
        size = int.from_bytes(metadata[at : at + 4], "little")
        parts.append(metadata[at + 4 : at + 4 + size])
        at += 4 + size
    return dict(zip(parts[::2], parts[1::2], strict=True))


# -- what is written ---------------------------------------------------------------------------------------------------

_FORMATS: Final = {dtype: code for code, dtype in NUMBERS.items()}

DAY_UNITS: Final = ("Y", "M", "W", "D")
"""Units of dates; written as days."""


def schema_of(name: str, kind: Kind) -> SchemaTree:
    """Return how a column of a kind is described to others.

    Raises:
        BatchError: Arrow has no type for it.

    Example:
        >>> schema_of("a", np.dtype("int16"))
        ('s', 'a', None, 2, (), None)
    """
    if isinstance(kind, CategoryType):
        return "i", name, None, NULLABLE, (), schema_of("", "text")
    if isinstance(kind, ListType):
        return "+L", name, None, NULLABLE, (schema_of("item", kind.item),), None
    if isinstance(kind, StructType):
        return "+s", name, None, NULLABLE, tuple(schema_of(*field) for field in kind.fields), None
    if isinstance(kind, np.dtype) and kind.names is not None:
        inner = tuple(schema_of(field, kind[field]) for field in kind.names)
        return "+s", name, None, NULLABLE, inner, None
    return _format_of(name, kind), name, None, NULLABLE, (), None


def _format_of(name: str, kind: Kind) -> str:
    if isinstance(kind, DecimalType):
        return f"d:{kind.precision},{kind.scale}"
    if isinstance(kind, ZonedType):
        return f"ts{LETTERS[kind.unit]}:{kind.zone}"
    if not isinstance(kind, str | ColumnType):
        if kind in _FORMATS:
            return _FORMATS[kind]
        if kind == BOOL:
            return "b"
        if kind.kind == "V" and not kind.subdtype:
            return f"w:{kind.itemsize}"
        if kind.kind == "U":
            return "U"
        if kind.kind == "S":
            return "Z"
        if kind.kind in "mM":
            unit = np.datetime_data(kind)[0]
            if kind.kind == "M" and unit in DAY_UNITS:
                return "tdD"
            if kind.kind == "m" and unit in ("Y", "M"):
                return "tiM"
            if unit in ("W", "D", "h", "m", "s", "ms", "us", "ns"):
                letter = LETTERS.get(unit, "s")
                return f"ts{letter}:" if kind.kind == "M" else f"tD{letter}"
    elif kind in ("text", "bytes"):
        return "U" if kind == "text" else "Z"
    raise BatchError(f"column {name!r} has {kind} values, for which Arrow has no type; convert it with astype first")


def written_dtype(code: str) -> np.dtype[Any] | None:
    """Return numpy's dtype for dates and spans of time of a format, as 64 bits; None for others."""
    if code == "tdD":
        return DAYS
    if code == "tiM":
        return MONTHS
    if code[:2] in ("ts", "tD"):
        return np.dtype(f"{'M8' if code[1] == 's' else 'm8'}[{UNITS[code[2]]}]")
    return None
