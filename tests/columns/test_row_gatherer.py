"""Rows become batches of stable dtypes."""

from __future__ import annotations

import datetime
from collections import UserDict, namedtuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import Batch, BatchError, Text
from shmjet.columns import row_gatherer
from shmjet.columns.row_gatherer import RowGatherer
from shmjet.columns.schemas import fitted, kind_of, schema_of
from shmjet.data.column import as_column

int64s = st.integers(-(1 << 63), (1 << 63) - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]))
COLUMNS = {
    "int": int64s,
    "float": st.floats(),
    "bool": st.booleans(),
    "text": texts,
    "bytes": st.binary(),
    "date": st.dates(),
    "time": st.datetimes().map(lambda moment: moment.replace(fold=0)),
    "complex": st.complex_numbers(),
}


def batches_of(gatherer: RowGatherer, rows: list[Any], sizes: list[int]) -> list[Batch]:
    """Feed rows in runs of these sizes, then the rest."""
    batches: list[Batch] = []
    for size in sizes:
        gatherer.add(rows[:size])
        rows = rows[size:]
        batches += gatherer.full()
    gatherer.add(rows)
    batches += gatherer.full()
    if len(gatherer):
        batches += gatherer.rest()
    assert len(gatherer) == 0
    return batches


def same_rows(found: list[Any], wanted: list[Any]) -> bool:
    """Whether values and their types are equal; NaN equals NaN."""
    return [list(map(repr, row)) for row in found] == [list(map(repr, row)) for row in wanted]


@given(
    st.data(),
    st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=4, unique=True),
    st.integers(1, 7),
    st.lists(st.integers(0, 5), max_size=5),
    st.sampled_from([1, 2, 3, 8192]),
)
def test_rows_come_back_from_batches_as_they_went_in(
    data: Any, names: list[str], size: int, sizes: list[int], piece: int
) -> None:
    first = st.tuples(*(COLUMNS[name] for name in names))
    later = st.tuples(*(st.none() | COLUMNS[name] for name in names))
    rows = [data.draw(first), *data.draw(st.lists(later, max_size=20))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_gatherer, "LEAST_AT_ONCE", piece)
        patch.setattr(row_gatherer, "MOST_AT_ONCE", piece + 1)
        batches = batches_of(RowGatherer(size, names), rows, sizes)
    full, rest = divmod(len(rows), size)
    assert [batch.num_rows for batch in batches] == [size] * full + [rest] * (rest > 0)
    assert len({str(batch.schema) for batch in batches}) == 1
    assert same_rows([row for batch in batches for row in batch.tuples()], rows)


MIXED = st.none() | st.one_of(
    st.sampled_from([1 << 63, (1 << 64) - 1, (1 << 53) + 1, -1, 0.5, True]),
    int64s,
    st.floats(),
    st.booleans(),
    texts,
    st.binary(),
    st.dates(),
    st.datetimes(),
)


@given(st.lists(st.tuples(MIXED, st.none() | st.booleans() | int64s), max_size=12), st.sampled_from([1, 2, 5, 8192]))
def test_no_value_changes_whatever_others_come_with_it(rows: list[Any], piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_gatherer, "LEAST_AT_ONCE", piece)
        patch.setattr(row_gatherer, "MOST_AT_ONCE", piece + 1)
        batches = batches_of(RowGatherer(5, ["a", "b"]), rows, [3, 1])
    found = [row for batch in batches for row in batch.tuples()]
    assert len(found) == len(rows)
    for one, two in zip(found, rows, strict=True):
        for a, b in zip(one, two, strict=True):
            assert a == b or (a != a and b != b)
            numbers = (bool, int, float)
            assert type(a) is type(b) or (isinstance(a, numbers) and isinstance(b, numbers))
    for batch in batches:
        assert all(str(kind) in ("text", "bytes") or kind.kind in "biufM" for kind in batch.schema.values())


def test_dicts_need_no_names_and_may_have_more_than_is_wanted() -> None:
    both = [Batch({"a": [1, 2], "b": ["x", "y"]})]
    assert batches_of(RowGatherer(8), [{"a": 1, "b": "x"}, {"b": "y", "a": 2}], []) == both
    assert batches_of(RowGatherer(8, ["a", "b"]), [{"a": 1, "b": "x"}, {"b": "y", "a": 2, "c": 0}], []) == both
    assert batches_of(RowGatherer(8, ["b"]), [{"a": 1, "b": "x"}], []) == [Batch({"b": ["x"]})]
    assert batches_of(RowGatherer(8, ["a", "b"], only=["b"]), [(object(), "x")], []) == [Batch({"b": ["x"]})]


def test_rows_of_any_kind_may_be_mixed() -> None:
    point = namedtuple("point", ["a", "b"])
    rows = [{"a": 1, "b": 2}, (3, 4), [5, 6], UserDict(a=7, b=8), point(9, 10)]
    assert batches_of(RowGatherer(8, ["a", "b"]), rows, []) == [Batch({"a": [1, 3, 5, 7, 9], "b": [2, 4, 6, 8, 10]})]


@pytest.mark.parametrize(
    ("columns", "rows", "text"),
    [
        (["a", "b"], [(1, 2), (1,)], r"a row has 1 values for 2 columns \['a', 'b'\]: \(1,\)"),
        (["a", "b"], [{"a": 1, "b": 2}, {"a": 1}], "a row has no value for column 'b'"),
        (["a", "b"], [(1, 2), {"a": 1}], "a row has no value for column 'b'"),
        (["a"], ["x"], "a row must be a dict or a tuple, got str 'x'"),
        (["a"], [5], "a row must be a dict or a tuple, got int 5"),
        (None, [(1, 2)], r"rows that are not dicts need the names of the columns, got tuple \(1, 2\)"),
        (["a"], [(object(),)], "column 'a' has values of type object"),
        (["a"], [([1, "x"],)], "column 'a' mixes text with int, str"),
        (["a"], [(1,), (2,), (object(),)], "column 'a' has values of type object"),
        (["a"], [(1 << 64,)], "column 'a' has integers from 18446744073709551616"),
        (["a"], [("\ud800",)], "column 'a': text that is not valid Unicode"),
    ],
)
def test_rows_that_do_not_fit_are_errors(columns: Any, rows: list[Any], text: str) -> None:
    gatherer = RowGatherer(8, columns)
    gatherer.add(rows)
    with pytest.raises(BatchError, match=text):
        gatherer.rest()


def test_the_dtypes_of_a_batch_are_those_of_the_one_before_if_they_hold_its_values() -> None:
    gatherer = RowGatherer(2, ["i", "f", "b"])
    rows = [(1, 1.5, True), (2, 2.5, False), (3, 4, None), (None, None, None), (5, True, True)]
    batches = batches_of(gatherer, rows, [])
    assert [batch.to_dict() for batch in batches] == [
        {"i": [1, 2], "f": [1.5, 2.5], "b": [True, False]},
        {"i": [3, None], "f": [4.0, None], "b": [None, None]},
        {"i": [5], "f": [1.0], "b": [True]},
    ]
    assert {str(batch.schema) for batch in batches} == {str(batches[0].schema)}


@pytest.mark.parametrize(
    ("first", "later", "kinds"),
    [
        (1, 2.5, ["int64", "float64"]),
        (2.5, 1, ["float64", "float64"]),
        (2.5, (1 << 53) + 1, ["float64", "int64"]),
        (True, 2, ["bool", "int64"]),
        (1, 1 << 63, ["int64", "uint64"]),
        (1 << 63, -1, ["uint64", "int64"]),
        (1 << 63, 1, ["uint64", "uint64"]),
        ("a", 1, ["text", "int64"]),
        ("a", b"a", ["text", "bytes"]),
        (datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 1), ["datetime64[D]", "datetime64[us]"]),
        (None, "a", ["float64", "text"]),
    ],
)
def test_values_that_do_not_go_together_are_in_batches_of_their_own(first: Any, later: Any, kinds: list[str]) -> None:
    batches = batches_of(RowGatherer(1, ["v"]), [(first,), (later,)], [])
    assert [str(batch.schema["v"]) for batch in batches] == kinds
    assert [row for batch in batches for row in batch.tuples()] == [(first,), (later,)]


def test_a_schema_decides_the_dtypes() -> None:
    schema = schema_of({"a": np.int8, "b": float, "c": str, "d": "S3", "e": "datetime64[ms]", "f": bytes, "g": "U2"})
    moment = datetime.datetime(2024, 1, 2, 3, 4, 5)
    rows = [(1, 2, "x", b"ab", moment, b"", "é"), (None,) * 7]
    for size in (1, 2):
        first, *later = batches_of(RowGatherer(size, None, schema), rows, [])
        assert first.schema == {
            "a": np.dtype("i1"),
            "b": np.dtype("f8"),
            "c": "text",
            "d": np.dtype("S3"),
            "e": np.dtype("M8[ms]"),
            "f": "bytes",
            "g": np.dtype("U2"),
        }
        assert [row for batch in (first, *later) for row in batch.tuples()] == [(1, 2.0, *rows[0][2:]), rows[1]]


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (np.int8, 128, "column 'v' has to be int8, found int64 with values from 128 to 128"),
        (np.uint8, -1, "column 'v' has to be uint8, found int64"),
        (np.uint64, -1, "column 'v' has to be uint64, found int64"),
        (np.float32, 1e300, "column 'v' has to be float32, found float64"),
        (np.float16, 100_000, "column 'v' has to be float16, found int64"),
        (int, 1.5, "column 'v' has to be int64, found float64"),
        ("U2", "abc", "column 'v' has to be <U2, found 'abc' of 3 characters"),
        ("S2", b"abc", "found b'abc' of 3 characters"),
        ("datetime64[D]", datetime.datetime(2024, 1, 1, 1), r"has to be datetime64\[D\], found datetime64\[us\]"),
    ],
)
def test_a_value_outside_the_schema_is_an_error(kind: Any, value: Any, text: str) -> None:
    gatherer = RowGatherer(1, None, schema_of({"v": kind}))
    with pytest.raises(BatchError, match=text):
        gatherer.add([(value,)])


def test_floats_are_rounded_to_narrower_floats_and_nulls_need_not_fit() -> None:
    column = fitted("v", np.array([0.1, np.nan, np.inf]), None, np.dtype("f4"))
    assert np.array_equal(column, np.array([0.1, np.nan, np.inf], "f4"), equal_nan=True)  # type: ignore[arg-type]
    hidden = fitted("v", np.array([1, 1 << 40]), np.array([True, False]), np.dtype("i4"))
    assert hidden[0] == 1
    moments = fitted("v", np.array(["2024-01-01", "NaT"], "M8[ms]"), None, np.dtype("M8[D]"))
    assert str(moments[0]) == "2024-01-01"
    assert np.isnat(moments[1])


def test_a_schema_fits_values_of_different_kinds_one_by_one() -> None:
    day, moment = datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 2, 3)
    schema = schema_of({"f": float, "t": "datetime64[s]"})
    for size in (1, 4):
        rows = [(1, day), ((1 << 53) + 1, moment), (0.5, None), (None, day)]
        batches = batches_of(RowGatherer(size, None, schema), rows, [])
        found = [row for batch in batches for row in batch.tuples()]
        begin = datetime.datetime(2024, 1, 1)
        assert found == [(1.0, begin), (float(1 << 53), moment), (0.5, None), (None, begin)]


@pytest.mark.parametrize("given_", [object, "O", None, "no such type", "V0", 5, {"a": 1}])
def test_what_is_no_type_of_a_column_is_refused(given_: Any) -> None:
    with pytest.raises(BatchError, match="schema: column 'v' must"):
        kind_of("v", given_)


def test_a_schema_is_a_dict() -> None:
    with pytest.raises(BatchError, match="a schema is a dict of names and dtypes, got list"):
        schema_of(["a"])  # type: ignore[arg-type]


def test_types_may_be_said_in_many_ways() -> None:
    assert kind_of("v", "text") == kind_of("v", str) == kind_of("v", "U") == "text"
    assert kind_of("v", "bytes") == kind_of("v", bytes) == kind_of("v", "S") == "bytes"
    assert kind_of("v", ">i4") == np.dtype("i4")
    assert kind_of("v", [("x", "i4"), ("y", "f8")]) == np.dtype([("x", "i4"), ("y", "f8")])


def test_text_of_every_length_and_script() -> None:
    values = ["", "a", "é", "日本", "", "a\0b", "x" * 1000]
    column, mask = as_column("v", values)
    assert isinstance(column, Text)
    assert column.tolist() == values
    assert mask is None


def test_a_column_that_only_later_rows_have_is_no_silent_loss() -> None:
    rows = [{"a": 1}, {"b": 3, "a": 2}]
    for order in (rows, rows[::-1]):  # whichever comes first
        gatherer = RowGatherer(10)
        gatherer.add(list(order))
        with pytest.raises(BatchError, match=r"a row has (a|no) value for column 'b'"):
            gatherer.rest()
        with pytest.raises(BatchError, match=r"row 1 has (a|no) value for column 'b'"):
            Batch.from_rows(order)
    wanted = RowGatherer(10, ["a"])
    wanted.add(list(rows))
    assert [batch.to_dict() for batch in wanted.rest()] == [{"a": [1, 2]}]
    assert Batch.from_rows(rows, ["a"]).to_dict() == {"a": [1, 2]}
