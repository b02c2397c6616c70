"""Levels of nested columns: against a shredder that goes value by value, and read back by DuckDB."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import BatchError
from shmjet.spark.back import parquet
from shmjet.spark.back.column_conversion import fitted_values
from shmjet.spark.back.levels import Leaf, is_optional, leaves_of, shredded
from shmjet.spark.back.parquet import ParquetWriter
from shmjet.spark.back.schemas import Column
from tests.examples import examples


def listed(name: str, element: Column, within: tuple[str, ...] = ()) -> Column:
    return Column(name, "list", parts=(element,), within=within)


def mapped(name: str, value: Column) -> Column:
    return Column(name, "map", parts=(Column("key", "text", nullable=False), value))


def structured(name: str, *parts: Column) -> Column:
    return Column(name, "struct", parts=parts)


NUMBER, WORD = Column("element", "int64"), Column("word", "text")
COLUMNS = (
    listed("numbers", NUMBER),
    listed("lists", listed("element", NUMBER)),
    mapped("map", Column("value", "float64")),
    structured("struct", Column("n", "int32"), WORD),
    listed("structs", structured("element", listed("tags", Column("element", "text")), mapped("m", NUMBER))),
    structured("deep", structured("a", structured("b", listed("c", structured("element", Column("d", "bool")))))),
    mapped("of lists", listed("value", structured("element", Column("n", "int64")))),
)


def values_of(column: Column) -> st.SearchStrategy[Any]:
    some: st.SearchStrategy[Any]
    match column.kind:
        case "list":
            some = st.lists(values_of(column.parts[0]), max_size=3)
        case "map":
            some = st.dictionaries(st.text("ab", max_size=2), values_of(column.parts[1]), max_size=3)
        case "struct":
            some = st.fixed_dictionaries({part.name: values_of(part) for part in column.parts})
        case "int64" | "int32":
            some = st.integers(-100, 100)
        case "float64":
            some = st.sampled_from([0.5, -1.0])
        case "bool":
            some = st.booleans()
        case _:
            some = st.text("xyz", max_size=3)
    return st.none() | some


Entry = tuple[Any, int, int]
"""A value, its definition level, its repetition level."""


def reference(column: Column, value: Any, optional: bool, d: int, r: int, lists: int) -> Iterator[list[Entry]]:
    """Shred one value, as the paper does it; yield the entries of each leaf."""
    if value is not None:
        d += optional
    if not column.parts:
        yield [(value, d, r)]
        return
    if column.kind == "struct":
        for part in column.parts:
            yield from reference(part, None if value is None else value[part.name], True, d, r, lists)
        return
    elements: list[Any] = [[], []] if column.kind == "map" else [[]]
    if value:
        elements = [list(value), list(value.values())] if column.kind == "map" else [value]
    for part, each in zip(column.parts, elements, strict=True):
        optional_part = is_optional(column, part)
        if not each:
            yield from (entries for entries in reference(part, None, False, d, r, lists + 1))
            continue
        shreds = [
            list(reference(part, element, optional_part, d + 1, lists + 1 if place else r, lists + 1))
            for place, element in enumerate(each)
        ]
        for leaf in zip(*shreds, strict=True):
            yield [entry for entries in leaf for entry in entries]


def expected(column: Column, rows: list[Any], leaf: Leaf, number: int) -> tuple[list[Any], list[int], list[int]]:
    entries = [entry for row in rows for entry in list(reference(column, row, True, 0, 0, 0))[number]]
    values = [value for value, d, _ in entries if d == leaf.definition]
    return values, [d for _, d, _ in entries], [r for _, _, r in entries]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
@examples(25)
@given(st.data())
def test_levels_are_those_of_a_shredder_that_goes_value_by_value(column: Column, data: st.DataObject) -> None:
    rows = data.draw(st.lists(values_of(column), max_size=6))
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    found = shredded(column, fitted_values(column, rows), start, stop)
    for number, (leaf, entries) in enumerate(zip(leaves_of([column]), found, strict=True)):
        values, definition, repetition = expected(column, rows[start:stop], leaf, number)
        assert entries.count == len(definition)
        assert list(entries.values.tolist()) == values
        assert entries.definition is None or entries.definition.tolist() == definition
        assert (entries.repetition is None and not leaf.repetition) or entries.repetition.tolist() == repetition


@examples(25)
@given(st.lists(st.tuples(*map(values_of, COLUMNS)), max_size=8))
def test_duckdb_reads_what_was_written(rows: list[tuple[Any, ...]]) -> None:
    duckdb = pytest.importorskip("duckdb")
    file = io.BytesIO()
    writer = ParquetWriter(file, COLUMNS)
    fitted = {column.name: fitted_values(column, [row[n] for row in rows]) for n, column in enumerate(COLUMNS)}
    writer.write(fitted, len(rows))
    writer.finish()
    with NamedTemporaryFile(suffix=".parquet") as named, duckdb.connect() as connection:
        named.write(file.getvalue())
        named.flush()
        assert connection.execute(f"select * from read_parquet('{named.name}')").fetchall() == rows


def test_rows_with_many_bytes_become_row_groups_of_few_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    duckdb = pytest.importorskip("duckdb")
    monkeypatch.setattr(parquet, "ROW_GROUP", 5_000)
    columns = [listed("numbers", NUMBER), Column("word", "text")]
    rows = [(list(range(n % 50)), "x" * (n % 100)) for n in range(1000)] + [([1], "y" * 30_000)]
    with open(tmp_path / "x.parquet", "wb") as file:
        writer = ParquetWriter(file, columns)
        writer.write({c.name: fitted_values(c, [row[n] for row in rows]) for n, c in enumerate(columns)}, len(rows))
        assert writer.finish() == len(rows)
    with duckdb.connect() as connection:
        assert connection.execute(f"select * from read_parquet('{tmp_path}/x.parquet')").fetchall() == rows
        sizes = connection.execute(
            f"select sum(total_uncompressed_size) from parquet_metadata('{tmp_path}/x.parquet') group by row_group_id"
        ).fetchall()
    assert len(sizes) > 20
    assert sorted(sizes)[-2][0] < 15_000


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [
        (listed("a", Column("element", "int64", within=("a",))), [1, "x"], "'a' at element .bigint. does not take 'x'"),
        (listed("a", NUMBER), "abc", r"column 'a' \(array<bigint>\) does not take 'abc' of type str"),
        (listed("a", NUMBER), {1: 2}, "of type dict"),
        (listed("a", NUMBER), np.array(5), "an array without dimensions is not a list"),
        (mapped("m", NUMBER), [("a", 1)], r"map<string,bigint>. does not take \[\('a', 1\)\] of type list"),
        (mapped("m", NUMBER), {None: 1}, "column 'key' .string not null. does not take None"),
        (structured("s", WORD, NUMBER), ("a",), "it has 1 values for 2 fields"),
        (structured("s", WORD, NUMBER), 5, r"column 's' \(struct<word:string,element:bigint>\) does not take 5"),
        (structured("s", Column("n", "int64", nullable=False)), {"m": 1}, "not null. does not take None"),
    ],
)  # fmt: skip
def test_a_nested_value_that_does_not_fit_is_an_error(column: Column, value: Any, why: str) -> None:
    with pytest.raises(BatchError, match=why):
        fitted_values(column, [None, value])
