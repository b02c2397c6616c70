"""Record batches, written by hand, as columns and as rows."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import BatchError

pytest.importorskip("pyspark")

from shmjet.spark.arrow import RecordBatch, count_rows
from shmjet.spark.schema import Field
from tests.spark.arrow_bytes import bits, message, numbers


def batch(data: bytes, *fields: Field, large: bool = False) -> Any:
    return RecordBatch(memoryview(data), 0, len(data), large).batch(fields)


def rows(data: bytes, *fields: Field) -> Any:
    return RecordBatch(memoryview(data), 0, len(data)).dicts(fields)


def test_numbers_are_views_and_nulls_are_in_the_validity() -> None:
    data = message(
        3, [(3, 0), (3, 1)], [b"", numbers([1, 2, 3], "<i8"), bits([1, 0, 1]), numbers([0.5, 0, 2.5], "<f8")]
    )
    found = batch(data, Field("a", "int64"), Field("b", "float64"))
    assert found.to_dict() == {"a": [1, 2, 3], "b": [0.5, None, 2.5]}
    assert np.shares_memory(found["a"], np.frombuffer(data, np.uint8))
    assert not found["a"].flags.writeable
    assert count_rows(data, 0, len(data)) == 3


@pytest.mark.parametrize("large", [False, True])
def test_text_and_bytes_have_offsets_of_either_width(large: bool) -> None:
    offsets = numbers([0, 1, 1, 5], "<i8" if large else "<i4")
    data = message(3, [(3, 1), (3, 0)], [bits([1, 0, 1]), offsets, "aßx!".encode(), b"", offsets, b"\xff1234"])
    found = batch(data, Field("t", "text"), Field("b", "bytes"), large=large)
    assert found.to_dict() == {"t": ["a", None, "ßx!"], "b": [b"\xff", b"", b"1234"]}


def test_dates_times_intervals_booleans_and_nulls() -> None:
    data = message(
        2,
        [(2, 0), (2, 0), (2, 0), (2, 0), (2, 0), (2, 2)],
        [b"", numbers([0, -1], "<i4"), b"", numbers([1_000_001, -1], "<i8"), b"", numbers([60, 0], "<i8")]
        + [b"", numbers([14, -1], "<i4"), b"", bits([False, True])],
    )
    fields = [Field("d", "date"), Field("t", "timestamp"), Field("i", "duration"), Field("m", "months")]
    found = batch(data, *fields, Field("b", "bool"), Field("n", "null"))
    assert found["d"].tolist() == [datetime.date(1970, 1, 1), datetime.date(1969, 12, 31)]
    assert found["t"].tolist()[0] == datetime.datetime(1970, 1, 1, 0, 0, 1, 1, datetime.UTC)
    assert found["i"].tolist()[0] == datetime.timedelta(microseconds=60)
    assert found["m"].tolist() == [14, -1]
    assert found["b"].tolist() == [False, True]
    assert found.values("n") == [None, None]


def decimals(*unscaled: int) -> bytes:
    return b"".join(value.to_bytes(16, "little", signed=True) for value in unscaled)


@given(st.data(), st.integers(1, 38))
def test_decimals_keep_every_digit(data: st.DataObject, digits: int) -> None:
    scale = data.draw(st.integers(0, digits))
    values = data.draw(st.lists(st.integers(1 - 10**digits, 10**digits - 1), min_size=1))
    field = Field("d", "decimal", scale=scale, digits=digits)
    frame = message(len(values), [(len(values), 0)], [b"", decimals(*values)])
    expected = [Decimal((int(value < 0), tuple(map(int, str(abs(value)))), -scale)) for value in values]
    assert batch(frame, field)["d"].tolist() == expected
    assert rows(frame, field) == [{"d": value} for value in expected]


def test_a_null_decimal_is_none() -> None:
    null = message(1, [(1, 1)], [bits([0]), decimals(12345678901234567890)])
    assert batch(null, Field("price", "decimal", scale=2, digits=20)).values("price") == [None]


def test_lists_and_structs_are_columns() -> None:
    fields = [
        Field("a", "list", (Field("element", "int32"),)),
        Field("s", "struct", (Field("x", "int64"), Field("y", "list", (Field("element", "text"),)))),
    ]
    nodes = [(2, 1), (2, 1), (2, 1), (2, 1), (2, 0), (1, 0)]
    buffers = [
        bits([1, 0]), numbers([0, 2, 2], "<i4"), bits([1, 0]), numbers([5, 0], "<i4"),
        bits([1, 0]), bits([0, 1]), numbers([0, 4], "<i8"), b"", numbers([0, 1, 1], "<i4"),
        b"", numbers([0, 2], "<i4"), b"yy",
    ]  # fmt: skip
    found = batch(message(2, nodes, buffers), *fields)
    assert found.values("a") == [[5, None], None]
    assert found.values("s") == [{"x": None, "y": ["yy"]}, None]
    for wrong in ([0, 3, 3], [1, 2, 2], [0, 2, 1]):
        with pytest.raises(BatchError, match="offsets of lists do not ascend from 0 to 2"):
            batch(message(2, nodes[:2], [buffers[0], numbers(wrong, "<i4"), *buffers[2:4]]), fields[0])


def test_arrays_maps_and_structs_become_rows_of_python_objects() -> None:
    fields = [
        Field("a", "list", (Field("element", "int32"),)),
        Field("m", "map", (Field("key", "text"), Field("value", "int64"))),
        Field("s", "struct", (Field("x", "int64"), Field("y", "list", (Field("element", "text"),)))),
    ]
    data = message(
        2,
        [(2, 1), (2, 1), (2, 0), (1, 0), (1, 0), (1, 0), (2, 1), (2, 1), (2, 0), (1, 0)],
        [bits([1, 0]), numbers([0, 2, 2], "<i4"), bits([1, 0]), numbers([5, 0], "<i4")]
        + [b"", numbers([0, 0, 1], "<i4"), b"", b"", numbers([0, 1], "<i4"), b"k", b"", numbers([9], "<i8")]
        + [bits([1, 0]), bits([0, 1]), numbers([0, 4], "<i8"), b"", numbers([0, 1, 1], "<i4")]
        + [b"", numbers([0, 2], "<i4"), b"yy"],
    )
    assert rows(data, *fields) == [
        {"a": [5, None], "m": {}, "s": {"x": None, "y": ["yy"]}},
        {"a": None, "m": {"k": 9}, "s": None},
    ]


def test_a_message_of_old_arrow_has_no_continuation_mark() -> None:
    data = message(1, [(1, 0)], [b"", numbers([7], "<i8")], legacy=True)
    assert batch(data, Field("a", "int64"))["a"].tolist() == [7]


@pytest.mark.parametrize("wrong", [{"kind": 1}, {"compressed": True}])
def test_other_messages_are_refused(wrong: dict[str, Any]) -> None:
    data = message(1, [(1, 0)], [b"", numbers([7], "<i8")], **wrong)
    with pytest.raises(BatchError, match="invalid record batch from Spark: its"):
        batch(data, Field("a", "int64"))


@given(st.data())
def test_a_cut_message_is_an_error_and_no_crash(data: st.DataObject) -> None:
    whole = message(
        3, [(3, 0), (3, 1)], [b"", numbers([1, 2, 3], "<i8"), bits([1, 0, 1]), numbers([0, 1, 1, 5], "<i4")]
    )
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(BatchError, match="invalid record batch from Spark"):
        batch(cut, Field("a", "int64"), Field("b", "int32"))
