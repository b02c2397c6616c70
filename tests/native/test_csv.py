"""The CSV kernels against Python's own csv module, float() and numpy."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet._native import _columns as kernels
from shmjet.processors.csv.csv_format import column_type

ROWS = 100


class Table:
    """Memory for `ROWS` rows of some types, and the parsing of a text into it."""

    def __init__(self, *types: str) -> None:
        self.types = [column_type("c", name) for name in types]
        self.valid = [np.zeros(ROWS, np.bool_) for _ in types]
        self.offsets = [np.zeros(ROWS + 1, np.int64) for _ in types]
        self.data = [np.zeros(ROWS if t.parsed is not None else 10_000, t.parsed or np.uint8) for t in self.types]

    def parse(self, data: bytes, *, nulls: tuple[bytes, ...] = (b"",), **given: Any) -> tuple[int, list[int]]:
        """Return rows, and the reasons of bad records."""
        columns = tuple(
            (t.kind, t.unit, 0, values, offsets, valid)
            if t.parsed is None
            else (t.kind, t.unit, values.dtype.itemsize, values.view(np.uint8), None, valid)
            for t, values, offsets, valid in zip(self.types, self.data, self.offsets, self.valid, strict=True)
        )
        at, rows, reasons = 0, 0, []
        options = {"delimiter": 44, "quote": 34, "at_end": True, "allowed": None, "lenient": False} | given
        before = len(data), options["delimiter"], options["quote"], options["at_end"], len(data)
        behind = nulls, options["allowed"], options["lenient"]
        while True:
            status, at, rows, _, bad = kernels.csv_parse(data, at, *before, columns, *behind, rows, ROWS)
            if status != 4:
                assert status in (0, 1)
                return rows, reasons
            reasons.append(bad[5])

    def values(self, column: int, rows: int) -> list[Any]:
        """Return the values of a column, None for nulls."""
        if self.types[column].parsed is None:
            raw, ends = self.data[column].tobytes(), self.offsets[column][: rows + 1].tolist()
            found: list[Any] = [raw[a:b] for a, b in pairwise(ends)]
        else:
            found = self.data[column][:rows].tolist()
        return [value if valid else None for value, valid in zip(found, self.valid[column].tolist(), strict=False)]


def split(data: bytes) -> list[list[bytes]]:
    """Return all records as values; empty lines are records of one empty value."""
    at, records = 0, []
    while at < len(data):
        found = kernels.csv_split(data, at, len(data), 44, 34, True)
        assert found is not None
        values, at, reason = found
        if reason:
            raise csv.Error(str(reason))
        records.append([value for value, _ in values])
    return records


def by_csv(data: bytes) -> list[list[bytes]]:
    """The same by Python's csv module in its strict mode, which takes what RFC 4180 allows and no more."""
    reader = csv.reader(io.StringIO(data.decode(), newline=""), strict=True)
    return [[value.encode() for value in record] or [b""] for record in reader]


def outcome(run: Any, data: bytes) -> Any:
    try:
        return run(data)
    except csv.Error:
        return "no CSV"


pieces = st.sampled_from(["a", "ä€", " ", ",", ",", '"', '"', '""', "\n", "\r\n", "\r", "x" * 70, "0", "\t", ";"])


@given(st.lists(pieces, max_size=40).map(lambda some: "".join(some).encode()))
def test_records_are_those_of_the_csv_module(data: bytes) -> None:
    assert outcome(split, data) == outcome(by_csv, data)


rows_of_text = st.lists(st.tuples(st.text(max_size=8), st.text(max_size=8)), max_size=20)


@given(rows_of_text, st.sampled_from(["\n", "\r\n", "\r"]))
def test_what_the_csv_module_writes_is_read(rows: list[tuple[str, str]], end: str) -> None:
    file = io.StringIO(newline="")
    quoting = csv.QUOTE_MINIMAL if end == "\r\n" else csv.QUOTE_ALL  # it quotes only the characters of its own line end
    csv.writer(file, lineterminator=end, quoting=quoting).writerows(rows)
    table = Table("text", "bytes")
    count, reasons = table.parse(file.getvalue().encode("utf-8", "surrogatepass"), nulls=())
    assert (count, reasons) == (len(rows), [])
    for column in (0, 1):
        assert table.values(column, count) == [row[column].encode() for row in rows]


INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


@given(
    st.lists(st.integers(-(2**65), 2**65) | st.integers(-300, 70_000), min_size=1, max_size=20),
    st.sampled_from(INTEGERS),
)
def test_integers_are_exact_or_refused(values: list[int], name: str) -> None:
    table = Table(name)
    bounds = np.iinfo(name)
    good = [value for value in values if bounds.min <= value <= bounds.max]
    count, reasons = table.parse("\n".join(map(str, values)).encode())
    assert table.values(0, count) == good
    assert reasons == [2] * (len(values) - len(good))


@given(st.text("0123456789+-.eE xnaif_", max_size=30) | st.floats().map(repr) | st.integers(0, 10**40).map(str))
def test_floats_are_those_of_python(text: str) -> None:
    try:
        wanted: float | None = None if "_" in text else float(text)
    except ValueError:
        wanted = None
    table = Table("float64")
    count, _ = table.parse(text.encode())
    if wanted is None or not text:
        assert count == 0 or not table.valid[0][0]
    else:
        assert count == 1
        assert math.isnan(wanted) or table.data[0][0].tobytes() == np.float64(wanted).tobytes()
        assert math.isnan(table.data[0][0]) == math.isnan(wanted)


@given(st.floats(width=32))
def test_narrow_floats_come_back_from_their_repr(value: float) -> None:
    table = Table("float32")
    assert table.parse(repr(value).encode()) == (1, [])
    assert np.array_equal(table.data[0][:1], np.array([value], np.float32), equal_nan=True)


UNITS = ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns"]


@given(st.sampled_from(UNITS), st.integers(-(2**63), 2**63 - 1), st.integers(0, 60))
def test_dates_are_read_as_numpy_writes_them(unit: str, value: int, narrower: int) -> None:
    moment = np.datetime64(value >> narrower, unit)
    if unit in "YMWD" and not np.isnat(moment) and not -1e9 < (value >> narrower) < 1e9:
        return  # far outside of what numpy itself can write
    if unit in "hms" and abs(value >> narrower) > 2**56:
        return
    table = Table(f"datetime64[{unit}]")
    assert table.parse(str(moment).encode()) == (1, []), str(moment)
    assert table.data[0][:1].view(np.int64)[0] == np.array([moment]).view(np.int64)[0]


def test_the_powers_of_five_are_the_first_128_bits() -> None:
    for q in range(-60, 61):
        exact = 5**q << 1400 if q >= 0 else (1 << 1400) // 5**-q
        high, low = kernels.csv_power_of_five(q) or (0, 0)
        assert (high << 64) + low == (exact >> (exact.bit_length() - 128)) + (-27 <= q < 0), q
    assert kernels.csv_power_of_five(61) is None


def test_nulls_spaces_and_words() -> None:
    table = Table("int64", "bool", "text", "timedelta64[s]")
    lines = b' 7\t,TRUE, a ,-5\nNA,0,NA,NaT\n"",false,"NA","12"\n"8","1","",3'
    assert table.parse(lines, nulls=(b"", b"NA")) == (4, [])
    assert table.values(0, 4) == [7, None, None, 8]
    assert table.values(1, 4) == [True, False, False, True]
    assert table.values(2, 4) == [b" a ", None, b"NA", b""]
    assert table.data[3].view(np.int64)[:4].tolist() == [-5, np.iinfo(np.int64).min, 12, 3]


def test_text_may_be_held_to_some_bytes() -> None:
    allowed = bytes([1] * 128 + [0] * 128)
    table = Table("text")
    assert table.parse("a\nä\nb".encode("latin-1"), allowed=allowed) == (2, [10])
    assert Table("text").parse(b"a\n\xff\nb", lenient=True) == (3, [])


@pytest.mark.parametrize(
    "change",
    [
        {"kind": ord("x")}, {"itemsize": 3}, {"data": np.zeros(8 * ROWS - 1, np.uint8)},
        {"valid": np.zeros(ROWS - 1, np.uint8)},
        {"offsets": np.zeros(ROWS + 1, np.int64)}, {"kind": ord("t"), "itemsize": 0}, {"data": bytes(8 * ROWS)},
        {"kind": ord("t"), "itemsize": 0, "offsets": np.full(ROWS + 1, 10_000)},
        {"kind": ord("t"), "itemsize": 0, "offsets": np.zeros(ROWS, np.int64)},
    ],
)  # fmt: skip
def test_memory_that_does_not_fit_is_refused(change: dict[str, Any]) -> None:
    column = {"kind": ord("i"), "unit": 0, "itemsize": 8, "data": np.zeros(ROWS, np.int64), "offsets": None}
    column["valid"] = np.zeros(ROWS, np.uint8)
    given_ = tuple((column | change).values())
    with pytest.raises((ValueError, BufferError)):
        kernels.csv_parse(b"1", 0, 1, 44, 34, True, 1, (given_,), (), None, False, 0, ROWS)


@pytest.mark.parametrize(
    ("at", "size", "delimiter", "rows"),
    [(-1, 1, 44, 0), (0, 2, 44, 0), (1, 0, 44, 0), (0, 1, 256, 0), (0, 1, 44, -1), (0, 1, 44, 101)],
)
def test_numbers_out_of_range_are_refused(at: int, size: int, delimiter: int, rows: int) -> None:
    with pytest.raises(ValueError):
        kernels.csv_parse(b"1", at, size, delimiter, 34, True, 1, (), (), None, False, rows, ROWS)


def lines(data: bytes, limits: Iterable[int]) -> list[bytes]:
    text, offsets, at, rows = np.zeros(len(data), np.uint8), np.zeros(ROWS + 1, np.int64), 0, 0
    for limit in limits:
        at, rows = kernels.split_lines(data, at, len(data), text, offsets, rows, limit)
    assert at == len(data)
    return [text[a:b].tobytes() for a, b in pairwise(offsets[: rows + 1])]


@given(st.lists(pieces, max_size=40).map("".join), st.integers(0, 40))
def test_lines_are_those_of_text_mode(text: str, first: int) -> None:
    wanted = [line.removesuffix("\n").encode() for line in io.StringIO(text, newline=None)]
    assert lines(text.encode(), [first, ROWS]) == wanted


@given(st.binary(max_size=12) | st.text(max_size=5).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_utf8_is_what_python_decodes(data: bytes) -> None:
    try:
        data.decode()
        valid = True
    except UnicodeDecodeError:
        valid = False
    assert kernels.is_utf8(data) is valid
