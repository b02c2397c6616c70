from __future__ import annotations

import csv
import io
import logging
import math
import os
import pickle
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shmjet import processors
from shmjet.data.batch import Batch
from shmjet.data.errors import BatchError
from shmjet.processors.csv import batch_reader, parse_errors
from shmjet.processors.csv.quote_seams import Seams, SeamTable
from shmjet.processors.files.file_blocks import Segment, unit_size
from shmjet.testing import TestGrid

from .test_files import read

SCHEMA = {"id": "int64", "name": "text", "price": "float64", "day": "datetime64[D]"}


def csv_file(folder: Path, content: str | bytes, name: str = "some.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def rows(path: Any, count: int = 1, members: int = 1, **options: Any) -> list[tuple[Any, ...]]:
    """Read files with several processors; return the rows of all batches."""
    grid = options.pop("grid", None)
    source = processors.read_files(path, as_=Batch, format="csv", **options)
    batches = read(source, count, members, grid=grid)
    assert all(batch.num_rows for batch in batches)
    return [row for batch in batches for row in batch.tuples()]


def test_columns_get_the_types_of_the_schema(tmp_path: Path) -> None:
    path = csv_file(tmp_path, 'id,name,price,day\n1,"Öl, ""rot""",2.5,2013-01-31\n-2,,1e3,\n')
    (batch,) = read(processors.read_files(path, as_=Batch, format="csv", schema=SCHEMA))
    assert {name: str(dtype) for name, dtype in batch.schema.items()} == SCHEMA
    wanted = {"id": [1, -2], "name": ['Öl, "rot"', None], "price": [2.5, 1000.0]}
    assert batch.equals(
        Batch({**wanted, "day": np.array(["2013-01-31", "1970-01-01"], "M8[D]")}, {"day": np.array([True, False])})
    )
    assert not batch["id"].flags.writeable


def test_every_type_can_be_read(tmp_path: Path) -> None:
    schema = {
        **{name: name for name in ("bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64")},
        **{name: name for name in ("float16", "float32", "bytes", "timedelta64[ms]", "datetime64[ns]")},
        "python int": int,
        "python str": str,
        "dtype": np.dtype(">i4"),
    }
    values = "true,-128,-32768,-2147483648,255,65535,4294967295,18446744073709551615,1.5,0.1,\u00e4,-7,"
    path = csv_file(tmp_path, ",".join(schema) + f"\n{values}1969-12-31T23:59:59.999999999,5,x,6\n")
    (batch,) = read(processors.read_files(path, as_=Batch, format="csv", schema=schema))
    assert list(batch.schema.values())[:10] == [np.dtype(name) for name in list(schema)[:10]]
    assert list(map(str, list(batch.schema.values())[10:])) == [
        *("bytes", "timedelta64[ms]", "datetime64[ns]", "int64", "text", "int32"),
    ]
    limits = (True, -128, -32768, -2147483648, 255, 65535, 4294967295, 18446744073709551615, 1.5)
    row = next(batch.tuples())
    assert row[:9] == limits
    assert row[9] == float(np.float32(0.1))
    assert row[10] == "ä".encode()
    assert batch["datetime64[ns]"].view(np.int64)[0] == -1
    assert batch["timedelta64[ms]"].view(np.int64)[0] == -7


def test_the_header_may_have_another_order_and_columns_choose(tmp_path: Path) -> None:
    path = csv_file(tmp_path, "x,price,id,name\n?,1,2,a\n")
    assert rows(path, schema=SCHEMA, columns=["id", "price"]) == [(2, 1.0)]
    assert rows(path, columns=["name", "x"]) == [("a", "?")]


def test_without_a_header_the_schema_gives_the_order(tmp_path: Path) -> None:
    path = csv_file(tmp_path, "1|a\r\n2|b")
    schema = {"n": "int8", "s": "text"}
    assert rows(path, header=False, schema=schema, delimiter="|") == [(1, "a"), (2, "b")]
    assert rows(path, header=False, schema=schema, delimiter="|", columns=["s"]) == [("a",), ("b",)]
    assert rows(path, header=False, delimiter="|") == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("content", ["", "n,s", "n,s\n", "\ufeffn,s\r\n", '"n","s"\n\n\n'])
def test_files_without_records_give_no_batch(tmp_path: Path, content: str) -> None:
    assert rows(csv_file(tmp_path, content), schema={"n": "int64", "s": "text"}) == []
    csv_file(tmp_path, "", "more.csv")
    assert rows(tmp_path) == []


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_byte_order_marks_and_a_last_line_without_end(
    tmp_path: Path, end: str, last: bool, mark: str
) -> None:
    path = csv_file(tmp_path, mark + end.join(['"n",s', "1,a", "", '2,"b\nc"']) + end * last)
    assert rows(path, schema={"n": "int64", "s": "text"}) == [(1, "a"), (2, "b\nc")]


def test_nulls_are_not_quoted_text(tmp_path: Path) -> None:
    path = csv_file(tmp_path, 's,n\nNA,NA\n"NA","NA"\n,\n"",""\n')
    schema = {"s": "text", "n": "int64"}
    assert rows(path, schema=schema, nulls=["", "NA"]) == [(None, None), ("NA", None), (None, None), ("", None)]
    with pytest.raises(BatchError, match="line 2, column 'n': expected int64, found 'NA'"):
        rows(csv_file(tmp_path, "s,n\nx,NA\n"), schema=schema)


def test_an_empty_line_is_a_record_where_there_is_one_column(tmp_path: Path) -> None:
    assert rows(csv_file(tmp_path, 's\n\na\n""\n'), schema={"s": "text"}) == [(None,), ("a",), ("",)]


BAD = [
    ("id,name\n1,a\nx,b\n", 3, ", column 'id': expected int8, found 'x'"),
    ("id,name\n1,a\n128,b\n", 3, ", column 'id': expected int8, found '128', which does not fit into it"),
    ("id,name\n1,a\n3\n", 3, ": expected 2 fields, found 1: '3'"),
    ("id,name\n1,a\n3,b,\n", 3, ": expected 2 fields, found 3: '3,b,'"),
    ('id,name\n1,"a\n\n"\n"2"x,b\n', 5, ", column 'id': found text behind the closing quote of '2'"),
    ('id,name\r1,a\r\n\r\n2,"b\n', 4, ", column 'name': a quote is opened and never closed, found 'b"),
    (b"id,name\n1,\xff\n", 2, ", column 'name': expected text in the file's encoding, found '\\\\\\\\xff'"),
    ("id,name\n1," + "x" * 100 + ",\n", 2, ": expected 2 fields, found 3: '1,x{58}'\\.\\.\\."),
]


@pytest.mark.parametrize(("content", "line", "what"), BAD)
def test_a_bad_line_is_named_or_left_out(
    tmp_path: Path, content: str | bytes, line: int, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    path, schema = csv_file(tmp_path, content), {"id": "int8", "name": "text"}
    with pytest.raises(BatchError, match=f"^{path}, line {line}{what}"):
        rows(path, schema=schema, errors="strict")
    grid = TestGrid()
    with caplog.at_level(logging.WARNING):
        left = rows(path, schema=schema, errors="strict", on_bad_line="skip", stats="counts", grid=grid)
    assert len(left) == (not isinstance(content, bytes) and len(content) < 100)
    assert "1 bad lines were left out; the first: " in caplog.text
    assert grid.get_map("counts")[0] == {"files": 1, "bytes": path.stat().st_size, "skipped": 0, "bad_lines": 1}


def test_the_line_is_right_however_far_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["n,s"] + [f'{n},"a\n\r\n{n}"' for n in range(20_000)]
    path = csv_file(tmp_path, "\n".join(lines) + "\nx,y\n")
    with pytest.raises(BatchError, match="line 60002, column 'n'"):
        rows(path, 3, schema={"n": "int64", "s": "text"}, block_size=10_000)
    for text in ["\r\n", "a\r", "a\r\n", "\r\r\n\n", "abc"]:
        (tmp_path / "x").write_bytes(text.encode() * 700_000)
        wanted = len(io.StringIO(text * 700_000, newline=None).read().split("\n"))
        assert parse_errors.line_of(str(tmp_path / "x"), 700_000 * len(text)) == wanted


@pytest.mark.parametrize(
    ("header", "what"),
    [
        ("id,nome", "expected the column 'name', found \\['id', 'nome'\\]"),
        ("id,name,id", "the header has the column 'id' more than once"),
        ("id,name,more", "found the column 'more', which is not in the schema"),
        ('"id"x,name', "the header is not valid CSV: text follows a closing quote"),
        ('id,"name', "the header is not valid CSV: a quote is never closed"),
    ],
)
def test_a_header_that_does_not_fit_is_named(tmp_path: Path, header: str, what: str) -> None:
    path = csv_file(tmp_path, header + "\n1,a\n")
    with pytest.raises(BatchError, match=f"{path}, line 1: {what}"):
        rows(path, schema={"id": "int8", "name": "text"})


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"on_bad_line": "warn"}, "on_bad_line"), ({"delimiter": ",,"}, "delimiter"), ({"delimiter": "é"}, "delimiter"),
        ({"delimiter": '"'}, "must differ"), ({"quote": "\n"}, "quote"), ({"nulls": "NA"}, "nulls"),
        ({"encoding": "utf-16"}, "utf-16"), ({"encoding": "shift-jis"}, "shift-jis"), ({"encoding": "gbk"}, "gbk"),
        ({"format": "json"}, "format"), ({"batch_rows": 0}, "batch_rows"), ({"block_size": 0}, "block_size"),
        ({"format": "lines", "columns": ["a"]}, "columns"), ({"as_": None}, "as_=Batch"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(given: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        processors.read_files("x", **{"as_": Batch, "format": "csv", **given})


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"schema": {}}, "schema must be"), ({"schema": {"": "text"}}, "name"), ({"schema": {"a": "decimal"}}, "'a'"),
        ({"schema": {"a": "complex128"}}, "'a'"), ({"schema": {"a": "U5"}}, "'a'"), ({"schema": {"a": object}}, "'a'"),
        ({"schema": {"a": "datetime64"}}, "'a'"), ({"schema": {"a": "datetime64[2D]"}}, "'a'"),
        ({"schema": {"a": np.longdouble}}, "'a'"), ({"schema": {"a": "text"}, "columns": ["b"]}, "'b'"),
        ({"columns": []}, "columns"), ({"columns": ["a", "a"]}, "columns"), ({"columns": "ab"}, "columns"),
        ({"schema": {"path": "text"}, "with_path": True}, "path"),
        ({"format": "lines", "schema": {"a": "text", "b": "text"}}, "one column"),
        ({"format": "lines", "schema": {"a": "int64"}}, '"text" or "bytes"'),
    ],
)  # fmt: skip
def test_a_wrong_schema_is_refused(given: dict[str, Any], what: str) -> None:
    with pytest.raises(BatchError, match=what):
        processors.read_files("x", **{"as_": Batch, "format": "csv", **given})


def test_as_must_be_batch() -> None:
    with pytest.raises(TypeError, match="as_"):
        processors.read_files("x", as_=dict)  # type: ignore[arg-type]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "iso8859-15"])
def test_text_in_encodings_of_one_byte_a_character(tmp_path: Path, encoding: str) -> None:
    path = csv_file(tmp_path, "näme,n\nÄ é,1\nplain,2\n".encode(encoding))
    assert rows(path, encoding=encoding) == [("Ä é", 1), ("plain", 2)]


def test_bytes_that_are_no_text_are_replaced_unless_errors_are_strict(tmp_path: Path) -> None:
    path = csv_file(tmp_path, b"s,n\nok,1\n\xff\xc3,2\n\xc3,3\n\xa9,4\n")
    assert rows(path) == [("ok", 1), ("\ufffd\ufffd", 2), ("\ufffd", 3), ("\ufffd", 4)]
    assert rows(path, encoding="ascii", errors="ignore") == [("ok", 1), ("", 2), ("", 3), ("", 4)]
    with pytest.raises(BatchError, match=re.escape(f"{path}, or a file before it: column 's'")):
        rows(path, errors="surrogateescape")
    path = csv_file(tmp_path, b"a\n\x81\nx\n")
    assert rows(path, encoding="cp1252", errors="strict", on_bad_line="skip") == [("x",)]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("options", [{}, {"schema": {"n": "text"}}, {"schema": {"n": "text"}, "header": False}])
def test_files_in_utf_16_are_named(tmp_path: Path, encoding: str, options: dict[str, Any]) -> None:
    path = csv_file(tmp_path, "\ufeffn\nä\n".encode(encoding))
    with pytest.raises(BatchError, match=f"{path}: the file is in UTF-16"):
        rows(path, **options)
    assert rows(csv_file(tmp_path, b"\xff\xfe\n1\n"), encoding="cp1252", columns=["\xff\xfe"]) == [(1,)]


def test_numbers_beyond_a_float_are_infinite_without_a_warning(tmp_path: Path) -> None:
    path = csv_file(tmp_path, "n\n1e400\n-1e400\n")
    for dtype in ("float16", "float32", "float64"):
        assert rows(path, schema={"n": dtype}) == [(math.inf,), (-math.inf,)]


def test_a_path_that_is_no_text_is_written_with_escapes(tmp_path: Path) -> None:
    for name in (b"a\xfe", b"a\xff"):
        (tmp_path / os.fsdecode(name)).write_text("n\n1\n")
    found = {Path(path).name for _, path in rows(tmp_path, with_path=True)}
    assert found == {r"a\udcfe", r"a\udcff"}


def test_path_can_be_a_column(tmp_path: Path) -> None:
    a, b = csv_file(tmp_path, "n\n1\n2\n", "a"), csv_file(tmp_path, "n\n3\n", "b")
    assert sorted(rows(tmp_path, with_path=True)) == [(1, str(a)), (2, str(a)), (3, str(b))]


def test_binary_files_can_be_left_out(tmp_path: Path) -> None:
    csv_file(tmp_path, b"\0\0", "binary")
    csv_file(tmp_path, b"n\n1\n", "text")
    assert rows(tmp_path, schema={"n": "int8"}, skip_binary=True) == [(1,)]


def test_batches_have_the_rows_that_were_asked_for_across_files(tmp_path: Path) -> None:
    for name in "abc":
        csv_file(tmp_path, "n\n" + "7\n" * 25, name)
    batches = read(processors.read_files(tmp_path, as_=Batch, format="csv", batch_rows=20))
    assert [batch.num_rows for batch in batches] == [20, 20, 20, 15]


def test_the_schema_is_inferred_from_the_first_rows(tmp_path: Path) -> None:
    path = csv_file(
        tmp_path,
        "i,f,b,d,t,ms,s,empty,mixed,huge,q\n"
        "1,1,true,2013-01-01,2013-01-01T10:00:00Z,2013-01-01 10:00:00.5,x,,1,12345678901234567890,1\n"
        '-2,2.5,FALSE,2014-02-28,2013-01-01 00:00,2013-01-01,1,,true,1,"2"\n',
    )
    (batch,) = read(processors.read_files(path, as_=Batch, format="csv"))
    assert list(map(str, batch.schema.values())) == [
        *("int64", "float64", "bool", "datetime64[D]", "datetime64[s]", "datetime64[ms]"),
        *("text", "text", "bool", "text", "int64"),
    ]
    assert batch.values("mixed") == [True, True]
    assert batch.values("empty") == [None, None]


def test_inference_passes_over_empty_files_and_bad_lines(tmp_path: Path) -> None:
    csv_file(tmp_path, "", "a")
    csv_file(tmp_path, "n,s\nx\n1,a\n", "b")
    assert rows(tmp_path, on_bad_line="skip") == [(1, "a")]
    with pytest.raises(BatchError, match="more than once"):
        rows(csv_file(tmp_path, "n,n\n1,2\n", "c"))
    with pytest.raises(BatchError, match="an empty name"):
        rows(csv_file(tmp_path, "n,\n1,2\n", "c"))
    assert rows(csv_file(tmp_path, "n,\n1,2\n", "c"), columns=["n"]) == [(1,)]
    assert rows(csv_file(tmp_path, ",n,x,x\n0,1,a,b\n", "c"), columns=["n"]) == [(1,)]
    with pytest.raises(BatchError, match="more than once"):
        rows(csv_file(tmp_path, ",n,x,x\n0,1,a,b\n", "c"), columns=["n", "x"])
    with pytest.raises(BatchError, match="no CSV file"):
        rows(csv_file(tmp_path, "\n\n", "c"))


def test_a_file_of_a_byte_order_mark_alone_is_empty(tmp_path: Path) -> None:
    mark = csv_file(tmp_path, "\ufeff", "a")
    assert rows(mark) == rows(mark, header=False) == rows(mark, schema={"n": "int64"}) == []
    csv_file(tmp_path, "", "b")
    assert rows(tmp_path) == []
    csv_file(tmp_path, "n,s\n1,a\n", "d")
    assert rows(tmp_path) == [(1, "a")]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_reader, "PIECE", 16)


words = st.sampled_from(["", "a", "ä€", " b ", '"', ",", "\n", "\r\n", "\r", "x,y\n", 'say ""', "z" * 40, "\n\n\n"])
records = st.lists(st.tuples(st.integers(-999, 999), st.lists(words, max_size=3).map("".join), words), max_size=25)


@pytest.mark.usefixtures("small")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(
    records=records,
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
    header=st.sampled_from(["n,s,t", '"n","s",t', '\ufeff"n",s,"t"']),
    block=st.integers(1, 80),
    count=st.integers(1, 4),
    members=st.integers(1, 2),
)
def test_blocks_give_the_rows_of_the_csv_module_wherever_quotes_are(
    tmp_path_factory: pytest.TempPathFactory,
    records: list[tuple[int, str, str]],
    quoting: int,
    header: str,
    block: int,
    count: int,
    members: int,
) -> None:
    file = io.StringIO(newline="")
    csv.writer(file, quoting=quoting).writerows(records)
    path = csv_file(tmp_path_factory.getbasetemp(), f"{header}\r\n{file.getvalue()}", "blocks.csv")
    schema = {"n": "int64", "s": "text", "t": "text"}
    found = rows(path, count, members, schema=schema, nulls=(), block_size=block, batch_rows=7)
    assert Counter(found) == Counter(records)
    if count == members == 1 and block >= path.stat().st_size:
        assert found == records


odd_pieces = st.sampled_from([b"1,a\n", b'2,"b\n"\n', b'"', b",", b"\n", b"\r", b"xyz", b'""'])


@pytest.mark.usefixtures("small")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(
    data=st.lists(st.sampled_from([b"1,a\n", b'2,"b\n"\n', b'"', b",", b"\n", b"\r", b"xyz", b'""']), max_size=40).map(
        b"".join
    ),
    block=st.integers(1, 40),
    count=st.integers(1, 4),
)
def test_any_bytes_give_the_same_rows_in_one_block_and_in_many(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, block: int, count: int
) -> None:
    path = csv_file(tmp_path_factory.getbasetemp(), data, "any.csv")
    options: dict[str, Any] = {"schema": {"n": "text", "s": "text"}, "header": False, "on_bad_line": "skip"}
    wanted, found = TestGrid(), TestGrid()
    whole = rows(path, stats="stats", grid=wanted, **options)
    assert Counter(rows(path, count, block_size=block, stats="stats", grid=found, **options)) == Counter(whole)
    for name in ("bad_lines", "files"):
        total = sum(report[name] for report in found.get_map("stats").values())
        assert total == wanted.get_map("stats")[0][name], name


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("header", ["n,t", '"n","t"'])
def test_blocks_that_lie_in_the_header_do_not_matter(tmp_path: Path, end: str, header: str) -> None:
    path = csv_file(tmp_path, end.join([header, '1,"a\r\n "', "2,b", '3,"c\n,""d"', ""]))
    for size in range(1, 12):
        found = rows(path, count=2, block_size=size, schema={"n": "int64", "t": "text"})
        assert sorted(found) == [(1, "a\r\n "), (2, "b"), (3, 'c\n,"d')], size


def test_without_quotes_blocks_are_cut_at_newlines(tmp_path: Path) -> None:
    path = csv_file(tmp_path, "n,s\n" + "".join(f'{n},"{n}\n' for n in range(500)))
    found = rows(path, 3, 2, schema={"n": "int64", "s": "text"}, quote=None, block_size=50)
    assert sorted(found) == [(n, f'"{n}') for n in range(500)]


def test_the_processors_share_one_file_with_quotes(tmp_path: Path) -> None:
    path = csv_file(tmp_path, "n,s\n" + "".join(f'{n},"{n}\n,"\n' for n in range(50_000)))
    size = path.stat().st_size
    assert size // unit_size(size, 4) > 10
    assert sorted(rows(path, 4, schema={"n": "int64", "s": "text"})) == [(n, f"{n}\n,") for n in range(50_000)]


def test_a_record_without_end_is_an_error_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_reader, "LARGEST_RECORD", 1 << 20)
    path = csv_file(tmp_path, 's\na\n"' + "x" * (3 << 20))
    for blocks in ({}, {"block_size": 100_000}):
        with pytest.raises(
            BatchError, match="line 3: a record of more than 1 MiB begins here; is a closing quote missing"
        ):
            rows(path, 2, schema={"s": "text"}, **blocks)
    with pytest.raises(BatchError, match="the header has more than 1 MiB"):
        rows(csv_file(tmp_path, "x" * (3 << 20)), schema={"s": "text"})
    long = csv_file(tmp_path, "s\n" + "x" * 900_000)
    assert rows(long, schema={"s": "text"}) == [("x" * 900_000,)]


def test_the_source_is_small_and_pickles_and_files_are_closed(tmp_path: Path) -> None:
    path = csv_file(tmp_path, "n\n" + "1\n" * 1000)
    before = len(os.listdir("/proc/self/fd"))
    source = pickle.loads(pickle.dumps(processors.read_files(path, as_=Batch, format="csv", block_size=64)))
    assert len(pickle.dumps(source)) < 1000
    assert len([row for batch in read(source, 2) for row in batch.tuples()]) == 1000
    assert len(os.listdir("/proc/self/fd")) == before


def test_seams_wait_for_all_blocks_before() -> None:
    units = [
        (Segment("a", 0, 5, 15),),
        (Segment("b", 0, 5, 5),),
        (Segment("a", 5, 10, 15),),
        (Segment("a", 10, 15, 15),),
    ]
    table = SeamTable(len(units))
    one, other = Seams(table.address, units), Seams(table.address, units)
    first, second, third = units[0][0], units[2][0], units[3][0]
    assert one.begins_inside(first) is False
    other.publish(second, outside=False, inside=True)
    assert one.begins_inside(third) is None
    one.publish(first, outside=True, inside=False)
    assert one.begins_inside(third) is True
    assert one.begins_inside(second) is True
    assert other.begins_inside(second) is True
    for shared in (one, other, table):
        shared.close()
