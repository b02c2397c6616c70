"""Batches from and for polars and duckdb: what one side has, the other has too."""

from __future__ import annotations

import decimal
import subprocess
import sys
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import Batch
from shmjet.data.column_types import CategoryType, DecimalType, ZonedType
from shmjet.data.errors import BatchError
from shmjet.data.text import Text
from shmjet.data.typed_column import TypedColumn
from tests.data.arrow_values import ALL, NESTED, NUMBERS, address, batches, same, stored
from tests.data.peers import duckdb, pl
from tests.examples import examples

# -- by itself ---------------------------------------------------------------------------------------------------------


@examples(60)
@given(batches(ALL), st.data())
def test_a_batch_is_a_table_to_itself(batch: Batch, data: st.DataObject) -> None:
    back = Batch.from_arrow(batch)
    assert back.schema == batch.schema
    assert back == batch
    first = data.draw(st.integers(0, batch.num_rows))
    assert Batch.from_arrow(batch[first:]) == batch[first:]


def test_memory_is_shared() -> None:
    batch = Batch(
        {
            "n": np.arange(5.0),
            "t": np.arange(5).view("M8[us]"),
            "s": ["a", "bc", "", "d", "e"],
            "z": TypedColumn(ZonedType("us", "UTC"), np.arange(5).view("M8[us]")),
            "d": TypedColumn(DecimalType(30, 2), np.zeros(5, "V16")),
        }
    )[1:]
    back = Batch.from_arrow(batch)
    for name in ("n", "t", "z", "d"):
        assert address(stored(back, name)) == address(stored(batch, name))
        assert not stored(back, name).flags.writeable
    text = stored(back, "s")
    assert address(text.data) == address(stored(batch, "s").data)
    assert address(text.offsets) == address(stored(batch, "s").offsets)


def test_nat_is_a_null_to_others() -> None:
    batch = Batch({"t": np.array(["2020-01-01", "NaT", "2020-01-03"], "M8[us]")})
    assert Batch.from_arrow(batch).to_dict() == batch.to_dict()
    assert Batch.from_arrow(batch).validity("t").tolist() == [True, False, True]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array(["2020-03", "1969-12"], "M8[M]"), np.array(["2020-03-01", "1969-12-01"], "M8[D]")),
        (np.array([3, -1], "m8[h]"), np.array([10_800, -3600], "m8[s]")),
        (np.array([3, -1], "m8[Y]"), np.array([36, -12], "m8[M]")),
        (np.array(["2020-01-01T10"], "M8[h]"), np.array(["2020-01-01T10:00:00"], "M8[s]")),
        (np.array(["ab", "c"]), Text.of(["ab", "c"])),
        (np.array([b"ab", b"c"]), Text.of([b"ab", b"c"])),
        (np.array([b"ab", b"c"], "V2"), Text.of([b"ab", b"c\0"])),
        (np.array([1.5, 2], np.float16), np.array([1.5, 2], np.float16)),
    ],
)
def test_what_arrow_has_no_type_of_its_own_for_becomes_its_nearest(values: Any, expected: Any) -> None:
    assert Batch.from_arrow(Batch({"x": values})) == Batch({"x": expected})


def test_fields_of_structured_values_are_structs() -> None:
    values = np.array([(1, 2.5), (3, 4.5)], [("a", "i4"), ("b", "f8")])
    back = Batch.from_arrow(Batch({"x": values}))
    assert back.to_dict() == {"x": [{"a": 1, "b": 2.5}, {"a": 3, "b": 4.5}]}


@pytest.mark.parametrize("values", [np.zeros(2, "c16"), np.zeros(2, "g"), np.zeros(2, "M8[ps]"), np.zeros(2, "m8")])
def test_what_arrow_cannot_hold_is_named(values: Any) -> None:
    with pytest.raises(BatchError, match=r"column 'x' has .* values, for which Arrow has no type"):
        Batch({"x": values}).__arrow_c_stream__()
    with pytest.raises(BatchError, match="column 'x' has"):
        Batch({"x": values}).__arrow_c_schema__()


def test_text_that_is_not_utf8_is_not_given_to_others() -> None:
    text = Text(np.array([0, 1, 2, 4]), b"ab\xff\xfe")
    with pytest.raises(BatchError, match="column 'x' has text that is not valid UTF-8 in row 2"):
        Batch.from_arrow(Batch({"x": text}))
    cut = Text(np.array([0, 1, 2]), "é".encode())
    with pytest.raises(BatchError, match="row 0"):
        Batch.from_arrow(Batch({"x": cut}))


@examples(100)
@given(st.lists(st.binary(max_size=12) | st.text(max_size=40).map(str.encode), max_size=12))
def test_utf8_is_checked_as_python_does(pieces: list[bytes]) -> None:
    text = Text.of(pieces or [b""])
    wrong = []
    for row, piece in enumerate(pieces):
        try:
            piece.decode()
        except UnicodeDecodeError:
            wrong.append(row)
    with pytest.raises(BatchError, match=rf"not valid UTF-8 in row {wrong[0]}\b") if wrong else nullcontext():
        Batch.from_arrow(Batch({"x": Text(text.offsets, text.data)}))


def test_dates_beyond_arrows_are_an_error() -> None:
    with pytest.raises(BatchError, match="column 'x' has dates or months that 32 bits do not hold"):
        Batch.from_arrow(Batch({"x": np.array([1 << 40], "M8[D]")}))


def test_a_batch_without_columns() -> None:
    assert Batch.from_arrow(Batch({})) == Batch({})


@pytest.mark.parametrize("given", [{"a": [1]}, [1, 2], None, np.arange(3), "table"])
def test_what_has_not_the_protocol_is_refused(given: Any) -> None:
    with pytest.raises(BatchError, match="takes what has __arrow_c_stream__ or __arrow_c_array__"):
        Batch.from_arrow(given)


def test_neither_the_exchange_nor_masked_arrays_are_loaded_without_a_use() -> None:
    code = (
        "import sys, numpy as np; known = set(sys.modules); from shmjet import Batch\n"
        "batch = Batch({'a': np.arange(3), 'b': [1, None, 2], 'c': ['x', None, 'y']})\n"
        "batch.filter(batch['a'] > 0)[1:], batch.filter([True, None, False]), batch.take([0, 2])\n"
        "batch.take(np.array([1])), batch['b'] + 1, np.sqrt(batch['b']), np.add(batch['b'], batch['a'])\n"
        "print([m for m in set(sys.modules) - known if 'arrow' in m or m.startswith('numpy.ma.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# -- polars ------------------------------------------------------------------------------------------------------------


@examples(60)
@given(
    batches((*(kind for kind in ALL if kind not in ("M8[s]", "m8[s]")),)),
    st.data(),
)
def test_polars_has_the_same(batch: Batch, data: st.DataObject) -> None:
    frame = pl.DataFrame(batch)
    assert frame.height == batch.num_rows
    back = Batch.from_arrow(frame)
    assert back == batch
    first = data.draw(st.integers(0, batch.num_rows))
    count = data.draw(st.integers(0, batch.num_rows - first))
    assert Batch.from_arrow(frame.slice(first, count)) == batch[first : first + count]
    chunks = pl.concat([frame.slice(0, first), frame.slice(first)], rechunk=False)
    assert Batch.from_arrow(chunks) == batch


@examples(20)
@given(st.data())
def test_what_polars_makes(data: st.DataObject) -> None:
    rows = data.draw(st.integers(0, 20))

    def listed(values: st.SearchStrategy[Any]) -> list[Any]:
        return data.draw(st.lists(st.none() | values, min_size=rows, max_size=rows))  # type: ignore[no-any-return]

    frame = pl.DataFrame(
        {
            "text": pl.Series(listed(st.text(max_size=30)), dtype=pl.String),
            "bytes": pl.Series(listed(st.binary(max_size=30)), dtype=pl.Binary),
            "bool": pl.Series(listed(st.booleans()), dtype=pl.Boolean),
            "i8": pl.Series(listed(NUMBERS["i1"]), dtype=pl.Int8),
            "u64": pl.Series(listed(NUMBERS["u8"]), dtype=pl.UInt64),
            "date": pl.Series(listed(st.dates()), dtype=pl.Date),
            "at": pl.Series(listed(st.datetimes()), dtype=pl.Datetime("us")),
            "category": pl.Series(listed(st.sampled_from(["a", "b", "ccc"])), dtype=pl.Categorical),
            "enum": pl.Series(listed(st.sampled_from(["x", "y"])), dtype=pl.Enum(["x", "y"])),
            "null": pl.Series([None] * rows, dtype=pl.Null),
            "list": pl.Series(listed(st.lists(st.none() | st.text(max_size=15), max_size=3)), dtype=pl.List(pl.String)),
            "array": pl.Series(listed(st.tuples(NUMBERS["i2"], NUMBERS["i2"])), dtype=pl.Array(pl.Int16, 2)),
            "struct": pl.Series(
                listed(st.fixed_dictionaries({"a": NUMBERS["i4"], "b": st.none() | st.text(max_size=20)})),
                dtype=pl.Struct({"a": pl.Int32, "b": pl.String}),
            ),
        }
    )
    first = data.draw(st.integers(0, rows))
    for some in (frame, frame.slice(first), pl.concat([frame.slice(0, first), frame.slice(first)], rechunk=False)):
        batch = Batch.from_arrow(some)
        assert same(batch.to_dict(), some.to_dict(as_series=False))
    assert str(batch.schema["category"]) == "category"


def test_polars_shares_its_numbers() -> None:
    series = pl.Series("n", np.arange(100_000.0))
    frame = series.to_frame()
    batch = Batch.from_arrow(frame)
    there = address(series.to_numpy())
    assert address(batch["n"]) == there
    assert address(Batch.from_arrow(frame.slice(7))["n"]) == there + 56
    del frame, series
    assert batch["n"].sum() == sum(range(100_000))  # the memory lives as long as the batch
    given = np.arange(100_000)
    frame = pl.DataFrame(Batch({"n": given}))
    assert address(frame["n"].to_numpy()) == address(given)
    del given
    assert frame["n"].sum() == sum(range(100_000))


def test_python_objects_of_polars_are_refused() -> None:
    column = pl.Series("o", [object(), None], dtype=pl.Object)
    for table in (column, column.to_frame(), pl.DataFrame({"n": [1, 2]}).with_columns(column)):
        with pytest.raises(BatchError, match=r"column 'o' holds Python objects \(polars.Object\)"):
            Batch.from_arrow(table)


def test_a_series_is_a_column() -> None:
    assert Batch.from_arrow(pl.Series("x", [1, None])).to_dict() == {"x": [1, None]}
    with pytest.raises(BatchError, match="without a name"):
        Batch.from_arrow(pl.Series([1, 2]))


# -- duckdb ------------------------------------------------------------------------------------------------------------


@examples(30)
@given(
    batches(
        (
            *(kind for kind in NUMBERS),
            *("M8[us]", "M8[s]", "text", "bytes", DecimalType(9, 2), DecimalType(38, 10), CategoryType()),
            *NESTED[:4],
        ),
        most_rows=20,
    )
)
def test_duckdb_has_the_same(batch: Batch) -> None:
    relation = duckdb.sql("select * from batch")
    back = Batch.from_arrow(relation)
    assert list(back.names) == list(batch.names)
    assert same(back.to_dict(), batch.to_dict())


def test_what_duckdb_makes() -> None:
    relation = duckdb.sql(
        "select i, i % 7 = 0 as b, 'v' || i as s, date '2020-01-01' + i::int as d, i::decimal(10, 2) as m, "
        "sum(i) over () as h, case when i % 3 > 0 then [i, null] end as l, {'x': i, 'y': 'z'} as t, map {'k': i} as p, "
        "(case when i % 2 = 0 then 'even' else 'odd' end)::enum('even', 'odd') as e from range(5000) r(i)"
    )
    batch = Batch.from_arrow(relation)
    assert batch.num_rows == 5000
    assert list(map(str, batch.schema.values())) == [
        *("int64", "bool", "text", "datetime64[D]", "decimal(10, 2)", "decimal(38, 0)", "list<int64>"),
        *("struct<x: int64, y: text>", "list<struct<key: text, value: int64>>", "category"),
    ]
    assert batch[4998:].to_dict() == {
        "i": [4998, 4999],
        "b": [True, False],
        "s": ["v4998", "v4999"],
        "d": np.array([18262 + 4998, 18262 + 4999], "M8[D]").tolist(),
        "m": [decimal.Decimal("4998.00"), decimal.Decimal("4999.00")],
        "h": [decimal.Decimal(12497500)] * 2,
        "l": [None, [4999, None]],
        "t": [{"x": 4998, "y": "z"}, {"x": 4999, "y": "z"}],
        "p": [[{"key": "k", "value": 4998}], [{"key": "k", "value": 4999}]],
        "e": ["even", "odd"],
    }


def test_what_no_column_holds_is_named() -> None:
    with pytest.raises(BatchError, match="column 'wait': values of the Arrow type interval of months, days"):
        Batch.from_arrow(duckdb.sql("select interval 1 day as wait"))
    with pytest.raises(BatchError, match="column 'u': values of the Arrow type union"):
        Batch.from_arrow(duckdb.sql("select union_value(a := 1) as u"))


def test_an_error_of_the_producer_has_its_text() -> None:
    with pytest.raises(BatchError, match=r"(?s)the producer failed.*Could not convert string 'x'"):
        Batch.from_arrow(
            duckdb.sql("select (case when i = 4000 then 'x' else '1' end)::int as n from range(5000) r(i)")
        )
