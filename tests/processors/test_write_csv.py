from __future__ import annotations

import csv
import datetime
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shmjet import processors
from shmjet.data.batch import Batch
from shmjet.data.errors import BatchError
from shmjet.data.text import Text
from shmjet.processors.csv.sink import CsvWriter, csv_style

from .driving import Driver
from .test_files import read


def write(folder: Path, *batches: Any, **style: Any) -> Path:
    driver = Driver(processors.write_files(folder, format="csv", **style)())
    driver.feed(batches)
    driver.complete()
    return folder / "0.csv"


def text_of(batch: Batch, **style: Any) -> str:
    given_ = {"delimiter": ",", "quote": '"', "header": False, "null": "", "encoding": "utf-8"} | style
    return CsvWriter(csv_style(**given_)).encode(batch).decode()


def test_what_is_quoted_and_how_values_look(tmp_path: Path) -> None:
    batch = Batch(
        {
            "i": [1, None],
            "f": [0.1, float("nan")],
            "s": ['say "a,b"', ""],
            "t": ["ä\nö", None],
            "b": [True, False],
            "d": np.array(["2013-01-31", "NaT"], "M8[D]"),
            "m": np.array([5, "NaT"], "m8[s]"),
            "raw, really": [b"\xff", b"x"],
        }
    )
    path = write(tmp_path, batch, batch[:0], batch[1:])
    first = b'1,0.1,"say ""a,b""","\xc3\xa4\n\xc3\xb6",true,2013-01-31,5,\xff\n'
    second = b',nan,"",,false,NaT,NaT,x\n'
    assert path.read_bytes() == b'i,f,s,t,b,d,m,"raw, really"\n' + first + second + second
    assert [found.name for found in tmp_path.iterdir()] == ["0.csv"]


def kinds() -> st.SearchStrategy[tuple[str, st.SearchStrategy[Any]]]:
    """Types of a schema, each with its values."""
    moments = st.integers(-(2**40), 2**40)
    return st.sampled_from(
        [
            ("int64", st.integers(-(2**63), 2**63 - 1)),
            ("uint64", st.integers(0, 2**64 - 1)),
            ("int8", st.integers(-128, 127)),
            ("float64", st.floats()),
            ("float32", st.floats(width=32)),
            ("float16", st.floats(width=16)),
            ("bool", st.booleans()),
            ("text", st.text(max_size=6) | st.sampled_from([",", '"', "\r", "\n", "NA", " ", "\ufeff", ";", ":"])),
            ("bytes", st.binary(max_size=6)),
            *((f"datetime64[{unit}]", moments) for unit in ("h", "s", "ms", "us", "ns")),
            *((f"datetime64[{unit}]", st.integers(-9000, 9000)) for unit in ("Y", "M", "W", "D")),
            ("timedelta64[us]", moments),
        ]
    )


def column_of(kind: str, values: list[Any]) -> Any:
    if kind in ("text", "bytes"):
        return Text.of(values) if values else Text([0], b"", is_bytes=kind == "bytes")
    dtype = np.dtype(kind)
    return np.array(values, np.int64).view(dtype) if dtype.kind in "mM" else np.array(values, dtype)


@st.composite
def tables(draw: st.DrawFn) -> Batch:
    chosen = draw(st.lists(kinds(), min_size=1, max_size=4))
    rows = draw(st.integers(0, 8))
    columns, validity = {}, {}
    for place, (kind, values) in enumerate(chosen):
        name = draw(st.sampled_from(["a", "b,", 'c"', "\n", "\ufeffe", "NA"])) + str(place)
        valid = draw(st.lists(st.booleans(), min_size=rows, max_size=rows))
        drawn = draw(st.lists(values, min_size=rows, max_size=rows))
        listed = [value if good else type(value)() for value, good in zip(drawn, valid, strict=True)]
        columns[name] = Text.of(listed) if kind == "bytes" and listed else column_of(kind, listed)
        validity[name] = np.array(valid, np.bool_)
    return Batch(columns, validity)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(
    table=tables(),
    delimiter=st.sampled_from(",;\t|: "),
    quote=st.sampled_from("\"'"),
    header=st.booleans(),
    null=st.sampled_from(["", "NA", "\\N"]),
)
def test_what_is_written_reads_back_equal(
    tmp_path_factory: pytest.TempPathFactory, table: Batch, delimiter: str, quote: str, header: bool, null: str
) -> None:
    style: dict[str, Any] = {"delimiter": delimiter, "quote": quote, "header": header}
    folder = tmp_path_factory.mktemp("csv")
    write(folder, table, table[1:], null=null, **style)
    source = processors.read_files(folder, as_=Batch, format="csv", schema=table.schema, nulls=(null,), **style)
    found = read(source)
    wanted = Batch.concat([table, table[1:]])
    assert (found[0].equals(wanted) and len(found) == 1) if wanted.num_rows else not found


@given(st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), min_size=1, max_size=8))
def test_the_csv_module_reads_what_is_written(rows: list[tuple[str, str]]) -> None:
    text = text_of(Batch.from_rows(rows, ["a", "b"]))
    assert [tuple(row) for row in csv.reader(io.StringIO(text, newline=""), strict=True)] == rows


def test_text_of_fixed_width_is_written_as_text() -> None:
    batch = Batch({"s": np.array([b"a,", b"\xff"], "S2"), "u": np.array(["ä", ""], "U1")})
    writer = CsvWriter(csv_style(",", '"', False, "", "latin-1"))
    assert writer.encode(batch) == b'"a,",\xe4\n\xff,""\n'


def test_a_single_column_has_no_delimiters() -> None:
    assert text_of(Batch({"s": ["", None, "x"]})) == '""\n\nx\n'


@pytest.mark.parametrize(
    ("batch", "style", "what"),
    [
        (Batch({}), {}, "without columns"),
        (Batch({"c": np.zeros(1, "c16")}), {}, "column 'c' has dtype complex128"),
        (Batch({"c": np.zeros(1, [("a", "i4")])}), {}, "column 'c' has dtype"),
        (Batch({"s": ["a,b"]}), {"quote": None}, "column 's' has the value 'a,b', which cannot be written without"),
        (Batch({"s": [""]}), {"quote": None}, "column 's'"),
        (Batch({"n": [0, None]}), {"null": "0"}, "column 'n' has the value '0', which stands for a null"),
        (Batch({"s": ["\u20ac"]}), {"encoding": "latin-1"}, "column 's' has text that iso8859-1 cannot hold"),
        (Batch({"s": np.array(["\ud800"])}), {}, "column 's' has text that is not valid Unicode"),
        (Batch({"s": Text([0, 1], b"\xff")}), {}, "column 's' has text that is not valid Unicode"),
    ],
)  # fmt: skip
def test_what_csv_cannot_hold_is_refused(batch: Batch, style: dict[str, Any], what: str) -> None:
    with pytest.raises(BatchError, match=what):
        text_of(batch, **style)


def test_an_item_that_is_no_batch_is_refused(tmp_path: Path) -> None:
    processor = processors.write_files(tmp_path, format="csv")()
    driver = Driver(processor)
    with pytest.raises(BatchError, match=r"^write_files.* expected a Batch, got dict"):
        driver.feed([{"n": 1}])
    processor.close()


def test_batches_of_other_columns_are_refused_and_nothing_is_left(tmp_path: Path) -> None:
    processor = processors.write_files(tmp_path, format="csv")()
    driver = Driver(processor)
    with pytest.raises(BatchError, match="the columns of its first batch"):
        driver.feed([Batch({"n": [1]}), Batch({"m": [1]})])
    processor.close()
    assert list(tmp_path.iterdir()) == []


def test_a_file_takes_what_one_column_would_however_its_batches_are_cut() -> None:
    writer = CsvWriter(csv_style(",", '"', True, "", "utf-8"))
    text = b"".join(
        writer.encode(batch)
        for batch in (
            Batch({"n": [], "s": []}),
            Batch({"n": [1], "s": [None]}),
            Batch({"n": np.array([2], np.int8), "s": ["a"]}),
            Batch({"n": [None], "s": ["b"]}),
            Batch({"n": [0.5], "s": [None]}),
        )
    )
    assert text == b"n,s\n1,\n2,a\n,b\n0.5,\n"
    for batch in (Batch({"n": ["x"], "s": ["a"]}), Batch({"n": [1], "s": [1]}), Batch({"n": [True], "s": ["a"]})):
        with pytest.raises(BatchError, match="the columns of its first batch"):
            writer.encode(batch)


def test_a_writer_without_batches_leaves_an_empty_file(tmp_path: Path) -> None:
    assert write(tmp_path).read_bytes() == b""


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"delimiter": "1"}, "delimiter must not be"), ({"quote": "-"}, "quote must not be"), ({"null": "a,"}, "null"),
        ({"delimiter": "\n"}, "delimiter"), ({"encoding": "gbk"}, "gbk"), ({"format": "tsv"}, "format"),
        ({"to_line": repr}, "to_line"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(given: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        processors.write_files("x", **{"format": "csv", **given})


@given(
    table=tables(),
    delimiter=st.sampled_from(",;\t| "),
    quote=st.sampled_from(['"', "'", None]),
    null=st.sampled_from(["", "NA", "0", "NaT", "nan", "true"]),
)
def test_the_kernel_writes_what_python_does(table: Batch, delimiter: str, quote: str | None, null: str) -> None:
    """Value by value is the reference; what that refuses, the kernel leaves to it."""
    writer = CsvWriter(csv_style(delimiter, quote, False, null, "utf-8"))
    if not table.num_rows:
        return
    written = writer.written_by_kernel(table)
    try:
        spelled = writer.spelled(table)
    except BatchError:
        assert written is None
    else:
        assert written in (None, spelled)


def floats() -> list[float]:
    near = [float(f"{sign}{digits}e{exponent}") for sign in ("", "-") for digits in ("1", "9.5", "123456789012345")
            for exponent in range(-22, 24)]  # fmt: skip
    steps = [np.nextafter(value, towards) for value in near for towards in (0, np.inf)]
    return [*near, *map(float, steps), 0.0, -0.0, 5e-324, 1.7976931348623157e308, float("inf"), float("-inf")]


@given(
    drawn=st.lists(st.floats() | st.decimals(-(10**9), 10**9, places=3).map(float) | st.integers().map(float)),
)
def test_floats_are_written_as_repr_gives_them(drawn: list[float]) -> None:
    values = drawn + floats()
    assert CsvWriter(csv_style(",", '"', False, "", "utf-8")).written_by_kernel(Batch({"f": values})) == (
        "".join([f"{value!r}\n" for value in values]).encode()
    )


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_the_ends_of_integers_are_written_by_the_kernel(kind: str) -> None:
    ends = [np.iinfo(kind).min, np.iinfo(kind).max, 0, 9, 10, 99, 100]
    assert CsvWriter(csv_style(",", '"', False, "", "utf-8")).written_by_kernel(Batch({"i": np.array(ends, kind)})) == (
        "".join([f"{end}\n" for end in ends]).encode()
    )


@pytest.mark.parametrize("unit", ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns"])
def test_dates_are_written_as_numpy_does(unit: str) -> None:
    days = ["1970-01-01", "1969-12-31", "2000-02-29", "1900-03-01", "2262-04-11", "1677-09-22", "NaT"]
    days += [] if unit == "ns" else ["0000-01-06", "9999-12-31"]
    column = np.array(days, "M8[D]").astype(f"M8[{unit}]")
    one = np.timedelta64(1, unit)
    column = np.concatenate([column, column[:6] + one, column[:6] - one])
    expected = "".join([f"{text}\n" for text in np.datetime_as_string(column)]).encode()
    writer = CsvWriter(csv_style(",", '"', False, "", "utf-8"))
    assert writer.written_by_kernel(Batch({"d": column})) == expected
    beyond = np.array([10**6], "M8[Y]").astype("M8[D]")
    assert writer.written_by_kernel(Batch({"d": beyond})) is None, "left to numpy"
    assert writer.encode(Batch({"d": beyond})) == b"1001970-01-01\n"


def test_a_byte_order_mark_is_quoted_wherever_it_comes() -> None:
    batch = Batch({"t": ["\ufeffa", "b"], "y": [b"\xef\xbb\xbf", b"x"]})
    writer = CsvWriter(csv_style(",", '"', False, "", "utf-8"))
    assert writer.written_by_kernel(batch) == writer.spelled(batch) == '"\ufeffa","\ufeff"\nb,x\n'.encode()


def test_nulls_need_no_quotes() -> None:
    batch = Batch({"t": ["a", None], "n": [1, 2]})
    for encoding in ("utf-8", "latin-1"):
        assert CsvWriter(csv_style(",", None, False, "", encoding)).encode(batch) == b"a,1\n,2\n"


def test_text_that_is_cut_within_a_character_is_refused() -> None:
    halves = Text([0, 1, 2], "ä".encode())
    with pytest.raises(BatchError, match="column 's' has text that is not valid Unicode"):
        text_of(Batch({"s": halves}))


def test_lists_and_structs_are_written_as_json() -> None:
    day = datetime.date(2024, 2, 29)
    batch = Batch({"l": [[1, None], [], None], "s": [{"a": "x,y", "d": day}, None, {"a": None, "d": None}]})
    for encoding in ("utf-8", "latin-1"):
        writer = CsvWriter(csv_style(",", '"', True, "", encoding))
        records = list(csv.DictReader(io.StringIO(writer.encode(batch).decode())))
        assert [record["l"] for record in records] == ["[1,null]", "[]", ""]
        assert [record["s"] for record in records] == ['{"a":"x,y","d":"2024-02-29"}', "", '{"a":null,"d":null}']
