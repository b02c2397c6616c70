"""Canonical key bytes: equal keys meet, others stay apart, and the layout is that of docs/formats/keys.md."""

import datetime as dt
import enum
import math
import re
import uuid
from collections import namedtuple
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import mmh3
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shmjet.core import default_partitioner, keys, partition_id
from shmjet.core.keys import PartitionCount, canonical_bytes, canonical_tagged

Point = namedtuple("Point", "x y")


class Colour(enum.Enum):
    RED = 1
    GREEN = 2


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    YES = "yes"


@dataclass(frozen=True)
class Sensor:
    site: str
    number: int
    note: str = field(default="", compare=False)


@dataclass(frozen=True)
class Meter:
    site: str
    number: int


@dataclass
class Mutable:
    x: int


class AnyCase(str):
    __slots__ = ()

    def __eq__(self, other):
        return isinstance(other, str) and self.lower() == other.lower()

    def __hash__(self):
        return hash(self.lower())


class Spread(AnyCase):
    __slots__ = ()

    def __partition_key__(self):
        return self.lower()


class Stricter(str):
    __slots__ = ()

    def __eq__(self, other):
        return type(other) is Stricter and str.__eq__(self, other)

    __hash__ = str.__hash__


class Remainder(int):
    def __eq__(self, other):
        return int(self) % 5 == int(other) % 5

    def __hash__(self):
        return int(self) % 5


class Unordered(tuple):
    __slots__ = ()

    def __eq__(self, other):
        return set(self) == set(other)

    def __hash__(self):
        return hash(frozenset(self))


class Twin(enum.Enum):
    A = 1
    B = 2

    def __eq__(self, other):
        return isinstance(other, Twin)

    def __hash__(self):
        return 1


@dataclass(frozen=True)
class Route:
    a: str
    b: str

    def __eq__(self, other):
        return {self.a, self.b} == {other.a, other.b}

    def __hash__(self):
        return hash(frozenset((self.a, self.b)))


@dataclass(frozen=True, eq=False)
class Ticket:
    number: int


@dataclass(frozen=True)
class Cached:
    number: int

    def __hash__(self):
        return self.number


class Custom:
    def __init__(self, region, city):
        self.region, self.city = region, city

    def __partition_key__(self):
        return self.region


numbers = (
    st.integers()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.booleans()
    | st.decimals(allow_nan=False)
    | st.sampled_from(
        [
            2**53,
            2.0**53,
            2**63,
            2.0**63,
            -(2**63),
            2**64,
            2.0**64,
            10**30,
            1e30,
            Decimal("1E+30"),
            0,
            -0.0,
            Decimal("-0"),
        ]
    )
    | st.integers(0, 100).map(np.int8)
    | st.floats(width=32).map(np.float32)
    | st.sampled_from([np.True_, np.uint64(2**64 - 1), np.float64(1.0), Level.LOW])
)
scalars = (
    numbers
    | st.none()
    | st.text()
    | st.binary()
    | st.datetimes()
    | st.datetimes(timezones=st.sampled_from([dt.UTC, dt.timezone(dt.timedelta(hours=2))]))
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.uuids()
    | st.sampled_from([*Colour, Word.YES, "yes"])
)
any_key = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)


def is_nan(key):
    return isinstance(key, float | np.floating) and math.isnan(key)


def plain(key):
    """Without numpy's scalars, whose own comparisons round or fail."""
    if isinstance(key, tuple):
        return tuple(map(plain, key))
    return key.item() if isinstance(key, np.generic) else key


def has_nan(key):
    return any(map(has_nan, key)) if isinstance(key, tuple) else is_nan(key)


@given(numbers, numbers)
def test_numbers_share_their_bytes_exactly_if_they_are_equal(a, b):
    assume(not is_nan(a) and not is_nan(b))
    assert (canonical_tagged(a) == canonical_tagged(b)) == (plain(a) == plain(b))


@given(any_key, any_key)
def test_tagged_bytes_are_equal_exactly_if_the_keys_are(a, b):
    assume(not has_nan(a) and not has_nan(b))
    assert (canonical_tagged(a) == canonical_tagged(b)) == (plain(a) == plain(b))


@given(any_key, st.integers(1, 65535))
def test_the_partition_is_murmur3_of_the_canonical_bytes(key, count):
    assert partition_id(key, count) == mmh3.hash(canonical_bytes(key), signed=False) % count
    assert default_partitioner(key, count) == partition_id(key, count)


@pytest.mark.parametrize(
    "equal_keys",
    [
        (1, 1.0, True, np.int8(1), np.uint64(1), np.float32(1), np.True_, Level.LOW, Decimal("1.00"), Decimal(1)),
        (2**70, 2.0**70, Decimal(2**70)),
        (0, 0.0, -0.0, False, Decimal("-0.0")),
        (1.5, np.float64(1.5), np.float32(1.5), Decimal("1.5")),
        (Decimal("0.1"), Decimal("0.10"), Decimal("1E-1")),
        (float("nan"), -float("nan"), np.float32("nan"), Decimal("nan")),
        (float("inf"), np.float32("inf"), Decimal("inf")),
        ("yes", Word.YES, np.str_("yes")),
        (b"x", np.bytes_(b"x")),
        ((1, 2), (1.0, 2.0), Point(1, 2)),
        (Sensor("a", 1, "x"), Sensor("a", 1, "y")),
        (
            dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC),
            dt.datetime(2024, 1, 1, 14, tzinfo=dt.timezone(dt.timedelta(hours=2))),
        ),
        (dt.datetime(2024, 1, 1, 12), dt.datetime(2024, 1, 1, 12, fold=1)),
        (
            dt.time(12, tzinfo=dt.UTC),
            dt.time(14, tzinfo=dt.timezone(dt.timedelta(hours=2))),
        ),
    ],
)
def test_equal_keys_meet(equal_keys):
    assert len({canonical_bytes(key) for key in equal_keys}) == 1
    assert len({canonical_tagged(key) for key in equal_keys}) == 1


def test_different_keys_stay_apart():
    apart = [
        None, 1, 2, 1.5, float("nan"), float("inf"), 2**63, 2**64, 2**70 + 1, -(2**70) - 1, "", "1", "N", b"1", b"N",
        b"", (), (1,), ((1,),), (1, 1), ("ab",), ("a", "b"),
        (None,), Colour.RED, Colour.GREEN, Sensor("a", 1), Meter("a", 1), Sensor("a", 2),
        dt.date(2024, 1, 1), dt.datetime(2024, 1, 1),
        dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.time(0), dt.time(0, tzinfo=dt.UTC), dt.timedelta(0),
        uuid.UUID(int=0), Decimal("0.1"),
        Decimal("1E+1000000"), Decimal("-0.1"), Custom("eu", "a"), "eu", "RED",
    ]  # fmt: skip
    assert len({canonical_tagged(key) for key in apart}) == len(apart)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (-2, b"\xfe" + b"\xff" * 7),
        (1.5, b"\0\0\0\0\0\0\xf8\x3f"),
        ("\u00e9", b"\xc3\xa9"),
        ("\ud800", b"\xed\xa0\x80"),
        (b"raw", b"raw"),
        (None, b"N"),
        (2**64 + 1, b"I\x01\0\0\0\0\0\0\0\x01"),
        ((None, "a"), b"t\x01\0\0\0N\x02\0\0\0sa"),
        (uuid.UUID(int=1), b"u" + b"\0" * 15 + b"\x01"),
        (dt.date(1, 1, 1), b"d\x09\0\0\0i\x01" + b"\0" * 7),
    ],
)
def test_the_layout_is_fixed(key, expected):
    assert canonical_bytes(key) == expected


def test_an_object_may_choose_its_partition_and_stays_itself_as_a_map_key():
    assert canonical_bytes(Custom("eu", "x")) == canonical_bytes("eu")
    assert partition_id(Custom("eu", "x")) == partition_id("eu")
    assert canonical_tagged(Custom("eu", "x")) != canonical_tagged("eu")


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ([1], r"make it a tuple\(\.\.\.\)"),
        ({1}, r"make it a tuple\(sorted"),
        ({}, "__partition_key__"),
        (bytearray(b"x"), r"make it bytes\(\.\.\.\)"),
        (object(), "__partition_key__"),
        (1j, "__partition_key__"),
        (np.datetime64("2024-01-01"), r"\.item\(\)"),
        (np.timedelta64(1, "s"), r"\.item\(\)"),
        (np.complex64(1), r"\.item\(\)"),
        (np.zeros(2), r"\.item\(\)"),
        ((1, [2]), "make it a tuple"),
        (Mutable(1), "not frozen"),
        (Custom, "__partition_key__"),
        (Sensor, "__partition_key__"),
    ],
)
@pytest.mark.parametrize("function", [canonical_bytes, canonical_tagged, partition_id])
def test_other_types_are_refused_with_advice(key, advice, function):
    with pytest.raises(TypeError, match=f"cannot be a key.*{advice}"):
        function(key)


class Endless:
    def __partition_key__(self):
        return Endless()


@pytest.mark.parametrize("function", [canonical_bytes, canonical_tagged, partition_id])
def test_a_key_that_is_nested_too_deeply_is_a_type_error(function):
    deep = ()
    for _ in range(100_000):
        deep = (deep,)
    for key in (deep, Endless()):
        with pytest.raises(TypeError, match=r"cannot be a key: what it consists of is nested too deeply.*flat tuple"):
            function(key)


@pytest.mark.parametrize(
    "key",
    [AnyCase("A"), Remainder(7), Unordered((2, 1)), Route("b", "a"), Ticket(1), Twin.B, (1, AnyCase("A"))],
    ids=repr,
)
@pytest.mark.parametrize("function", [canonical_bytes, canonical_tagged, partition_id])
def test_keys_that_are_equal_in_a_way_of_their_own_are_refused(key, function):
    with pytest.raises(TypeError, match=r"cannot be a key: .* has an __eq__\(\) of its own.*__partition_key__"):
        function(key)


def test_keys_with_an_equality_of_their_own_may_say_how_they_are_spread():
    assert partition_id(Spread("A")) == partition_id(Spread("a")) == partition_id("a")
    assert partition_id((1, Spread("A"))) == partition_id((1, Spread("a")))


def test_an_equality_that_tells_more_apart_is_fine():
    assert canonical_bytes(Stricter("a")) == b"a"
    assert canonical_bytes(Cached(1)) == canonical_bytes(Cached(1))
    assert canonical_bytes(np.str_("a")) == b"a"


def test_the_page_on_the_format_lists_every_tag():
    page = (Path(__file__).parents[2] / "docs" / "formats" / "keys.md").read_text()
    written = dict(re.findall(r"^\| `(\w)` \| (\w+) ", page, re.MULTILINE))
    in_code = {
        value.decode(): name
        for name, value in vars(keys).items()
        if name.isupper() and isinstance(value, bytes) and len(value) == 1
    }
    assert written == in_code


def test_a_partitioner_with_a_count_of_its_own_hashes_as_the_default_one() -> None:
    by_seven = PartitionCount(7)
    assert [by_seven(key, 271) for key in ("a", 5, (1, "x"))] == [partition_id(key, 7) for key in ("a", 5, (1, "x"))]
    assert all(by_seven(key, 3) == partition_id(key, 7) % 3 for key in range(50))
    assert by_seven.__name__ == "7 partitions"
    with pytest.raises(ValueError, match="must be at least 1, got 0"):
        PartitionCount(0)
