"""Rows as kernels write them equal rows written value by value; what kernels do not know is written value by value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet.processors.files import plain_rows
from shmjet.processors.files.row_text import RowEncoder

NAMES = ("id", "a,b", "t")

text = st.text(max_size=4) | st.sampled_from([",", '"', "\r", "\n", "NA", "\ufeff", "0", "\ud800", ";"])
kinds = st.sampled_from(
    [
        st.integers(-(2**63), 2**63 - 1),
        st.integers(2**62, 2**65),
        st.floats(),
        st.booleans(),
        text,
        st.binary(max_size=3),
        st.dates(),
        st.integers() | st.floats(),
        st.none(),
    ]
)


@st.composite
def tables(draw: st.DrawFn) -> list[Any]:
    columns = draw(st.lists(kinds, min_size=1, max_size=3))
    nullable = [values | st.none() if draw(st.booleans()) else values for values in columns]
    rows = draw(st.lists(st.tuples(*nullable), min_size=1, max_size=6))
    if draw(st.booleans()):
        return rows
    return [dict(zip(NAMES, row, strict=False)) for row in rows]


def encoded(encoder: RowEncoder, rows: list[Any]) -> Any:
    try:
        return encoder.encode(rows)
    except (TypeError, ValueError) as error:
        return type(error), str(error)


@given(
    rows=tables(),
    delimiter=st.sampled_from(",;\t:"),
    quote=st.sampled_from(['"', "'", None]),
    null=st.sampled_from(["", "NA", "0", "nan", "true"]),
    columns=st.sampled_from([None, NAMES[:1]]),
)
def test_kernels_write_rows_as_they_are_written_value_by_value(
    rows: list[Any], delimiter: str, quote: str | None, null: str, columns: Any
) -> None:
    style = (delimiter, quote, True, null, columns)
    by_kernels, by_values = RowEncoder(*style), RowEncoder(*style)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RowEncoder, "_written", lambda self, rows: None)
        expected = encoded(by_values, rows)
    assert encoded(by_kernels, rows) == expected


def plain(rows: list[Any], names: tuple[str, ...] | None = None, width: int = 2) -> str | None:
    return plain_rows.written_rows(rows, names, width, ",", '"', "")


def test_plain_rows_are_left_to_nobody() -> None:
    assert plain([(1, "a"), (2, None)]) == "1,a\n2,\n"
    assert plain([{"a": 0.5, "b": True}, {"b": None, "a": -0.0}], ("a", "b")) == "0.5,true\n-0.0,\n"
    assert plain([(None, 1), (None, 2)]) == ",1\n,2\n", "a column without values too"


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        ([(1, 2), (1, 2, 3)], None),
        ([(1, 2), [1, 2]], None),
        ([(1, b"x")], None),
        ([(1, 2**64)], None),
        ([(1, True), (1, 1)], None),
        ([{"a": 1, "b": 2}, {"a": 1, "c": 2}], ("a", "b")),
        ([{"a": None, "b": 2}, {"c": None, "b": 2}], ("a", "b")),
        ([{"a": 1, "b": 2}, {"a": 1}], ("a", "b")),
        ([(None, 1), (None,)], None),
    ],
)
def test_others_are(rows: list[Any], names: tuple[str, ...] | None) -> None:
    assert plain(rows, names) is None


def test_rows_that_are_never_plain_are_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    monkeypatch.setattr("shmjet.processors.files.row_text.written_rows", lambda rows, *rest: tried.append(len(rows)))
    encoder = RowEncoder(",", '"', False, "", None)
    for _ in range(10):
        assert encoder.encode([(1, 2)]) == "1,2\n"
    assert len(tried) == 4
