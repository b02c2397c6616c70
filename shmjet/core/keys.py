"""Canonical bytes of keys, and the partition they give.

Keys that are equal in Python must meet on every path: objects, columns, maps, other engines. So each key has one
canonical byte string, and its partition is murmur3_32 of these bytes modulo the partition count. The rules and the
layout are in docs/formats/keys.md; `shmjet._native.partition_of` is a fast path for exact builtin types and asks
`canonical_bytes` for everything else. Nothing here knows who owns a partition.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import struct
import sys
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from shmjet._native import partition_of

DEFAULT_PARTITION_COUNT = 271
DEFAULT_TO_ONE_KEY = "shmjet.all_to_one"
"""The key whose partition receives everything on an `all_to_one()` edge that names no key."""

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_CANONICAL_NAN = struct.pack("<d", float("nan"))
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_EPOCH_NAIVE = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)
_LARGEST_EXPONENT = 400
"""No float lies beyond 10**400; a larger Decimal is not expanded to an integer."""

# A tagged form is one of these bytes followed by the payload; canonical_bytes() leaves the tag of the plain ones out.
INTEGER, FLOAT, TEXT, BYTES = b"i", b"f", b"s", b"b"
_PLAIN = frozenset((INTEGER, FLOAT, TEXT, BYTES))
NONE, LARGE_INTEGER, TUPLE, DECIMAL, UUID, ENUM, RECORD, CUSTOM = b"N", b"I", b"t", b"D", b"u", b"e", b"r", b"c"
DATE, NAIVE_DATETIME, AWARE_DATETIME, NAIVE_TIME, AWARE_TIME, DURATION = b"d", b"T", b"Z", b"h", b"H", b"p"

Tagged = tuple[bytes, bytes]


def canonical_bytes(key: Any) -> bytes:
    """Return the bytes whose hash decides a key's partition.

    Numbers with an integral value within 64 bits give 8 bytes little-endian, other floats their IEEE bits, text its
    UTF-8, bytes themselves; the rest is tagged. So `1`, `1.0`, `True` and `numpy.int8(1)` give the same.

    Args:
        key: None, a number, text, bytes, date or time, `Decimal`, `UUID`, an enum's member, a tuple or frozen
            dataclass of such, or an object with a method `__partition_key__()` that returns such.

    Raises:
        TypeError: another type; the text names it and says what to do.

    Example:
        >>> canonical_bytes("jet"), canonical_bytes(258.0), canonical_bytes(None)
        (b'jet', b'\\x02\\x01\\x00\\x00\\x00\\x00\\x00\\x00', b'N')
    """
    try:
        custom = getattr(key, "__partition_key__", None)
        if custom is not None and not isinstance(key, type):
            return canonical_bytes(custom())
        tag, payload = _tagged(key)
    except RecursionError:
        raise TypeError(_too_deep(key)) from None
    return payload if tag in _PLAIN else tag + payload


def canonical_tagged(key: Any) -> bytes:
    """Return bytes that are equal for two keys exactly if the keys are: fit to be a map's key.

    As `canonical_bytes`, with a byte in front that tells numbers, text, bytes and the rest apart.

    Raises:
        TypeError: as `canonical_bytes`.

    Example:
        >>> canonical_tagged("a"), canonical_tagged(b"a")
        (b'sa', b'ba')
    """
    try:
        tag, payload = _tagged(key)
    except RecursionError:
        raise TypeError(_too_deep(key)) from None
    return tag + payload


def partition_id(key: Any, count: int = DEFAULT_PARTITION_COUNT) -> int:
    """Return the partition of a key, from 0 to `count - 1`.

    Raises:
        TypeError: as `canonical_bytes`.

    Example:
        >>> partition_id(1) == partition_id(True) == partition_id(1.0)
        True
    """
    return partition_of(key, count, canonical_bytes)


def default_partitioner(key: Any, partition_count: int) -> int:
    """The partitioner of edges that name none; the same as `partition_id(key, partition_count)`.

    Example:
        >>> default_partitioner("a", 271) == partition_id("a")
        True
    """
    return partition_of(key, partition_count, canonical_bytes)


class PartitionCount:
    """A partitioner that hashes keys as the default one does, into a number of partitions of its own.

    Partition `p` belongs to processor `p mod n` of the `n` that there are. The engine knows this partitioner and asks
    it for no key, so it costs as little as none.

    Args:
        count: number of partitions, at least 1.

    Raises:
        ValueError: it is below 1.

    Example:
        >>> PartitionCount(4)("a", 271) == partition_id("a", 4)
        True
    """

    def __init__(self, count: int) -> None:
        if count < 1:
            raise ValueError(f"PartitionCount: the number of partitions must be at least 1, got {count}")
        self.count = count

    def __call__(self, key: Any, partition_count: int) -> int:
        """Return the partition, brought into the range that an edge of `partition_count` partitions allows."""
        return partition_id(key, self.count) % partition_count

    @property
    def __name__(self) -> str:
        """What drawings and messages call it."""
        return f"{self.count} partitions"


def _tagged(key: Any) -> Tagged:
    encode = _BY_EXACT_TYPE.get(type(key))
    if encode is not None:
        return encode(key)
    custom = getattr(key, "__partition_key__", None)
    if custom is not None and not isinstance(key, type):
        return CUSTOM, _parts([_type_name(key), custom()])
    encode = _numpy_encoder(key)
    if encode is not None:
        return encode(key)
    for kind, encode in _BY_BASE.items():
        if isinstance(key, kind):
            if kind in _EQUAL_AS_BASE:
                _require_equality_of(kind, key)
            return encode(key)
    if isinstance(key, enum.Enum):
        _require_equality_of(enum.Enum, key)
        return ENUM, _parts([_type_name(key), key.name])
    if dataclasses.is_dataclass(key) and not isinstance(key, type):
        return _record(key)
    raise TypeError(_refusal(key))


def _require_equality_of(base: type, key: Any) -> None:
    """Refuse a key of a class that says in its own way what is equal: equal ones could lie in two partitions.

    A class that hashes as its base cannot call two keys equal that its base does not.
    """
    kind = type(key)
    own = kind.__eq__ is not base.__eq__ and kind.__hash__ is not base.__hash__
    if own and kind.__module__ != "numpy":  # whose text and bytes compare as Python's
        raise TypeError(_own_equality(key))


def _own_equality(key: Any) -> str:
    return (
        f"{_shown(key)} cannot be a key: {_type_name(key)} has an __eq__() of its own or compares by identity, so "
        "keys that it calls equal might not meet; give the class a method __partition_key__() that returns the same "
        "for equal ones, or pass a key_fn"
    )


def _numpy_encoder(key: Any) -> Callable[[Any], Tagged] | None:
    """Return how a numpy number is encoded; numpy is asked only where something has loaded it."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(key, numpy.number | numpy.bool_):
        return None
    if isinstance(key, numpy.floating):
        return _float
    if isinstance(key, numpy.integer | numpy.bool_) and not isinstance(key, numpy.timedelta64):
        return _integer
    raise TypeError(_refusal(key))


def _integer(key: Any) -> Tagged:
    value = int(key)
    if _LEAST <= value <= _MOST:
        return INTEGER, value.to_bytes(8, "little", signed=True)
    try:
        near = float(value)
    except OverflowError:
        near = 0.0
    if near == value:  # equal to a float, so it has to meet that float
        return FLOAT, struct.pack("<d", near)
    return LARGE_INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)


def _float(key: Any) -> Tagged:
    value = float(key)
    if value.is_integer() and _LEAST <= value <= _MOST + 1:
        exact = int(value)
        if exact <= _MOST:
            return INTEGER, exact.to_bytes(8, "little", signed=True)
    if value != value:
        return FLOAT, _CANONICAL_NAN
    return FLOAT, struct.pack("<d", value)


def _decimal(key: decimal.Decimal) -> Tagged:
    if key.is_nan():
        return FLOAT, _CANONICAL_NAN
    if key.is_infinite():
        return _float(float(key))
    if key.adjusted() < _LARGEST_EXPONENT and key == key.to_integral_value():
        return _integer(key)
    if decimal.Decimal(float(key)) == key:
        return _float(float(key))
    sign, digits, exponent = key.as_tuple()
    text = "".join(map(str, digits))
    stripped = text.rstrip("0")
    assert isinstance(exponent, int)
    return DECIMAL, _parts([sign, stripped.lstrip("0"), exponent + len(text) - len(stripped)])


def _text(key: str) -> Tagged:
    return TEXT, str.encode(key, "utf-8", "surrogatepass")


def _bytes(key: bytes) -> Tagged:
    return BYTES, bytes(key)


def _tuple(key: tuple[Any, ...]) -> Tagged:
    return TUPLE, _parts(key)


def _none(key: None) -> Tagged:
    return NONE, b""


def _date(key: datetime.date) -> Tagged:
    return DATE, _parts([key.toordinal()])


def _datetime(key: datetime.datetime) -> Tagged:
    if key.utcoffset() is None:
        return NAIVE_DATETIME, _parts([(key.replace(tzinfo=None) - _EPOCH_NAIVE) // _MICROSECOND])
    return AWARE_DATETIME, _parts([(key - _EPOCH) // _MICROSECOND])


def _time(key: datetime.time) -> Tagged:
    since_midnight = ((key.hour * 60 + key.minute) * 60 + key.second) * 1_000_000 + key.microsecond
    offset = key.utcoffset()
    if offset is None:
        return NAIVE_TIME, _parts([since_midnight])
    return AWARE_TIME, _parts([since_midnight - offset // _MICROSECOND])


def _duration(key: datetime.timedelta) -> Tagged:
    return DURATION, _parts([key // _MICROSECOND])


def _uuid(key: uuid.UUID) -> Tagged:
    return UUID, key.bytes


def _record(key: Any) -> Tagged:
    parameters = getattr(type(key), "__dataclass_params__", None)
    if not getattr(parameters, "frozen", False):
        raise TypeError(
            f"{key!r} cannot be a key: dataclass {_type_name(key)} is not frozen, so its value could change; "
            "say @dataclass(frozen=True), or give it a method __partition_key__()"
        )
    if not _compares_fields(type(key)):
        raise TypeError(_own_equality(key))
    return RECORD, _parts([_type_name(key), *(getattr(key, f.name) for f in dataclasses.fields(key) if f.compare)])


def _compares_fields(kind: type) -> bool:
    """Say whether `==` of a dataclass is what the decorator makes, or the hash, which tells no two equal ones apart."""
    return any(_is_made(getattr(kind, name)) for name in ("__eq__", "__hash__"))


def _is_made(method: Any) -> bool:
    code = getattr(method, "__code__", None)
    return code is not None and code.co_filename == "<string>"


def _parts(values: Sequence[Any]) -> bytes:
    """Return each value's tagged form behind its length in 4 bytes little-endian."""
    encoded = [canonical_tagged(value) for value in values]
    return b"".join([piece for form in encoded for piece in (len(form).to_bytes(4, "little"), form)])


def _type_name(key: Any) -> str:
    return f"{type(key).__module__}.{type(key).__qualname__}"


def _too_deep(key: Any) -> str:
    return (
        f"a {_type_name(key)} cannot be a key: what it consists of is nested too deeply, or its __partition_key__() "
        "returns objects with such a method without end; make it text, a number or a flat tuple"
    )


def _refusal(key: Any) -> str:
    kind = type(key)
    advice = "give its class a method __partition_key__() that returns one, or pass a key_fn"
    if isinstance(key, bytearray | memoryview):
        advice = "make it bytes(...)"
    elif isinstance(key, list):
        advice = "make it a tuple(...)"
    elif isinstance(key, set | frozenset):
        advice = "make it a tuple(sorted(...))"
    elif kind.__module__ == "numpy":
        advice = "convert it with .item() or str()"
    return (
        f"{_shown(key)} of type {_type_name(key)} cannot be a key: keys are None, numbers, text, bytes, dates, times, "
        f"Decimal, UUID, enums, and tuples and frozen dataclasses of these; {advice}"
    )


def _shown(key: Any) -> str:
    text = repr(key)
    return text if len(text) <= 80 else text[:79] + "…"


_BY_BASE: dict[type, Callable[[Any], Tagged]] = {
    str: _text,
    bytes: _bytes,
    int: _integer,
    float: _float,
    tuple: _tuple,
    datetime.datetime: _datetime,
    datetime.date: _date,
    datetime.time: _time,
    datetime.timedelta: _duration,
    decimal.Decimal: _decimal,
    uuid.UUID: _uuid,
}
"""For subclasses, which compare as their base does; `datetime` stands before `date`, its base."""

_EQUAL_AS_BASE = frozenset((str, bytes, int, float, tuple))
"""Bases whose subclasses are asked whether they have an equality of their own; those of dates only refine it."""

_BY_EXACT_TYPE: dict[type, Callable[[Any], Tagged]] = {
    **_BY_BASE,
    bool: _integer,
    type(None): _none,
}
