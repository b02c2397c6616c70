"""Batches are sorted as Python's own sort would, row by row."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet.columns.sort import SortOrder, merge_sorted, sort_batch
from shmjet.columns.take import take_rows, take_rows_or_nulls
from shmjet.data.batch import Batch
from shmjet.data.errors import BatchError
from shmjet.data.text import Text
from tests.examples import examples

INTS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-3, 3))
FLOATS = st.one_of(st.floats(), st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf]))
TEXTS = st.one_of(
    st.text(max_size=3), st.sampled_from(["", "a", "a\0", "ab", "prefix" * 3, "prefix" * 3 + "x", "é", "😀"])
)
KINDS: dict[str, tuple[st.SearchStrategy[Any], Any]] = {
    "int64": (INTS, np.int64),
    "uint64": (st.integers(0, 2**64 - 1), np.uint64),
    "int8": (st.integers(-128, 127), np.int8),
    "uint16": (st.integers(0, 2**16 - 1), np.uint16),
    "bool": (st.booleans(), np.bool_),
    "float64": (FLOATS, np.float64),
    "float32": (st.floats(width=32), np.float32),
    "float16": (st.floats(width=16), np.float16),
    "longdouble": (FLOATS, np.longdouble),
    "complex": (st.complex_numbers(), np.complex128),
    "complex64": (st.complex_numbers(width=64), np.complex64),
    "date": (st.one_of(INTS, st.just(-(2**63))), "M8[us]"),
    "fixed text": (st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5), "U5"),
    "fixed bytes": (st.binary(max_size=11).map(lambda b: b.rstrip(b"\0")), "S11"),
    "text": (TEXTS, None),
    "bytes": (st.binary(max_size=20), None),
}


def rank(value: Any, null: bool, descending: bool, nulls_first: bool) -> Any:
    """A key that sorts as the kernels should."""
    if null:
        return (0 if nulls_first else 3,)
    if isinstance(value, np.datetime64):
        return (2,) if np.isnat(value) else (1, Turned(int(value.view(np.int64)), descending))
    if isinstance(value, complex | np.complexfloating):
        missing = (bool(np.isnan(value.real)), bool(np.isnan(value.imag)))
        parts = [Turned(0.0 if np.isnan(part) else part, descending) for part in (value.real, value.imag)]
        return (1, missing, *parts)
    if isinstance(value, float | np.floating) and np.isnan(value):
        return (2,)
    return (1, Turned(value, descending))


class Turned:
    """A value that compares the other way round if it descends."""

    def __init__(self, value: Any, descending: bool) -> None:
        self.value = value
        self.descending = descending

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Turned) and bool(self.value == other.value)

    def __lt__(self, other: Turned) -> bool:
        return bool(other.value < self.value) if self.descending else bool(self.value < other.value)


Table: TypeAlias = tuple[Batch, dict[str, list[Any]], dict[str, list[bool]]]


@st.composite
def tables(draw: st.DrawFn, largest: int = 60) -> Table:
    """A batch, its values as scalars, and which of them are null."""
    rows = draw(st.integers(0, largest))
    columns: dict[str, Any] = {}
    validity: dict[str, Any] = {}
    values: dict[str, list[Any]] = {}
    nulls: dict[str, list[bool]] = {}
    for place in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(sorted(KINDS)))
        strategy, dtype = KINDS[kind]
        few = draw(st.lists(strategy, min_size=1, max_size=4))
        source = st.sampled_from(few) if draw(st.booleans()) else strategy
        drawn = draw(st.lists(source, min_size=rows, max_size=rows))
        name = f"c{place}"
        if dtype is None:
            sliced = Text.of(["before" if kind == "text" else b"before", *drawn])[1:]
            columns[name], values[name] = sliced, drawn
        elif dtype == "M8[us]":
            columns[name] = np.array(drawn, np.int64).view("M8[us]")
            values[name] = list(columns[name])
        else:
            with np.errstate(all="ignore"):
                columns[name] = np.array(drawn, dtype)
            values[name] = list(columns[name])
        nulls[name] = (
            draw(st.lists(st.booleans(), min_size=rows, max_size=rows)) if draw(st.booleans()) else [False] * rows
        )
        validity[name] = ~np.array(nulls[name], np.bool_)
    return Batch(columns, validity), values, nulls


@examples(300)
@given(table=tables(), down=st.lists(st.booleans(), min_size=3, max_size=3), nulls_first=st.booleans())
def test_rows_are_sorted_as_python_sorts_them(table: Table, down: list[bool], nulls_first: bool) -> None:
    batch, values, nulls = table
    descending = down[: batch.num_columns]

    def key(row: int) -> tuple[Any, ...]:
        return tuple(
            rank(values[name][row], nulls[name][row], turned, nulls_first)
            for name, turned in zip(batch.names, descending, strict=True)
        )

    expected = sorted(range(batch.num_rows), key=key)
    order = SortOrder(batch.names, descending, nulls_first)
    assert order.row_order(batch).tolist() == expected
    assert sort_batch(batch, batch.names, descending=descending, nulls_first=nulls_first) == batch.take(expected)
    limit = batch.num_rows // 3
    assert order.row_order(batch, limit).tolist() == expected[:limit]


@examples(100)
@given(
    table=tables(),
    cuts=st.lists(st.integers(0, 60), max_size=6),
    down=st.lists(st.booleans(), min_size=3, max_size=3),
    nulls_first=st.booleans(),
)
def test_sorted_runs_are_merged_into_what_sorting_all_gives(
    table: Table,
    cuts: list[int],
    down: list[bool],
    nulls_first: bool,
) -> None:
    batch = table[0]
    order = SortOrder(batch.names, down[: batch.num_columns], nulls_first)
    edges = [0, *sorted(min(cut, batch.num_rows) for cut in cuts), batch.num_rows]
    runs = [order.sort(batch[a:b]) for a, b in pairwise(edges)]
    pieces = list(merge_sorted(runs, order, 8))
    assert Batch.concat([batch[:0], *pieces]) == order.sort(batch)


def test_a_merge_gives_bounded_pieces_although_all_rows_are_equal() -> None:
    runs = [Batch({"k": np.zeros(5000, np.int8), "run": np.full(5000, place)}) for place in range(5)]
    pieces = list(merge_sorted(runs, SortOrder("k"), 1000))
    assert max(piece.num_rows for piece in pieces) <= 1000
    assert Batch.concat(pieces)["run"].tolist() == [place for place in range(5) for _ in range(5000)]


@pytest.mark.parametrize("rows", [13, 5000, 100_000])
@pytest.mark.parametrize(
    "make",
    [
        lambda rng, n: rng.integers(-(2**63), 2**63 - 1, n),
        lambda rng, n: rng.integers(0, 2**64 - 1, n, dtype=np.uint64),
        lambda rng, n: rng.integers(0, 1000, n) / 100,
        lambda rng, n: rng.integers(0, 5000, n),
        lambda rng, n: rng.integers(0, 3, n).astype(np.int8),
        lambda rng, n: np.where(rng.random(n) < 0.1, np.nan, rng.standard_normal(n)),
        lambda rng, n: np.arange(n)[::-1].copy(),
        lambda rng, n: np.concatenate([np.arange(n // 2), np.arange(n - n // 2)]),
        lambda rng, n: np.where(rng.random(n) < 0.01, 2**62, rng.integers(0, 9, n)),
        lambda rng, n: np.array([f"prefix {x}" for x in rng.integers(0, 999, n)]),
    ],
)
def test_large_columns_are_sorted_as_numpy_sorts_them(rows: int, make: Any) -> None:
    values = make(np.random.default_rng(rows), rows)
    expected = np.argsort(values, kind="stable")
    assert np.array_equal(SortOrder("k").row_order(Batch({"k": values})), expected)
    if values.dtype.kind == "U":
        assert np.array_equal(SortOrder("k").row_order(Batch({"k": values.tolist()})), expected)


def test_a_structured_column_is_sorted_by_its_fields() -> None:
    values = np.array([(1, b"b"), (0, b"z"), (1, b"a")], [("n", "i4"), ("s", "S3")])
    assert sort_batch(Batch({"v": values}), "v")["v"].tolist() == [(0, b"z"), (1, b"a"), (1, b"b")]


def test_a_void_column_is_sorted_by_its_bytes() -> None:
    values = np.array([b"ba", b"ab", b"aa"], "V2")
    assert SortOrder("v").row_order(Batch({"v": values})).tolist() == [2, 1, 0]


def test_wrong_orders_are_refused_with_the_names() -> None:
    batch = Batch({"a": [1, 2], "b": ["x", "y"]})
    with pytest.raises(BatchError, match=r"no column 'c'; there are \['a', 'b'\]"):
        sort_batch(batch, "c")
    with pytest.raises(BatchError, match="must name one or several columns"):
        sort_batch(batch, [])
    with pytest.raises(BatchError, match="twice"):
        sort_batch(batch, ["a", "a"])
    with pytest.raises(BatchError, match=r"2 flags for the columns \['a'\]"):
        sort_batch(batch, "a", descending=[True, False])
    with pytest.raises(BatchError, match="at least 0, got -1"):
        sort_batch(batch, "a", limit=-1)
    with pytest.raises(BatchError, match="different columns"):
        list(merge_sorted([batch, batch.select("a")], SortOrder("a")))


@given(table=tables(), data=st.data())
def test_rows_are_taken_as_batches_take_them(table: tuple[Batch, Any, Any], data: st.DataObject) -> None:
    batch = table[0]
    most = batch.num_rows - 1
    rows = data.draw(st.lists(st.integers(0, most))) if most >= 0 else []
    taken, expected = take_rows(batch, np.array(rows, np.int64)), batch.take(rows)
    assert (taken.schema, repr(taken.to_dict())) == (expected.schema, repr(expected.to_dict()))
    wanted = data.draw(st.lists(st.integers(-1, most)))
    taken = take_rows_or_nulls(batch, np.array(wanted, np.int64))
    listed = list(batch.tuples())
    assert repr(list(taken.tuples())) == repr(
        [listed[row] if row >= 0 else (None,) * batch.num_columns for row in wanted]
    )


def test_a_row_that_does_not_exist_cannot_be_taken() -> None:
    with pytest.raises(IndexError):
        take_rows(Batch({"a": ["x"]}), np.array([1], np.int64))
