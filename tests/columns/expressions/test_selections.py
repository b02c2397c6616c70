"""Filters that follow each other, against the same filters one after the other."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import Batch, BatchError, Expression, column
from shmjet.columns.expressions import Selection
from shmjet.columns.expressions.selections import Selections
from shmjet.columns.projections import compiled

n, x, t = column("n"), column("x"), column("t")
CONDITIONS: list[Any] = [
    n > 1,
    n <= 7,
    n * (1 << 60) < 0,  # raises from 8 on
    x > 0.5,
    ~(x == 2.0),
    (n > 3) | (x < 1),
    n.is_not_null(),
    x.is_null(),
    t != "b",
    t.str.starts_with("a"),
    n.fill_null(3) == 3,
    column("b"),
]
ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(-3, 12),
        st.none() | st.sampled_from([0.0, -0.0, 0.5, 0.75, 2.0, float("nan")]),
        st.none() | st.sampled_from(["a", "b", "ab", ""]),
        st.booleans(),
    ),
    max_size=12,
)
KINDS = {"n": "int64", "x": "float64", "t": str, "b": bool}


def outcome(make: Any) -> Any:
    try:
        return repr(make().to_dict())
    except BatchError:
        return BatchError


@given(ROWS, st.lists(st.sampled_from(CONDITIONS), min_size=2, max_size=12))
def test_filters_in_a_row_keep_what_each_keeps(rows: list[tuple[Any, ...]], conditions: list[Expression]) -> None:
    columns = zip(*rows, strict=True) if rows else [[]] * 4
    batch = Batch({name: list(each) for name, each in zip(KINDS, columns, strict=True)}, schema=KINDS)
    steps = [("where", condition) for condition in conditions]
    one_by_one = outcome(lambda: functools.reduce(lambda left, each: Selection(each).apply(left), conditions, batch))
    assert outcome(lambda: compiled(steps)(batch)) == one_by_one
    narrow = outcome(lambda: compiled([*steps, ("only", ["t"])])(batch))
    assert narrow == outcome(lambda: compiled([*steps, ("select", [("t", t)])])(batch))
    if one_by_one is not BatchError:
        expected = functools.reduce(lambda left, each: Selection(each).apply(left), conditions, batch).select("t")
        assert narrow == repr(expected.to_dict())


def test_what_an_earlier_filter_leaves_out_raises_nothing() -> None:
    batch = Batch({"n": np.array([1, 1 << 62, 3, 2]), "m": [1, 2, 3, 4]})
    large = n * 4 > 4
    with pytest.raises(BatchError, match="not a value of int64"):
        Selection(large).apply(batch)
    assert Selections([n < 100, large]).chooser(batch).mask.tolist() == [False, False, True, True]
    assert compiled([("where", n < 100), ("where", large), ("only", [])])(batch).num_rows == 2


def test_what_is_no_condition_is_named() -> None:
    batch = Batch({"n": [1, 2, 3]})
    with pytest.raises(BatchError, match=r"filter\(\) takes an expression of bools, .* \+ 1\) is of int64"):
        Selections([n > 1, n + 1]).chooser(batch)
    with pytest.raises(BatchError, match="there is no column 'm'"):
        Selections([n > 1, column("m") > 1]).chooser(batch)
