"""Values to send through codecs, and a comparison that `==` is too kind for."""

from __future__ import annotations

import math
import struct
from collections import OrderedDict, namedtuple
from enum import IntEnum
from typing import Any

import numpy as np
from hypothesis import strategies as st

Point = namedtuple("Point", "x y")


class Colour(IntEnum):
    RED = 1


class Text(str):
    __slots__ = ()


class Number(int):
    pass


def same(a: Any, b: Any) -> bool:
    """Equal, of the same types all the way down, in the same order, with the same bits."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float | np.floating):
        return bool(np.array(a).tobytes() == np.array(b).tobytes())
    if isinstance(a, complex):
        return struct.pack("dd", a.real, a.imag) == struct.pack("dd", b.real, b.imag)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    return bool(a == b)


plain_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([0, 1, -1, 255, 256, 2**31, 2**32, 2**63 - 1, -(2**63)]),
    st.floats(allow_nan=True),
    st.sampled_from([0.0, -0.0, math.inf, math.nan, 1.0]),
    st.text(max_size=20),
    st.binary(max_size=20),
)
"""What the codec can take."""

odd_scalars = st.one_of(
    st.sampled_from([2**63, 2**70, -(2**64), Colour.RED, Text("t"), Number(7), "\ud800", 1j, frozenset({1}), range(3)]),
    st.builds(np.int64, st.integers(-100, 100)),
    st.builds(np.float32, st.floats(width=32)),
    st.builds(np.bool_, st.booleans()),
    st.builds(Point, st.integers(), st.text(max_size=3)),
    st.builds(lambda n: np.arange(n, dtype=np.int32), st.integers(0, 600)),
    st.builds(lambda n: np.ones((n, 3), dtype=">f8"), st.integers(0, 5)),
    st.builds(lambda d: OrderedDict(d), st.dictionaries(st.text(max_size=2), st.integers(), max_size=3)),
    st.builds(bytearray, st.binary(max_size=5)),
)
"""What it must leave to pickle."""


def nested(scalars: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Any nesting of these scalars in tuples, lists and dicts."""
    return st.recursive(
        scalars,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.lists(inner, max_size=4).map(tuple),
            st.dictionaries(st.text(max_size=3), inner, max_size=4),
        ),
        max_leaves=12,
    )


def rows() -> st.SearchStrategy[list[Any]]:
    """Lists of tuples that have the same columns: what pipelines are made of."""
    columns = st.sampled_from(
        [st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=8), st.binary(max_size=8), st.booleans()]
    )
    shape = st.lists(st.one_of(columns, columns.map(lambda c: st.one_of(st.none(), c))), min_size=0, max_size=4)
    return shape.flatmap(lambda fields: st.lists(st.tuples(*fields), min_size=1, max_size=30))
