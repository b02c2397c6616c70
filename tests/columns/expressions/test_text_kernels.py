"""Casts from and to text, words and letters beyond ASCII, by kernels: what Python and numpy say of each value."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import Batch, column
from shmjet.columns import text as kernels
from shmjet.columns.expressions import Projection
from shmjet.data.errors import BatchError
from shmjet.data.text import Text
from tests.examples import examples

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def computed(values: Any, expression: Any) -> Any:
    """Return what an expression makes of a column in which other values come before and after."""
    return Projection({"made": expression}, keep=False).apply(Batch({"x": values}))["made"]


def cast(texts: list[str], kind: str) -> list[Any] | None:
    try:
        return list(computed(Text.of(["0", *texts])[1:], column("x").cast(kind)))
    except BatchError:
        return None


BITS = (7, 8, 15, 16, 31, 32, 63, 64)
EDGES = [str(sign * 2**bits + step) for bits in BITS for sign in (1, -1) for step in (-1, 0, 1)]
ODD = ["", "-", "+7", "007", "1.", ".5", ".", "1e5", "-0", "1e400", "1_0", " 1", "inf", "-NaN", "\uff11"]
NUMBERS = st.one_of(
    st.sampled_from([*EDGES, *ODD]),
    st.integers(-(10**20), 10**20).map(str),
    st.floats().map(repr),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda value: f"{value:.25f}"),
    st.text("0123456789.eE+-", max_size=8),
)


@examples(200)
@given(NUMBERS, st.sampled_from(INTEGERS))
def test_integers_are_read_as_int_reads_them(text: str, kind: str) -> None:
    limits = np.iinfo(kind)
    plain = text.removeprefix("-").removeprefix("+") if text[:1] in ("+", "-") else text
    valid = plain.isascii() and plain.isdigit() and len(text) - len(plain) <= 1
    value = int(text) if valid else None
    expected = [value] if value is not None and limits.min <= value <= limits.max else None
    assert cast([text], kind) == expected


@examples(200)
@given(NUMBERS, st.sampled_from(["float64", "float32"]))
def test_floats_are_read_as_float_reads_them(text: str, kind: str) -> None:
    value: Any = None
    if text.isascii() and not set(text) & set("_ "):
        with contextlib.suppress(ValueError), np.errstate(over="ignore"):
            value = np.dtype(kind).type(float(text))
    if value is not None and np.isinf(value) and "inf" not in text.lower():
        value = None
    found = cast([text], kind)
    assert (found is None) == (value is None)
    if found is not None:
        assert repr(np.dtype(kind).type(found[0])) == repr(value)


TIMES = ["", "00:00", "23:59:59", "24:00", "07:30:00.5", "07:30:15.123456789", "12", "01:02:03Z", "1:2"]
DATES = st.builds(
    lambda y, m, d, sep, rest: f"{y:04d}-{m:02d}-{d:02d}" + (sep + rest if rest else ""),
    *(st.integers(1, 9999), st.integers(0, 13), st.integers(0, 32), st.sampled_from("T "), st.sampled_from(TIMES)),
)


@examples(150)
@given(st.one_of(DATES, st.sampled_from(["", "2020", "NaT", "1132754419"])), st.sampled_from(["D", "s", "us"]))
def test_dates_are_read_as_numpy_reads_them(text: str, unit: str) -> None:
    found = cast([text], f"datetime64[{unit}]")
    expected: Any = None
    form = r"\d{4}-\d\d-\d\d" + (r"([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?" if unit != "D" else "")
    if re.fullmatch(form, text):
        with contextlib.suppress(ValueError):
            expected = [np.datetime64(text).astype(f"datetime64[{unit}]").item()]
    assert found == expected


@pytest.mark.parametrize("kind", [*INTEGERS, "float64", "float32", "bool", "datetime64[D]", "datetime64[us]"])
def test_values_become_the_text_that_reads_back(kind: str) -> None:
    bits = np.random.default_rng(7).integers(0, 256, 8 * 400, np.uint8)
    values = (bits & 1).astype(bool) if kind == "bool" else bits.view(kind)
    if kind.startswith("datetime64"):
        values = (values.view(np.int64) % 2_900_000).astype(kind)
    written = computed(values, column("x").cast(str))
    if kind.startswith("datetime64"):
        expected = np.datetime_as_string(values).tolist()
    elif kind == "float32":
        expected = [repr(float(str(value))) for value in values]
    else:
        expected = [repr(value).lower() if kind == "bool" else repr(value) for value in values.tolist()]
    assert written.tolist() == expected
    if not kind.startswith("float"):
        assert cast(expected, kind) == values.tolist()


def test_a_value_that_does_not_fit_is_named_with_its_row() -> None:
    with pytest.raises(BatchError, match="'300' in row 1 is not a value of int8"):
        computed(Text.of(["3", "300"]), column("x").cast("int8"))
    null = Batch({"x": ["7", None, "9"]})["x"]
    assert computed(null, column("x").cast(int)).to_list() == [7, None, 9]


ALPHABET = "aB\u00c4\u00df\u03a3\u03c3\u0130\u0131\u0149\u01c6\n \t\x1c\x85'\0\u3000\u2028\u0307\ufb01"
LETTERS = st.text(ALPHABET, max_size=8)


@examples(200)
@given(st.lists(LETTERS, max_size=6))
def test_words_and_letters_beyond_ascii_are_those_of_str(values: list[str]) -> None:
    text = Text.of(["Q", *values])[1:]
    assert list(computed(text, column("x").str.upper())) == [value.upper() for value in values]
    assert list(computed(text, column("x").str.lower())) == [value.lower() for value in values]
    assert list(computed(text, column("x").str.split())) == [value.split() for value in values]


@examples(100)
@given(st.lists(st.binary(max_size=6), min_size=1, max_size=5))
def test_invalid_bytes_are_replaced_as_decode_does(values: list[bytes]) -> None:
    text = Text.trusted(np.cumsum([0, *map(len, values)]), np.frombuffer(b"".join(values), np.uint8))
    assert kernels.lower(text).tolist() == [value.decode("utf-8", "replace").lower() for value in values]
