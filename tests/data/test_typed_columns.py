"""Columns of decimals, instants with a zone, categories, lists, structs: what holds them, moves them and shows them."""

from __future__ import annotations

import datetime
import decimal
import pickle
import zoneinfo
from typing import Any

import numpy as np
import pytest

from shmjet import Batch, BatchError
from shmjet.columns.batch_builder import BatchBuilder
from shmjet.data.column_keys import hash_rows
from shmjet.data.column_types import CategoryType, DecimalType, ListType, StructType, ZonedType, kind_of
from shmjet.data.nullable import Nullable
from shmjet.data.text import Text
from shmjet.data.typed_batches import lowered, raised
from shmjet.data.typed_column import TypedColumn
from shmjet.ring.batch_frames import BatchCodec, padded
from shmjet.ring.scatter import BatchScatter

D = decimal.Decimal
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
VALUES: dict[str, list[Any]] = {
    "price": [D("1.50"), None, D("-3"), D(0)],
    "wide": [D("1e30"), D("0.25"), None, D("-9999999999999999999999999999999999.99")],
    "at": [
        datetime.datetime(2024, 3, 31, 1, 30, tzinfo=BERLIN),
        None,
        datetime.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1),
        datetime.datetime(1, 1, 1, 12, tzinfo=BERLIN),
    ],
    "items": [[1, None], [], None, [3]],
    "place": [{"city": "Rome", "at": [1.5]}, None, {"city": None, "at": None}, {"city": "", "at": []}],
    "deep": [[[1.5, None], [], None], [], [[]], None],
}


def sample() -> Batch:
    columns: dict[str, Any] = dict(VALUES)
    columns["kind"] = Nullable(TypedColumn(CategoryType(), Text.of(["a", "b", "a", ""])), [True, True, True, False])
    columns["n"] = [1, 2, 3, 4]
    return Batch(columns)


def through_the_wire(batch: Batch) -> Batch:
    codec = BatchCodec()
    payload = b"".join(bytes(memoryview(part)) for part in padded(codec.encode(batch)[0]))
    return BatchCodec().decode(payload)


def test_values_come_out_as_they_went_in() -> None:
    assert {name: values for name, values in sample().to_dict().items() if name in VALUES} == VALUES
    assert sample().schema == {
        "price": DecimalType(18, 2),
        "wide": DecimalType(38, 2),
        "at": ZonedType("us", "Europe/Berlin"),
        "items": ListType(np.dtype("int64")),
        "place": StructType((("city", "text"), ("at", ListType(np.dtype("float64"))))),
        "deep": ListType(ListType(np.dtype("float64"))),
        "kind": CategoryType(),
        "n": np.dtype("int64"),
    }


@pytest.mark.parametrize("move", [through_the_wire, lambda batch: pickle.loads(pickle.dumps(batch)), Batch.copy])
def test_batches_arrive_equal(move: Any) -> None:
    for batch in (sample(), sample()[:0], sample()[1:3], sample().select("price", "at")):
        moved = move(batch)
        assert moved == batch
        assert moved.schema == batch.schema
        assert moved.to_dict() == batch.to_dict()


def test_rows_are_sliced_taken_filtered_and_joined() -> None:
    batch = sample()
    rows = list(batch.rows())
    assert list(batch[1:3].rows()) == rows[1:3]
    assert list(batch[::-2].rows()) == rows[::-2]
    assert list(batch.take([3, 0, 0]).rows()) == [rows[3], rows[0], rows[0]]
    assert list(batch.filter(batch["n"] != 2).rows()) == [rows[0], rows[2], rows[3]]
    assert list(Batch.concat([batch[:1], batch[1:]]).rows()) == rows
    builder = BatchBuilder()
    for part in (batch[:1], batch[1:1], batch[1:]):
        builder.add(part)
    while not builder.join(1):
        pass
    assert builder.batch == batch


def test_types_come_off_and_on_again() -> None:
    batch = sample()
    physical, types = lowered(batch)
    assert physical["n"] is batch["n"]
    assert not any(isinstance(column, TypedColumn) for column in physical.parts()[0].values())
    assert list(types) == ["price", "wide", "at", "items", "place", "deep", "kind"]
    assert raised(physical, types) == batch
    plain = batch.select("n")
    assert lowered(plain) == (plain, {})


def test_batches_of_other_types_are_not_equal() -> None:
    one, two = Batch({"a": [D("1.5")]}), Batch({"a": [D("1.50")]})
    assert one != two
    assert one == Batch({"a": [D("1.5")]})
    with pytest.raises(BatchError, match=r"cannot be joined.*decimal\(18, 1\).*decimal\(18, 2\)"):
        Batch.concat([one, two])


def test_values_under_nulls_do_not_count() -> None:
    kind = DecimalType(38, 1)
    one = TypedColumn(kind, np.zeros(2, "V16"))
    two = TypedColumn(kind, np.frombuffer(bytes(31) + b"\1", "V16"))
    assert Batch({"a": one}, {"a": [True, False]}) == Batch({"a": two}, {"a": [True, False]})
    assert Batch({"a": one}) != Batch({"a": two})


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([D("NaN")], "column 'a': a decimal is a finite number, got NaN"),
        ([D(1), 0.5], "column 'a' mixes Decimal, float"),
        ([D("1e38")], "up to 39 digits before and 0 after"),
        ([D("1e20"), D("1e-20")], "up to 21 digits before and 20 after"),
        ([datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 1, tzinfo=BERLIN)], "with a time zone and without"),
        ([[1], {"a": 1}], "lists and dicts do not go together"),
        ([[1], ["x"]], "column 'a' mixes text"),
        ([{1: 2}], "the names in a struct are str, got 1"),
        ([[object()]], "column 'a' has values of type object"),
    ],
)
def test_what_no_type_holds_is_named(values: list[Any], text: str) -> None:
    with pytest.raises(BatchError, match=text):
        Batch({"a": values})


@pytest.mark.parametrize(
    "word",
    [
        "decimal(15, 2)",
        "decimal(38, 38)",
        "timestamp[us, Europe/Berlin]",
        "timestamp[ns, +05:30]",
        "category",
        "list<int64>",
        "list<list<text>>",
        "struct<a: int64, 'b c': list<struct<x: bytes, y: decimal(20, 1)>>>",
        "struct<>",
        "list<datetime64[us]>",
        "list<timestamp[s, UTC]>",
    ],
)
def test_the_text_of_a_type_is_read_back(word: str) -> None:
    assert str(kind_of("a", word)) == word
    assert kind_of("a", kind_of("a", word)) == kind_of("a", word)


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("decimal(39, 2)", r"decimal\(39, 2\) is not a type"),
        ("decimal(3, 4)", r"decimal\(3, 4\) is not a type"),
        ("timestamp[us, Mars/Crater]", "there is no time zone 'Mars/Crater'"),
        ("timestamp[h, UTC]", "timestamps have the units s, ms, us, ns"),
        ("list<int64", "'list<int64' is not a type"),
        ("list<wrong>", "'wrong'"),
        ("struct<a: int64, a: int64>", "different names"),
    ],
)
def test_what_is_no_type_is_an_error(word: str, text: str) -> None:
    with pytest.raises(BatchError, match=f"schema: column 'a'.*{text}"):
        kind_of("a", word)


def test_kernels_refuse_types_that_they_do_not_know() -> None:
    from shmjet.columns import sum_
    from shmjet.columns.groups import Groups

    with pytest.raises(BatchError, match=r"column 'price' is of decimal\(18, 2\)"):
        Groups(["n"], {"total": sum_("price")}).add(sample())


def test_batches_are_printed_with_their_values() -> None:
    assert repr(sample().select("price", "at", "kind")) == (
        "Batch(4 rows, 3 columns)\n"
        "price           at                            kind\n"
        "decimal(18, 2)  timestamp[us, Europe/Berlin]  category\n"
        "1.50            2024-03-31 01:30:00+01:00     a\n"
        "null            null                          b\n"
        "-3.00           2024-10-27 02:30:00+01:00     a\n"
        "0.00            0001-01-01 12:00:00+00:53:28  null"
    )
    assert repr(sample()["items"]) == "Nullable([[1, null], [], None, [3]], 4 list<int64> values, 1 null)"


@pytest.mark.parametrize("keys", [("price",), ("wide", "at"), ("kind",), ("n",)])
def test_rows_are_scattered_by_keys_of_every_type(keys: tuple[str, ...]) -> None:
    batch = sample()
    scatter = BatchScatter([0, 1, 2, 0, 1], 3, keys)
    assert scatter.put(batch, 0) == batch.num_rows
    parts = [scatter.batch_of(consumer) for consumer in range(3)]
    assert all(part.schema == batch.schema for part in parts if part.num_rows)
    rows = [row for part in parts for row in part.rows()]
    assert sorted(rows, key=lambda row: row["n"]) == list(batch.rows())
    owners = hash_rows(batch, keys) % 5 % 3
    assert [part.num_rows for part in parts] == [int((owners == consumer).sum()) for consumer in range(3)]
