"""Types of columns: what a column of a batch holds, where a numpy dtype does not say it.

The kind of a column is a numpy dtype of fixed width, `"text"` or `"bytes"`, or a `ColumnType`: decimals, instants with
a time zone, categories, lists and structs. `str()` of a kind is a word that `kind_of` reads back. Here is only what the
types are and how they are written; `TypedColumn` has the values.
"""

from __future__ import annotations

import ast
import datetime
import decimal
import functools
import re
import zoneinfo
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from shmjet.data.errors import BatchError

MOST_DIGITS: Final = 38
"""Digits of the longest decimal."""

NARROW_DIGITS: Final = 18
"""Decimals of up to so many digits are stored in 64 bits, longer ones in 128."""

WIDE: Final = np.dtype("V16")
"""How decimals of more digits are stored: little-endian two's complement of 128 bits."""

ZONE_UNITS: Final = ("s", "ms", "us", "ns")
DEFAULT_SCALE: Final = 9
"""Digits after the point of `decimal.Decimal` as a word for a type."""

_INT64: Final = np.dtype(np.int64)


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The base of the types that numpy has no dtype for."""

    @property
    def stored(self) -> PhysicalKind:
        """The kind of the physical values: a numpy dtype, `"text"` or `"bytes"`."""
        raise NotImplementedError

    @property
    def is_nested(self) -> bool:
        """Whether the values are lists or structs, which are carried and compared for equality only."""
        return False

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True, slots=True, repr=False)
class DecimalType(ColumnType):
    """Exact decimal numbers of at most `precision` digits, of which `scale` are after the point.

    Args:
        precision: from 1 to 38.
        scale: from 0 to `precision`.

    Raises:
        BatchError: a number is out of range.

    Example:
        >>> str(DecimalType(15, 2))
        'decimal(15, 2)'
    """

    precision: int
    scale: int

    def __post_init__(self) -> None:
        if not 1 <= self.precision <= MOST_DIGITS or not 0 <= self.scale <= self.precision:
            raise BatchError(
                f"decimal({self.precision}, {self.scale}) is not a type: a decimal has 1 to {MOST_DIGITS} digits, of "
                "which 0 to all are after the point"
            )

    @property
    def stored(self) -> PhysicalKind:
        """int64 of unscaled values up to 18 digits, else 128 bits."""
        return _INT64 if self.precision <= NARROW_DIGITS else WIDE

    def __str__(self) -> str:
        return f"decimal({self.precision}, {self.scale})"


@dataclass(frozen=True, slots=True, repr=False)
class ZonedType(ColumnType):
    """Instants, shown as the time of day in a zone.

    Args:
        unit: `"s"`, `"ms"`, `"us"` or `"ns"`.
        zone: an IANA name (`"Europe/Berlin"`, `"UTC"`) or a fixed offset (`"+02:00"`).

    Raises:
        BatchError: there is no such unit or zone.

    Example:
        >>> str(ZonedType("us", "Europe/Berlin"))
        'timestamp[us, Europe/Berlin]'
    """

    unit: str
    zone: str

    def __post_init__(self) -> None:
        if self.unit not in ZONE_UNITS:
            raise BatchError(f"timestamps have the units {', '.join(ZONE_UNITS)}, got {self.unit!r}")
        zone_of(self.zone)

    @property
    def stored(self) -> PhysicalKind:
        """`datetime64[unit]` of UTC."""
        return np.dtype(f"M8[{self.unit}]")

    @property
    def tzinfo(self) -> datetime.tzinfo:
        """The zone as Python has it."""
        return zone_of(self.zone)

    def __str__(self) -> str:
        return f"timestamp[{self.unit}, {self.zone}]"


@dataclass(frozen=True, slots=True, repr=False)
class CategoryType(ColumnType):
    """Text of which many values are equal; it compares and sorts by the text.

    Example:
        >>> str(CategoryType())
        'category'
    """

    @property
    def stored(self) -> PhysicalKind:
        """`"text"`."""
        return "text"

    def __str__(self) -> str:
        return "category"


@dataclass(frozen=True, slots=True, repr=False)
class ListType(ColumnType):
    """Lists of items of one kind.

    Example:
        >>> str(ListType(np.dtype("int64")))
        'list<int64>'
    """

    item: Kind

    def __post_init__(self) -> None:
        _check_inner("a list", self.item)

    @property
    def stored(self) -> PhysicalKind:
        """`"bytes"`: the encoding of `shmjet.data.nested_values`."""
        return "bytes"

    @property
    def is_nested(self) -> bool:
        """True."""
        return True

    def __str__(self) -> str:
        return f"list<{self.item}>"


@dataclass(frozen=True, slots=True, repr=False)
class StructType(ColumnType):
    """Dicts of the same names, each name with values of one kind.

    Args:
        fields: (name, kind) for each.

    Example:
        >>> str(StructType((("a", np.dtype("int64")), ("b c", "text"))))
        "struct<a: int64, 'b c': text>"
    """

    fields: tuple[tuple[str, Kind], ...]

    def __post_init__(self) -> None:
        names = [name for name, _ in self.fields]
        if len(set(names)) < len(names):
            raise BatchError(f"a struct needs different names, got {names}")
        for name, kind in self.fields:
            _check_inner(f"the field {name!r}", kind)

    @property
    def stored(self) -> PhysicalKind:
        """`"bytes"`: the encoding of `shmjet.data.nested_values`."""
        return "bytes"

    @property
    def is_nested(self) -> bool:
        """True."""
        return True

    def __str__(self) -> str:
        fields = (f"{name if name.isidentifier() else repr(name)}: {kind}" for name, kind in self.fields)
        return f"struct<{', '.join(fields)}>"


PhysicalKind: TypeAlias = np.dtype[Any] | str
"""A numpy dtype, `"text"` or `"bytes"`: what kernels know."""

Kind: TypeAlias = np.dtype[Any] | str | ColumnType
"""The kind of a column: a numpy dtype, `"text"`, `"bytes"`, or a `ColumnType`."""


def physical_kind(name: str, kind: Kind) -> PhysicalKind:
    """Return a kind that kernels know as it is.

    Args:
        name: of the column, for the message.
        kind: any.

    Raises:
        BatchError: it is a `ColumnType`.
    """
    if isinstance(kind, ColumnType):
        raise BatchError(f"column {name!r} is of {kind}, which is not possible here; cast it, or leave it out")
    return kind


def _check_inner(where: str, kind: Kind) -> None:
    if isinstance(kind, ColumnType) or kind in ("text", "bytes"):
        return
    if isinstance(kind, str) or kind.kind not in "biufcmM":
        raise BatchError(f"the values of {where} must be numbers, dates, text or bytes, got {kind}")


# -- zones -------------------------------------------------------------------------------------------------------------

_OFFSET: Final = re.compile(r"([+-])(\d\d):?(\d\d)(?::?(\d\d))?")


@functools.cache
def zone_of(name: str) -> datetime.tzinfo:
    """Return a time zone by its name.

    Raises:
        BatchError: there is none of that name.
    """
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        sign, hours, minutes, seconds = offset.groups()
        span = datetime.timedelta(hours=int(hours), minutes=int(minutes), seconds=int(seconds or 0))
        if span < datetime.timedelta(days=1):
            return datetime.timezone(-span if sign == "-" else span)
    elif name in ("UTC", "Z"):
        return datetime.UTC
    else:
        try:
            return zoneinfo.ZoneInfo(name)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            pass
    raise BatchError(
        f"there is no time zone {name!r}; give an IANA name such as 'Europe/Berlin', or an offset such as '+02:00'"
    )


def zone_name(zone: datetime.tzinfo) -> str | None:
    """Return the name of a time zone that `zone_of` knows; None where it has none, as zones of local rules may."""
    if zone is datetime.UTC:
        return "UTC"
    name = getattr(zone, "key", None) or getattr(zone, "zone", None)  # zoneinfo, pytz
    if isinstance(name, str):
        try:
            zone_of(name)
        except BatchError:
            return None
        return name
    if isinstance(zone, datetime.timezone):
        seconds = zone.utcoffset(None) // datetime.timedelta(seconds=1)
        if seconds == 0:
            return "UTC"
        hours, rest = divmod(abs(seconds), 3600)
        if zone.utcoffset(None).microseconds:
            return None
        text = f"{'-' if seconds < 0 else '+'}{hours:02}:{rest // 60:02}"
        return f"{text}:{rest % 60:02}" if rest % 60 else text
    return None


# -- users' words ------------------------------------------------------------------------------------------------------

_WORDS: Final[dict[Any, Kind]] = {
    str: "text",
    "text": "text",
    "str": "text",
    bytes: "bytes",
    "bytes": "bytes",
    decimal.Decimal: DecimalType(MOST_DIGITS, DEFAULT_SCALE),
    "decimal": DecimalType(MOST_DIGITS, DEFAULT_SCALE),
}
_OURS: Final = re.compile(r"\s*(decimal\s*\(|timestamp\s*\[|category\b|list\s*<|struct\s*<)")


def kind_of(name: str, given: Any) -> Kind:
    """Return what a user's word for a column's type means.

    Args:
        name: of the column, for the message.
        given: anything that `numpy.dtype` takes, `str` or `"text"`, `bytes` or `"bytes"`, a `ColumnType`,
            `decimal.Decimal` (38 digits, 9 after the point), or what `str()` gives of a type: `"decimal(15, 2)"`,
            `"timestamp[us, Europe/Berlin]"`, `"category"`, `"list<int64>"`, `"struct<a: int64, b: text>"`.

    Raises:
        BatchError: it is not a type, or it is a type of objects.

    Example:
        >>> kind_of("a", int), kind_of("a", str), kind_of("a", "float32"), kind_of("a", "decimal(15, 2)")
        (dtype('int64'), 'text', dtype('float32'), decimal(15, 2))
    """
    if isinstance(given, ColumnType):
        return given
    try:
        if given in _WORDS:
            return _WORDS[given]
    except TypeError:  # cannot be hashed: a list that describes a structured dtype
        pass
    if isinstance(given, str) and _OURS.match(given):
        try:
            return _Reader(given).whole()
        except BatchError as error:
            raise BatchError(f"schema: column {name!r}: {error}") from None
    try:
        dtype = np.dtype(given)
    except TypeError:
        raise BatchError(
            f"schema: column {name!r} must be a numpy dtype, int, float, bool, str, bytes, Decimal, or a type such as "
            f"'decimal(15, 2)', 'timestamp[us, UTC]', 'category' or 'list<int64>', got {given!r}"
        ) from None
    if dtype.kind in "SU" and dtype.itemsize == 0:
        return "text" if dtype.kind == "U" else "bytes"
    if given is None or dtype.hasobject or dtype.itemsize == 0:
        raise BatchError(f"schema: column {name!r} must have values of a fixed width or text, got {given!r}")
    native: np.dtype[Any] = dtype.newbyteorder("=")
    return native


def is_typed_word(word: str) -> bool:
    """Whether a word is the text of a `ColumnType`."""
    return _OURS.match(word) is not None


def type_of_word(word: str) -> ColumnType:
    """Return the type whose text is `word`. Raises ValueError where it is none."""
    try:
        kind = _Reader(word).whole()
    except BatchError as error:
        raise ValueError(str(error)) from None
    if not isinstance(kind, ColumnType):
        raise ValueError(f"{word!r} is not the text of a column's type")
    return kind


class _Reader:
    """Reads the text of a type from left to right."""

    _NAME: Final = re.compile(r"""\s*('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s:,<>'"]+)\s*:""")
    _DECIMAL: Final = re.compile(r"\s*decimal\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
    _TIMESTAMP: Final = re.compile(r"\s*timestamp\s*\[\s*(\w+)\s*(?:,\s*(?:tz\s*=\s*)?([^\]\s]+)\s*)?\]")
    _WORD: Final = re.compile(r"\s*([A-Za-z]\w*(?:\[\w+\])?)")

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def whole(self) -> Kind:
        """Return the kind that the whole text names. Raises BatchError."""
        kind = self._kind()
        if self._text[self._at :].strip():
            raise self._wrong()
        return kind

    def _kind(self) -> Kind:
        if self._skip(r"list\s*<"):
            item = self._kind()
            self._expect(">")
            return ListType(item)
        if self._skip(r"struct\s*<"):
            return self._struct()
        found = self._read(self._DECIMAL)
        if found is not None:
            return DecimalType(int(found[1]), int(found[2] or 0))
        found = self._read(self._TIMESTAMP)
        if found is not None:
            return np.dtype(f"M8[{found[1]}]") if found[2] is None else ZonedType(found[1], found[2])
        found = self._read(self._WORD)
        if found is None:
            raise self._wrong()
        return CategoryType() if found[1] == "category" else kind_of("of it", found[1])

    def _struct(self) -> StructType:
        fields: list[tuple[str, Kind]] = []
        while not self._skip(">"):
            if fields:
                self._expect(",")
            found = self._read(self._NAME)
            if found is None:
                raise self._wrong()
            name = ast.literal_eval(found[1]) if found[1][0] in "'\"" else found[1]
            fields.append((name, self._kind()))
        return StructType(tuple(fields))

    def _read(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._text, self._at)
        if found is not None:
            self._at = found.end()
        return found

    def _skip(self, pattern: str) -> bool:
        return self._read(re.compile(r"\s*" + pattern)) is not None

    def _expect(self, mark: str) -> None:
        if not self._skip(re.escape(mark)):
            raise self._wrong()

    def _wrong(self) -> BatchError:
        return BatchError(f"{self._text!r} is not a type, from {self._text[self._at :]!r} on")
