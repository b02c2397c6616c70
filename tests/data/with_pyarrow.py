"""Batches from and for pyarrow and pandas. A process of its own runs these tests: see `test_with_pyarrow.py`."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shmjet
from shmjet import Batch, Pipeline, sinks, sources
from shmjet.data.column_types import CategoryType, DecimalType, ListType, StructType, ZonedType
from shmjet.data.errors import BatchError
from shmjet.data.text import Text
from shmjet.data.typed_column import TypedColumn
from tests.data.arrow_values import ALL, NUMBERS, TIMES, batches, same
from tests.data.typed import instants
from tests.examples import examples


@examples(60)
@given(batches(ALL), st.data())
def test_pyarrow_has_the_same(batch: Batch, data: st.DataObject) -> None:
    table = pa.table(batch)
    table.validate(full=True)
    assert Batch.from_arrow(table) == batch
    first = data.draw(st.integers(0, batch.num_rows))
    count = data.draw(st.integers(0, batch.num_rows - first))
    some = table.slice(first, count)
    assert Batch.from_arrow(some) == batch[first : first + count]
    assert Batch.from_arrow(pa.concat_tables([table.slice(0, first), some, table.slice(first + count)])) == batch


MOST_DAYS = datetime.timedelta(days=106_751_990)  # what 64 bits of microseconds hold


def arrow_types() -> list[tuple[Any, st.SearchStrategy[Any]]]:
    """Types that pyarrow has, and values of them."""
    text, small = st.text(max_size=20), st.integers(-99, 99)
    view = pa.string_view()
    return [
        (pa.string(), text),
        (pa.large_string(), text),
        (pa.string_view(), text),
        (pa.binary_view(), st.binary(max_size=20)),
        (pa.binary(3), st.binary(min_size=3, max_size=3)),
        (pa.bool_(), st.booleans()),
        (pa.null(), st.none()),
        (pa.float32(), NUMBERS["f4"]),
        (pa.date32(), st.dates()),
        (pa.date64(), st.dates()),
        (pa.duration("us"), st.timedeltas(-MOST_DAYS, MOST_DAYS)),
        (pa.timestamp("us", "America/New_York"), instants("America/New_York")),
        (pa.decimal32(7, 2), st.decimals(-99999, 99999, places=2)),
        (pa.decimal64(18, 4), st.decimals(-(10**14) + 1, 10**14 - 1, places=4)),
        (pa.decimal128(38, 0), st.integers(-(10**38) + 1, 10**38 - 1).map(decimal.Decimal)),
        (pa.decimal128(5, -2), st.integers(-999, 999).map(lambda n: decimal.Decimal(n).scaleb(2))),
        (pa.decimal256(60, 5), st.integers(-(10**30), 10**30).map(lambda n: decimal.Decimal(n).scaleb(-5))),
        (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "b", ""])),
        (pa.dictionary(pa.uint64(), pa.large_string()), st.sampled_from(["a", "b", ""])),
        (pa.dictionary(pa.uint16(), pa.int64()), small),
        (pa.list_(pa.int32()), st.lists(st.none() | small, max_size=3)),
        (
            pa.large_list(pa.list_(view)),
            st.lists(st.none() | st.lists(text, max_size=2), max_size=3),
        ),
        (pa.list_(pa.bool_(), 2), st.lists(st.booleans(), min_size=2, max_size=2)),
        (pa.list_(pa.dictionary(pa.int8(), pa.string())), st.lists(st.none() | st.sampled_from("ab"), max_size=3)),
        (
            pa.struct({"a": view, "b": pa.list_(pa.int8())}),
            st.fixed_dictionaries({"a": st.none() | text, "b": st.none() | st.lists(small, max_size=2)}),
        ),
    ]


@examples(100)
@given(st.data())
def test_what_pyarrow_makes(data: st.DataObject) -> None:
    kind, values = data.draw(st.sampled_from(arrow_types()))
    rows = data.draw(st.integers(0, 12))
    listed = data.draw(st.lists(st.none() | values, min_size=rows, max_size=rows))
    array = pa.array(listed, kind)
    first = data.draw(st.integers(0, rows))
    some = array.slice(first)
    expected = some.to_pylist()
    assert same(Batch.from_arrow(pa.table({"x": some})).to_dict()["x"], expected)
    assert same(Batch.from_arrow(pa.record_batch({"x": some})).to_dict()["x"], expected)
    chunks = pa.chunked_array([array.slice(0, first), some], kind)
    assert same(Batch.from_arrow(pa.table({"x": chunks})).to_dict()["x"], array.to_pylist())


@examples(40)
@given(st.lists(st.tuples(st.integers(1, 3), st.none() | st.text(max_size=3)), max_size=6), st.data())
def test_runs_are_told_apart(runs: list[tuple[int, str | None]], data: st.DataObject) -> None:
    ends = np.cumsum([length for length, _ in runs], dtype=np.int32)
    array = pa.RunEndEncodedArray.from_arrays(pa.array(ends, pa.int32()), pa.array([v for _, v in runs], pa.string()))
    expected = [value for length, value in runs for _ in range(length)]
    first = data.draw(st.integers(0, len(expected)))
    count = data.draw(st.integers(0, len(expected) - first))
    batch = Batch.from_arrow(pa.table({"x": array.slice(first, count)}))
    assert batch.to_dict() == {"x": expected[first : first + count]}


def test_a_map_is_a_list_of_its_entries() -> None:
    kind = pa.map_(pa.string(), pa.int32())
    array = pa.array([[("a", 1)], None, [], [("b", 2), ("c", None)]], kind)
    batch = Batch.from_arrow(pa.table({"m": array.slice(1)}))
    assert str(batch.schema["m"]) == "list<struct<key: text, value: int32>>"
    assert batch.to_dict() == {"m": [None, [], [{"key": "b", "value": 2}, {"key": "c", "value": None}]]}


def test_times_of_day_are_spans_of_time() -> None:
    array = pa.array([datetime.time(1, 2, 3), None], pa.time32("s"))
    batch = Batch.from_arrow(pa.table({"t": array}))
    assert batch.schema == {"t": np.dtype("m8[s]")}
    assert batch.to_dict() == {"t": [datetime.timedelta(hours=1, minutes=2, seconds=3), None]}


def test_a_null_struct_at_the_top_makes_nulls_of_its_columns() -> None:
    array = pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}])
    assert Batch.from_arrow(array).to_dict() == {"a": [1, None, None], "b": ["x", None, "y"]}
    assert Batch.from_arrow(array.slice(1)).to_dict() == {"a": [None, None], "b": [None, "y"]}


def test_a_decimal_that_does_not_fit_is_named() -> None:
    wide = pa.array([None, decimal.Decimal(10) ** 40], pa.decimal256(50, 0))
    with pytest.raises(BatchError, match="column 'x': the value in row 1 has more digits than"):
        Batch.from_arrow(pa.table({"x": wide}))


@pytest.mark.parametrize("names", [("a", "a"), ("a", "")])
def test_columns_need_names_of_their_own(names: tuple[str, str]) -> None:
    table = pa.table([pa.array([1]), pa.array([2])], names=list(names))
    with pytest.raises(BatchError, match="two columns 'a'; rename one" if names[1] else "column 1 has no name"):
        Batch.from_arrow(table)


def test_a_consumer_gets_the_text_that_it_asks_for() -> None:
    batch = Batch(
        {"s": ["a", None], "b": [b"a", b"b"], "c": TypedColumn(CategoryType(), Text.of(["x", "y"])), "n": [1, 2]}
    )[1:]
    small = pa.schema({"n": pa.int8(), "s": pa.string(), "b": pa.binary(), "c": pa.string()})
    stream = pa.RecordBatchReader._import_from_c_capsule(batch.__arrow_c_stream__(small.__arrow_c_schema__()))
    table = stream.read_all()
    assert table.schema.types == [pa.string(), pa.binary(), pa.string(), pa.int64()]
    table.validate(full=True)
    assert table.to_pylist() == [{"s": None, "b": b"b", "c": "y", "n": 2}]
    with pytest.raises(BatchError, match="a capsule named 'arrow_schema' is needed"):
        batch.__arrow_c_stream__(batch.__arrow_c_stream__())


def test_the_schema_by_itself() -> None:
    schema = pa.schema(Batch({"a": [1], "s": ["x"]}))
    assert schema.names == ["a", "s"]
    assert schema.types == [pa.int64(), pa.large_string()]
    assert schema.field("a").nullable


def test_a_view_of_text_beyond_two_buffers() -> None:
    values = ["x" * n for n in range(5000)]
    array = pa.array(values, pa.string_view())
    assert Batch.from_arrow(pa.table({"x": array.slice(4000)})).to_dict() == {"x": values[4000:]}


@examples(60)
@given(batches(ALL), st.data())
def test_pandas_has_the_same_in_the_types_of_arrow(batch: Batch, data: st.DataObject) -> None:
    frame = pa.table(batch).to_pandas(types_mapper=pd.ArrowDtype)
    assert Batch.from_arrow(frame) == batch
    first = data.draw(st.integers(0, batch.num_rows))
    halves = pd.concat([frame[:first], frame[first:]], ignore_index=True)
    assert same(Batch.from_arrow(halves).to_dict(), batch.to_dict())


# Types that pandas keeps whatever the values are; but nulls make floats of integers, and NaN is a null.
STABLE = (*(kind for kind in NUMBERS if kind != "?"), *(kind for kind in TIMES if kind != "M8[D]"), "text")


@examples(60)
@given(batches((*STABLE, ZonedType("us", "Europe/Berlin"))))
def test_pandas_has_the_same_in_types_of_its_own(batch: Batch) -> None:
    frame = pd.DataFrame.from_arrow(batch)
    back = Batch.from_arrow(frame)
    for name, kind in batch.schema.items():
        expected = batch.to_dict()[name]
        if isinstance(kind, np.dtype) and kind.kind in "iu" and None in expected:
            kind = np.dtype(np.float64)
            expected = [None if value is None else float(value) for value in expected]
        assert back.schema[name] == kind
        assert same(
            back.to_dict()[name],
            [None if isinstance(value, float) and value != value else value for value in expected],
        )


def test_what_pandas_makes() -> None:
    columns: dict[str, tuple[Any, Any, list[Any]]] = {
        "int": (pd.array([1 << 62, None], "Int64"), np.dtype(np.int64), [1 << 62, None]),
        "uint": (pd.array([(1 << 64) - 1, None], "UInt64"), np.dtype(np.uint64), [(1 << 64) - 1, None]),
        "bool": (pd.array([True, None], "boolean"), np.dtype(np.bool_), [True, None]),
        "float": (pd.array([1.5, None], "Float32"), np.dtype(np.float32), [1.5, None]),
        "nan": ([float("nan"), -0.0], np.dtype(np.float64), [None, -0.0]),
        "string": (pd.array(["ä", None], "string"), "text", ["ä", None]),
        "str": (["x", None], "text", ["x", None]),
        "bytes": ([b"\xff", None], "bytes", [b"\xff", None]),
        "category": (pd.Categorical(["x", None]), CategoryType(), ["x", None]),
        "numbers": (pd.Categorical([3, None]), np.dtype(np.int64), [3, None]),
        "decimal": ([decimal.Decimal("1.50"), None], DecimalType(3, 2), [decimal.Decimal("1.50"), None]),
        "date": ([datetime.date(2024, 2, 29), None], np.dtype("M8[D]"), [datetime.date(2024, 2, 29), None]),
        "list": ([[1, 2], None], ListType(np.dtype(np.int64)), [[1, 2], None]),
        "dict": ([{"a": 1}, None], StructType((("a", np.dtype(np.int64)),)), [{"a": 1}, None]),
    }
    frame = pd.DataFrame({name: values for name, (values, _, _) in columns.items()})
    batch = Batch.from_arrow(frame)
    assert batch.schema == {name: kind for name, (_, kind, _) in columns.items()}
    assert batch.to_dict() == {name: expected for name, (_, _, expected) in columns.items()}
    assert Batch.from_arrow(frame.iloc[1:]).to_dict() == batch[1:].to_dict()


def test_both_hours_in_which_clocks_go_back_are_kept() -> None:
    at = pd.to_datetime(["2024-10-27 00:30Z", "2024-10-27 01:30Z"]).tz_convert("Europe/Berlin")
    batch = Batch.from_arrow(pd.DataFrame({"at": at}))
    assert batch.schema == {"at": ZonedType("us", "Europe/Berlin")}
    assert [value.fold for value in batch["at"].tolist()] == [0, 1]
    assert pd.DataFrame.from_arrow(batch)["at"].tolist() == at.tolist()


def test_an_index_is_a_column() -> None:
    frame = pd.DataFrame({"n": [1, 2, 3]}, index=pd.Index([7, 8, 9], name="key"))
    assert Batch.from_arrow(frame[frame["n"] > 1]).to_dict() == {"n": [2, 3], "key": [8, 9]}
    assert Batch.from_arrow(pd.DataFrame({"n": [1]})).to_dict() == {"n": [1]}


def test_pandas_gets_the_nulls_or_an_error() -> None:
    batch = Batch({"n": [1, None], "s": [None, "x"]})
    wrong: list[Any] = [
        lambda: pd.DataFrame(batch),
        lambda: pd.DataFrame({**batch}),
        lambda: pd.Series(batch),
        lambda: pd.Series(batch["n"]),
    ]
    for make in wrong:
        with pytest.raises(TypeError, match=r"to_dict\(\)|fill_null"):
            make()
    frame = pd.DataFrame(batch.to_dict())
    assert frame.isna().sum().tolist() == [1, 1]
    assert frame["n"].mean() == 1.0


def test_tables_go_through_a_job() -> None:
    table = pa.table({"a": pa.array([1, None], pa.int8()), "l": pa.array([[1], None])})
    pipeline = Pipeline()
    results: Any = sinks.collect()
    pipeline.read_from(sources.frames(table, table.to_pandas(types_mapper=pd.ArrowDtype))).write_to(results)
    with shmjet.new_instance(shmjet.JetConfig(cores=1)) as jet:
        jet.new_job(pipeline).run(60)
    rows = pa.table(results).to_pylist()
    assert sorted(rows, key=str) == sorted(table.to_pylist() * 2, key=str)
    assert pd.DataFrame.from_arrow(results)["a"].isna().sum() == 2
