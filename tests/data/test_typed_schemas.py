"""`Batch(columns, schema=)`: the types that values alone do not say, and what comes out of every way through them."""

from __future__ import annotations

import datetime
import decimal
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import Batch, BatchError, Nullable, Text
from shmjet.data.column_types import kind_of
from shmjet.ring.batch_frames import BatchCodec, padded
from tests.data.typed import same, typed_columns
from tests.examples import examples

D = decimal.Decimal


@given(st.integers(0, 6).flatmap(lambda rows: st.tuples(typed_columns(rows), st.just(rows))), st.data())
@examples(150)
def test_values_of_every_type_come_back(column: Any, data: st.DataObject) -> None:
    (word, values), rows = column
    batch = Batch({"a": values}, schema={"a": word})
    assert str(batch.schema["a"]) == word
    assert same(batch.values("a"), values)
    codec = BatchCodec()
    payload = b"".join(bytes(memoryview(part)) for part in padded(codec.encode(batch)[0]))
    for copy in (codec.decode(payload), pickle.loads(pickle.dumps(batch)), batch.copy()):
        assert copy == batch
        assert same(copy.values("a"), values)
    cut = data.draw(st.integers(0, rows))
    assert same(Batch.concat([batch[:cut], batch[cut:]]).values("a"), values)
    assert repr(batch).startswith(f"Batch({rows} rows")
    column_itself = batch["a"]
    assert same(column_itself.to_list(), values)
    assert same(list(column_itself), values)
    assert Batch({"a": column_itself}) == batch
    assert same([row["a"] for row in Batch.from_rows(list(batch.rows()), schema={"a": word}).rows()], values)


@given(st.integers(1, 6).flatmap(typed_columns))
@examples(60)
def test_equality_of_rows_is_that_of_values(column: Any) -> None:
    word, values = column
    batch = Batch({"a": values}, schema={"a": word})
    for other in (values, values[::-1]):
        found = Nullable(batch["a"]) == Nullable(Batch({"a": other}, schema={"a": word})["a"])
        assert found.to_list() == [
            None if a is None or b is None else same(a, b) for a, b in zip(values, other, strict=True)
        ]


@given(st.lists(st.one_of(st.none(), st.decimals(-(10**10), 10**10, places=4)), min_size=1, max_size=8))
def test_decimals_are_as_in_polars(values: list[Any]) -> None:
    mine = Batch({"a": values}, schema={"a": "decimal(20, 4)"})["a"]
    polars = pytest.importorskip("polars")
    theirs = polars.Series(values, dtype=polars.Decimal(20, 4))
    assert mine.to_list() == theirs.to_list()
    assert mine.min() == theirs.min()
    assert mine.max() == theirs.max()
    if any(value is not None for value in values):
        assert mine.sum() == theirs.sum()
    assert Nullable(mine + mine).to_list() == (theirs + theirs).to_list()
    assert Nullable(mine > D("0.5")).to_list() == (theirs > D("0.5")).to_list()


SCHEMAS: list[tuple[Any, Any, list[Any]]] = [
    ([1, None, 3], "int8", [1, None, 3]),
    ([1, 2], np.uint16, [1, 2]),
    ([None, None], int, [None, None]),
    ([], "text", []),
    ([None], str, [None]),
    ([None], "decimal(3, 1)", [None]),
    ([None, None], "list<int64>", [None, None]),
    ([1, 2.5, D("0.25"), None], "decimal(9, 2)", [D("1.00"), D("2.50"), D("0.25"), None]),
    (np.array([1, 2]), "decimal(9, 2)", [D("1.00"), D("2.00")]),
    (np.array([0.1, -2.5]), "decimal(9, 2)", [D("0.10"), D("-2.50")]),
    (np.array([0.1], np.float32), "decimal(9, 2)", [D("0.10")]),
    ([D(1)], D, [D("1.000000000")]),
    (Text.of(["a", "b"]), "category", ["a", "b"]),
    (np.array(["a", "b"]), "category", ["a", "b"]),
    (["a", None], "category", ["a", None]),
    ([[1], []], "list<int8>", [[1], []]),
    ([[1], []], "list<decimal(5, 1)>", [[D("1.0")], []]),
    ([{"a": 1}, {}], "struct<a: float64, b: text>", [{"a": 1.0, "b": None}, {"a": None, "b": None}]),
    ([{}, None], "struct<>", [{}, None]),
    (
        np.array(["2024-01-01T12:00", "NaT"], "M8[ms]"),
        "timestamp[us, Europe/Berlin]",
        [datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.UTC), None],
    ),
    (Nullable([1, None]), "decimal(5, 1)", [D("1.0"), None]),
    (np.ma.masked_array([1, 2], [False, True]), "decimal(5, 1)", [D("1.0"), None]),
    ([datetime.date(2024, 1, 1)], "datetime64[us]", [datetime.datetime(2024, 1, 1)]),
]


@pytest.mark.parametrize(("values", "word", "expected"), SCHEMAS)
def test_a_schema_gives_types(values: Any, word: Any, expected: list[Any]) -> None:
    batch = Batch({"a": values, "b": [0] * len(expected)}, schema={"a": word})
    assert batch.schema["a"] == kind_of("a", word)
    assert batch.values("a") == expected


@pytest.mark.parametrize(
    ("values", "word", "text"),
    [
        ([300], "int8", "column 'a' has to be int8, found int64 with values from 300 to 300"),
        ([D("1.005")], "decimal(9, 2)", "column 'a': 1.005 has more than 2 digits after the point"),
        ([D("1" + "0" * 90 + "e-90")], "decimal(9, 2)", None),
        ([D("1e8")], "decimal(9, 2)", r"column 'a': 1E\+8 is not a value of decimal\(9, 2\)"),
        ([10**8], "decimal(9, 2)", "column 'a': 100000000 is not a value"),
        (np.array([1, 10**8]), "decimal(9, 2)", "column 'a': 100000000 in row 1 is not a value"),
        (np.array([0.125]), "decimal(9, 2)", "column 'a': 0.125 in row 0 has more than 2 digits"),
        ([0.125], "decimal(9, 2)", "column 'a': 0.125 has more than 2 digits"),
        ([float("nan")], "decimal(9, 2)", "a decimal is a finite number"),
        ([True], "decimal(9, 2)", "True of type bool is not a value of decimal"),
        (["1.5"], "decimal(9, 2)", "of type str is not a value of decimal"),
        ([datetime.datetime(2024, 1, 1)], "timestamp[us, UTC]", "has no time zone"),
        ([5], "timestamp[us, UTC]", "5 of type int is not a value of timestamp"),
        ([5], "category", "5 of type int is not a value of category"),
        ([[1, "x"]], "list<int64>", "column 'a' mixes text"),
        ([["x"]], "list<int64>", "column 'a' has to be int64, found text"),
        ([5], "list<int64>", "expected a list for a value of list<int64>, got int 5"),
        ([{"c": 1}], "struct<a: int64>", "has the further field 'c'"),
        ([[1]], "struct<a: int64>", "expected a dict"),
        (Text.of(["x"]), "decimal(3, 1)", r"column 'a' has to be decimal\(3, 1\), found text"),
        ([1], "nonsense", "schema: column 'a'"),
    ],
)
def test_what_does_not_fit_into_a_schema_is_named(values: Any, word: str, text: str | None) -> None:
    if text is None:
        assert Batch({"a": values}, schema={"a": word}).values("a") == [1]
        return
    with pytest.raises(BatchError, match=text):
        Batch({"a": values}, schema={"a": word})


def test_a_schema_names_columns_that_are_there() -> None:
    with pytest.raises(BatchError, match=r"schema names the column 'b'; there are \['a'\]"):
        Batch({"a": [1]}, schema={"b": int})
    with pytest.raises(BatchError, match="a schema is a dict"):
        Batch({"a": [1]}, schema=[("a", int)])  # type: ignore[arg-type]


def test_rows_with_a_schema() -> None:
    batch = Batch.from_rows([(1, D("1.5")), (2, None)], schema={"n": "int32", "price": "decimal(9, 2)"})
    assert {name: str(kind) for name, kind in batch.schema.items()} == {"n": "int32", "price": "decimal(9, 2)"}
    assert Batch.from_rows([], schema={"n": "int32"}).schema == {"n": np.dtype("int32")}
    assert Batch.from_rows([{"n": 1}], schema={"n": float}).values("n") == [1.0]
    with pytest.raises(BatchError, match="schema names the column 'm'"):
        Batch.from_rows([{"n": 1}], schema={"m": float})


def test_casts_between_types() -> None:
    price = Batch({"p": [D("1.50"), None, D("-2.25")]})["p"]
    assert price.astype(float).to_list() == [1.5, None, -2.25]
    assert price.astype("int32").to_list() == [1, None, -2]
    assert price.astype("decimal(9, 1)").to_list() == [D("1.5"), None, D("-2.3")]
    assert price.astype(str).to_list() == ["1.50", None, "-2.25"]
    assert price.astype("category").to_list() == ["1.50", None, "-2.25"]
    text = Nullable(["1.50", None, "-2.25"])
    assert text.astype("decimal(5, 2)").to_list() == price.to_list()
    assert Nullable([0.126, None]).astype("decimal(5, 2)").to_list() == [D("0.13"), None]
    assert Nullable([True, None]).astype("decimal(5, 2)").to_list() == [D("1.00"), None]
    at = Nullable(["2024-01-01 12:00:00+01:00", None]).astype("timestamp[us, Europe/Berlin]")
    assert at.to_list() == [datetime.datetime(2024, 1, 1, 11, tzinfo=datetime.UTC), None]
    assert at.astype(str).to_list() == ["2024-01-01 12:00:00+01:00", None]
    assert at.astype("M8[s]").to_list() == [datetime.datetime(2024, 1, 1, 11), None]
    assert str(at.astype("timestamp[ns, UTC]").dtype) == "timestamp[ns, UTC]"
    big = Batch({"p": [D(2**63), None, D("3.99")]})["p"]
    assert big.astype("uint64").to_list() == [2**63, None, 3]
    for values, word in (
        (big, "int64"),
        (price, "list<int64>"),
        (at, int),
        (text.filter([False] * 3), "wrong"),
        (at, "decimal(3, 1)"),
    ):
        with pytest.raises(BatchError):
            values.astype(word)
    for wrong in ("1.505", "x", "", ".", "1e5", "1000"):
        with pytest.raises(BatchError, match="is not a value of"):
            Nullable([wrong]).astype("decimal(5, 2)")
