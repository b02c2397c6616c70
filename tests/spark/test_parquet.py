"""The Parquet writer without Spark: what is in its files, read by others where they are installed, and byte by byte."""

from __future__ import annotations

import datetime as dt
import io
import pickle
import re
import subprocess
import sys
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shmjet import Batch, BatchError, Text
from shmjet._native._columns import text_prefix
from shmjet.spark.back import parquet
from shmjet.spark.back.column_conversion import fitted_values
from shmjet.spark.back.files import ColumnFile, file_name
from shmjet.spark.back.levels import GROUPS
from shmjet.spark.back.parquet import PAGE_ROWS, ROW_GROUP, ParquetWriter
from shmjet.spark.back.schemas import KINDS, Column

FORMAT = Path(__file__).parents[2] / "docs" / "formats" / "parquet.md"

COLUMNS = (
    Column("i8", "int8"),
    Column("i16", "int16"),
    Column("i32", "int32"),
    Column("i64", "int64"),
    Column("f32", "float32"),
    Column("f64", "float64"),
    Column("flag", "bool"),
    Column("day", "date"),
    Column("moment", "timestamp"),
    Column("local", "timestamp_ntz"),
    Column("small", "decimal", 7, 2),
    Column("middle", "decimal", 18, 3),
    Column("wide", "decimal", 38, 10),
    Column("word", "text"),
    Column("raw", "bytes"),
    Column("took", "duration"),
)
ROWS: list[tuple[Any, ...]] = [
    (
        -128,
        32767,
        -(1 << 31),
        (1 << 63) - 1,
        1.5,
        -0.1,
        True,
        dt.date(1969, 12, 31),
        dt.datetime(2013, 1, 1, 5, 15, 0, 7, dt.UTC),
        dt.datetime(1500, 2, 28, 23, 59),
        Decimal("-12345.67"),
        Decimal("123456789012345.678"),
        Decimal("-1234567890123456789012345678.0123456789"),
        "zürich 🚀",
        b"\0\xff",
        dt.timedelta(days=-3, microseconds=7),
    ),
    (None,) * len(COLUMNS),
    (
        127,
        -1,
        0,
        0,
        float("inf"),
        1e300,
        False,
        dt.date(9999, 12, 31),
        dt.datetime(1600, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=2))),
        dt.datetime(2200, 1, 1),
        Decimal("0"),
        Decimal("-0.001"),
        Decimal("5"),
        "",
        b"",
        dt.timedelta(),
    ),
]


def written(tmp_path: Path, columns: tuple[Column, ...], *lots: Any) -> Path:
    path = tmp_path / file_name("rows", 3, "test")
    file = ColumnFile(str(path), columns, 3)
    for items in lots:
        file.add(items)
    file.finish()
    return path


@pytest.mark.skipif(find_spec("duckdb") is None, reason="duckdb is not installed")
def test_duckdb_reads_every_type_and_nulls(tmp_path: Path) -> None:
    import duckdb

    path = written(tmp_path, COLUMNS, ROWS * 7)
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        names = ", ".join(column.name for column in COLUMNS if column.name not in ("moment", "took"))
        found = connection.execute(f"select {names}, epoch_us(moment), took from read_parquet('{path}')").fetchall()
    epoch, micro = dt.datetime(1970, 1, 1, tzinfo=dt.UTC), dt.timedelta(microseconds=1)
    for row, got in zip(ROWS * 7, found, strict=True):
        moment = row[8] and (row[8] - epoch) // micro
        took = None if row[-1] is None else row[-1] // micro
        assert got == (*row[:8], *row[9:-1], moment, took)


POLARS = """
import pickle, sys, polars
frame = polars.read_parquet(sys.argv[1])
found = [frame[name].to_list() for name in ("wide", "word", "moment", "day")], str(frame.schema["i8"])
sys.stdout.buffer.write(pickle.dumps(found))
"""


@pytest.mark.skipif(find_spec("polars") is None, reason="polars is not installed")
def test_polars_reads_every_type_and_nulls(tmp_path: Path) -> None:
    # in a process of its own: it keeps threads and files open, and looks for pandas
    path = written(tmp_path, COLUMNS, ROWS)
    done = subprocess.run([sys.executable, "-c", POLARS, str(path)], capture_output=True, timeout=120, check=True)
    columns, kind = pickle.loads(done.stdout)
    assert columns == [[row[place] for row in ROWS] for place in (12, 13, 8, 7)]
    assert kind == "Int8"


@pytest.mark.skipif(find_spec("duckdb") is None, reason="duckdb is not installed")
def test_many_rows_become_pages_and_row_groups(tmp_path: Path) -> None:
    import duckdb

    rows = 3 * PAGE_ROWS + 5
    numbers = np.arange(rows)
    valid = numbers % 3 > 0
    batch = Batch(
        {"n": numbers, "word": Text.of([f"word number {n}" for n in range(rows)])},
        {"n": valid, "word": numbers % 5 > 0},
    )
    columns = (Column("n", "int64"), Column("word", "text"))
    path = written(tmp_path, columns, [batch], [batch], [batch])
    with duckdb.connect() as connection:
        total = connection.execute(
            f"select count(*), count(n), sum(n), count(word), sum(length(word)) from read_parquet('{path}')"
        ).fetchone()
        groups = connection.execute(f"select count(distinct row_group_id) from parquet_metadata('{path}')").fetchone()
    lengths = sum(len(f"word number {n}") for n in range(rows) if n % 5)
    assert total == (3 * rows, 3 * valid.sum(), 3 * numbers[valid].sum(), 3 * (rows - -(-rows // 5)), 3 * lengths)
    assert groups is not None
    assert groups[0] == -(-path.stat().st_size // ROW_GROUP)


def test_items_of_every_form_are_rows(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    batch = Batch({"n": [4], "word": ["d"]})
    lots = [[(1, "a"), {"word": "b", "n": 2, "more": 0}], [batch], [[3, "c"]]]
    path = written(tmp_path, (Column("n", "int64"), Column("word", "text")), *lots)
    with duckdb.connect() as connection:
        assert connection.execute(f"select * from read_parquet('{path}') order by n").fetchall() == [
            (1, "a"),
            (2, "b"),
            (3, "c"),
            (4, "d"),
        ]


def test_the_layout_of_a_small_file() -> None:
    file = io.BytesIO()
    writer = ParquetWriter(file, [Column("n", "int32")])
    writer.write({"n": fitted_values(Column("n", "int32"), [7, None, 9])}, 3)
    assert writer.finish() == 3
    data = file.getvalue()
    levels = b"\2\0\0\0" + b"\3" + bytes([0b101])  # length 2, then one group of 8 levels, bit-packed
    values = b"\7\0\0\0\x09\0\0\0"
    # page header: type 0, sizes 14 and 14 (zigzag 28), then {num_values 3, PLAIN 0, RLE 3, RLE 3}
    header = bytes.fromhex("15 00 15 1c 15 1c 2c 15 06 15 00 15 06 15 06 00 00")
    assert data[:4] == data[-4:] == b"PAR1"
    assert data[4:].startswith(header + levels + values)
    footer = int.from_bytes(data[-8:-4], "little")
    assert data[-8 - footer :].startswith(bytes.fromhex("15 02 19 2c"))  # version 1, schema of 2 elements
    assert b"org.apache.spark.version" in data[-8 - footer :]


def test_the_page_on_the_format_says_what_the_code_does() -> None:
    text = FORMAT.read_text()
    assert f"{PAGE_ROWS:,} rows" in text
    assert f"{ROW_GROUP >> 20} MiB" in text
    for kind, group in GROUPS.items():
        assert re.search(rf"^\| {kind} \| .*repeated group `{group}`", text, re.MULTILINE)
    for key, value in parquet.METADATA:
        assert f"`{key}` = {value}" in text
    kinds = set(re.findall(r"^\| ([a-z_0-9, ]+?)(?: \||\()", text, re.MULTILINE))
    listed = {kind.strip() for line in kinds for kind in line.split(",")}
    assert set(KINDS.values()) <= listed


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [
        (Column("n", "int64"), "five", r"column 'n' \(bigint\) does not take 'five' of type str"),
        (Column("n", "int64"), True, r"does not take True of type bool"),
        (Column("n", "int64"), 1 << 63, "out of range"),
        (Column("n", "int8"), 128, r"column 'n' \(tinyint\) does not take 128 of type int: out of range"),
        (Column("n", "int32"), 1.5, r"does not take 1.5 of type float"),
        (Column("x", "float64"), (1 << 53) + 1, "no float is exactly that"),
        (Column("x", "float32"), "1.0", "of type str"),
        (Column("flag", "bool"), 1, "of type int"),
        (Column("day", "date"), dt.datetime(2020, 1, 1), "of type datetime"),
        (Column("at", "timestamp"), dt.date(2020, 1, 1), "of type date"),
        (Column("at", "timestamp_ntz"), dt.datetime(2020, 1, 1, tzinfo=dt.UTC), "it has a time zone"),
        (Column("d", "decimal", 5, 2), Decimal("1.234"), "more than 2 digits behind the point"),
        (Column("d", "decimal", 5, 2), Decimal("1234.5"), "more than 5 digits"),
        (Column("d", "decimal", 5, 2), 1.234, "more than 2 digits behind the point"),
        (Column("d", "decimal", 5, 2), "1.5", "of type str"),
        (Column("d", "decimal", 5, 2), Decimal("nan"), "NaN"),
        (Column("word", "text"), b"raw", "of type bytes"),
        (Column("raw", "bytes"), "text", "of type str"),
        (Column("n", "int64", nullable=False), None, "not null"),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_with_column_value_and_partition(
    tmp_path: Path, column: Column, value: Any, why: str
) -> None:
    file = ColumnFile(str(tmp_path / "x"), [column], 3)
    with pytest.raises(BatchError, match=why) as caught:
        file.add([(value,)])
        file.finish()
    assert str(caught.value).startswith("partition 3: column ")
    file.close()


@pytest.mark.parametrize(
    ("column", "values", "why"),
    [
        (Column("n", "int8"), np.array([1, 300]), "does not take 300"),
        (Column("n", "int64"), np.array([1.5]), "1.5"),
        (Column("n", "int64"), np.array([1 << 63], np.uint64), "9223372036854775808"),
        (Column("x", "float64"), np.array([(1 << 53) + 1]), "no float is exactly that"),
        (Column("x", "float32"), np.array([1e300]), "1e"),
        (Column("word", "text"), np.array([1]), "dtype int64"),
        (Column("word", "text"), Text.of([b"a"]), "a column of bytes"),
        (Column("day", "date"), np.array(["2020-01-01T05"], "M8[h]"), "finer than the column"),
    ],
)
def test_a_column_that_does_not_fit_is_an_error(tmp_path: Path, column: Column, values: Any, why: str) -> None:
    file = ColumnFile(str(tmp_path / "x"), [column], 0)
    with pytest.raises(BatchError, match=why):
        file.add([Batch({column.name: values})])
    file.close()


def test_a_row_without_a_column_is_an_error(tmp_path: Path) -> None:
    columns = [Column("a", "int64"), Column("b", "int64")]
    for items, why in (([{"a": 1}], "column 'b'"), ([(1,)], "1 values for the columns"), ([5], "got int: 5")):
        file = ColumnFile(str(tmp_path / f"x{len(list(tmp_path.iterdir()))}"), columns, 0)
        with pytest.raises(BatchError, match=why):
            file.add(items)
            file.finish()
        file.close()


def test_text_is_prefixed_with_its_length() -> None:
    text = Text.of(["", "a", "x" * 40, "ü"])[1:]
    out = np.zeros(int(text.lengths.sum()) + 4 * len(text), np.uint8)
    size = text_prefix(text.offsets, text.data, out)
    values = [value.encode() for value in text]
    assert size == len(out)
    assert out.tobytes() == b"".join(len(value).to_bytes(4, "little") + value for value in values)
    with pytest.raises(ValueError, match="not enough room"):
        text_prefix(text.offsets, text.data, out[:-1])
    with pytest.raises(ValueError, match="offsets leave the data"):
        text_prefix(np.array([0, 99]), text.data, np.zeros(200, np.uint8))
