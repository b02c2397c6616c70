"""Pipelines over items of every kind: what Python calls equal, what has no order, what lies when it is asked.

Functions take any item, so that any stage can follow any other. What they compute depends on an item's `signature`
only, which tells apart what `==` does not (`1`, `True` and `1.0`; `0.0` and `-0.0`), so a result shows that an item has
kept its type on its way.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import enum
import fractions
import uuid
import zlib
from collections import Counter, OrderedDict, namedtuple
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from hypothesis import strategies as st

from shmjet.aggregate_ops import counting, reducing, to_list, top_n
from shmjet.columns import count
from shmjet.pipeline import BatchStage, Table, on_keys
from tests.pipeline.running import Kit

Point = namedtuple("Point", "x y")


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


class Word(str):
    """Text of a class of its own."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Word({str.__repr__(self)})"


@dataclass(frozen=True)
class Sensor:
    site: str
    number: float


class EqualToAll:
    """Says that it equals whatever it is compared with."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "EqualToAll()"


class Refuses:
    """Has no truth, no length and no equality."""

    def __bool__(self) -> bool:
        raise ValueError("it is neither true nor false")

    def __len__(self) -> int:
        raise ValueError("it has no length")

    def __eq__(self, other: object) -> bool:
        raise ValueError("it cannot be compared")

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "Refuses()"


class Nothing:
    """Is false, empty and has every attribute that one asks it for."""

    def __bool__(self) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Any:
        return iter(())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *arguments: Any) -> None:
        return None

    def __repr__(self) -> str:
        return "Nothing()"


def signature(item: Any) -> str:
    """Return a text that two items share only if nothing tells them apart."""
    if isinstance(item, np.ndarray) and item.dtype.hasobject:  # its bytes are addresses
        return f"array:{item.dtype}:{item.shape}:{signature(item.tolist())}"
    if isinstance(item, np.ndarray):
        return f"array:{item.dtype}:{item.shape}:{item.tobytes().hex()}"
    if isinstance(item, tuple) and not hasattr(item, "_fields"):
        return f"({','.join(map(signature, item))})"
    if type(item) is list:
        return f"[{','.join(map(signature, item))}]"
    if type(item) is dict:
        return f"{{{','.join(f'{signature(k)}:{signature(v)}' for k, v in item.items())}}}"
    return f"{type(item).__qualname__}:{item!r}"


def digest(item: Any) -> int:
    """A number of an item, the same in every process."""
    return zlib.crc32(signature(item).encode("utf-8", "surrogatepass"))


ODD: list[Any] = [
    *(0, 1, -1, True, False, 1.0, 0.0, -0.0, 2**31, 2**63 - 1, 2**63, -(2**63), 2**64, -(2**70), 1 << 4000),
    *(0.1, 1e308, float("inf"), float("-inf"), float("nan"), 5e-324, 1 + 2j, fractions.Fraction(1, 3)),
    *(Decimal("1"), Decimal("1.0"), Decimal("NaN"), Decimal("1E+999")),
    *("", "a", "A", "\0", "a\0", "ä", "a\u0308", "\ud800", "🦀", "x" * 70_000, Word("a"), "None", "\n", "' OR 1"),
    *(b"", b"a", b"\xff\x00", bytearray(b"a"), b"y" * 70_000),
    *((), (1,), (1, "a"), (None,), (None, None), ((1, (2, ())),), Point(1, "a"), (1.0, True), (float("nan"), 1)),
    *([], [None], [[1], "a"], {}, {"a": None}, {"a": 1, "b": [1]}, {1: "a", None: 2}, OrderedDict(a=1), Counter("aab")),
    *(set(), {1}, frozenset(), frozenset({2}), range(3), slice(1, 2), ..., NotImplemented, int, len),
    *(dt.date(1969, 12, 31), dt.datetime(1, 1, 1), dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.time(0, 0, 0, 1)),
    *(dt.timedelta(days=-1), uuid.UUID(int=1), Colour.RED, Level.LOW, Sensor("a", -0.0), KeyError("a"), Exception()),
    *(np.int8(1), np.uint64(2**64 - 1), np.float32(0.1), np.float64("nan"), np.bool_(True), np.str_("a")),
    *(np.bytes_(b"a"), np.datetime64("2020-01-01"), np.datetime64("NaT", "D"), np.timedelta64(1, "ns"), np.arange(3)),
    *(np.zeros((2, 0)), np.array(["a", None], object), np.array(1.5), EqualToAll(), Refuses(), Nothing()),
]  # fmt: skip


def mixed_items() -> st.SearchStrategy[Any]:
    """Items of every kind; items that cannot be told apart are the same objects."""
    plain = st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5) | st.booleans()
    nested = st.recursive(
        plain | st.none(),
        lambda inner: (
            st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple) | st.dictionaries(plain, inner)
        ),
        max_leaves=5,
    ).filter(lambda item: item is not None)
    return st.sampled_from(ODD) | st.sampled_from(ODD) | plain | nested


def _fifth(item: Any) -> int:
    return digest(item) % 5


def _pair(item: Any, match: Any) -> Any:
    return (item, match)


def _count(state: list[int], key: Any, item: Any) -> tuple[Any, int]:
    state.append(0)
    return key, len(state)


def _first_two(state: list[int], key: Any, item: Any) -> bool:
    state.append(0)
    return len(state) <= 2


async def _later(service: list[int], item: Any) -> Any:
    await asyncio.sleep(0)
    return [item] if digest(item) % 7 else None


def _as_row(item: Any) -> dict[str, int]:
    return {"k": digest(item) % 5, "v": digest(item)}


def _several(item: Any) -> Any:
    return (item for _ in range(digest(item) % 3))


def _distinct(stage: BatchStage[Any]) -> BatchStage[Any]:
    return stage.distinct(signature)


_ODD_KEYS: list[Any] = [
    *(1, 0.5, "", "1", b"1", None, (), (None, 1), 2**63, 2**70, "\ud800", dt.date(2020, 1, 1), Decimal("0.1"))
]


def _odd_key(item: Any) -> Any:
    return _ODD_KEYS[digest(item) % len(_ODD_KEYS)]


MIXED = Kit(
    items=mixed_items(),
    one={
        "identity": lambda s: s.map(lambda x: x),
        "map": lambda s: s.map(lambda x: (x,) if digest(x) % 4 else None),
        "type": lambda s: s.map(lambda x: type(x).__qualname__),
        "wrap": lambda s: s.map(lambda x: {"v": x, "n": 1}),
        "list": lambda s: s.map(lambda x: [x, None]),
        "filter": lambda s: s.filter(lambda x: digest(x) % 3),
        "filter_nearly_all": lambda s: s.filter(lambda x: digest(x) % 100 == 0),
        "filter_all": lambda s: s.filter(lambda x: False),
        "flat_map": lambda s: s.flat_map(lambda x: [x, signature(x)][: digest(x) % 3]),
        "flat_map_lazy": lambda s: s.flat_map(_several),
        "map_stateful": lambda s: s.grouping_key(_odd_key).map_stateful(list, _count),
        "filter_stateful": lambda s: s.grouping_key(signature).filter_stateful(list, _first_two),
        "service": lambda s: s.map_using_service(list, lambda service, x: (len(service), x)),
        "async": lambda s: s.map_using_service_async(list, _later),
        "async_unordered": lambda s: s.map_using_service_async(list, _later, 2, preserve_order=False),
        "rebalance": lambda s: s.rebalance(),
        "rebalance_by_key": lambda s: s.rebalance(_odd_key),
        "partition_by": lambda s: s.partition_by(_odd_key),
        "sort": lambda s: _distinct(s).sort(signature),
        "sort_descending": lambda s: _distinct(s).sort(signature, reverse=True),
        "distinct": _distinct,
        "counting": lambda s: s.aggregate(counting()),
        "top": lambda s: _distinct(s).aggregate(top_n(3, key=digest)),
        "signatures": lambda s: s.grouping_key(_fifth).aggregate(to_list()).map(lambda e: sorted(map(signature, e[1]))),
        "counting_by_key": lambda s: s.grouping_key(_odd_key).aggregate(counting()),
        "sum_by_key": lambda s: s.grouping_key(_odd_key).aggregate(reducing(0, digest, lambda a, b: a ^ b)),
        "columns": lambda s: s.map(_as_row).group_by("k").agg(n=count()).map(lambda row: (row["k"], row["n"])),
    },
    two={
        "merge": lambda a, b: a.merge(b),
        "hash_join": lambda a, b: a.hash_join(_distinct(b), on_keys(_fifth, _fifth), _pair),
        "inner_hash_join": lambda a, b: a.inner_hash_join(_distinct(b), _odd_key, _odd_key, _pair),
        "join": lambda a, b: _distinct(a).join(_distinct(b), _odd_key, _odd_key, _pair),
        "aggregate2": lambda a, b: a.aggregate2(counting(), b, counting()).map(tuple),
        "aggregate2_by_key": lambda a, b: (
            a.grouping_key(_odd_key)
            .aggregate2(counting(), b.grouping_key(_odd_key), counting())
            .map(lambda entry: (entry[0], *entry[1]))
        ),
    },
    table=lambda a, b, number: _with_table(a, b, number),
)


def _with_table(a: BatchStage[Any], b: BatchStage[Any], number: int) -> BatchStage[Any]:
    table = Table(f"table-{number}")
    b.map(lambda x: (_odd_key(x), signature(_odd_key(x)))).send_to(table)
    return a.join_table(table, _odd_key, _pair)
