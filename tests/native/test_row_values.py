"""`row_values`: one value of each row, as a column, and `longest_row`; against the same in Python."""

from __future__ import annotations

import struct
from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet._native._columns import longest_row, row_values

int64s = st.integers(-(1 << 63), (1 << 63) - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]))
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "i": int64s,
    "f": st.floats(),
    "b": st.booleans(),
    "t": texts,
    "y": st.binary(),
}


def read(rows: list[Any], place: int | str, width: int = 1) -> tuple[str, list[Any]] | None:
    """Return the kind and the values as Python objects."""
    count = len(rows)
    words, valid = np.full(count + 1, -1, np.int64), np.full(count, 7, np.uint8)
    found = row_values(rows, place, width, words, valid)
    if found is None:
        return None
    kind, has_nulls, data = found
    assert has_nulls == (0 in valid)
    assert set(valid.tolist()) <= {0, 1}
    if data is not None:
        assert words[0] == 0
        assert words[-1] == len(data)
        values: list[Any] = [data[words[i] : words[i + 1]] for i in range(count)]
        values = [value.decode() if kind == "t" else value for value in values]
    elif kind == "f":
        values = words[:count].view(np.float64).tolist()
    else:
        values = words[:count].tolist()
        values = list(map(bool, values)) if kind == "b" else values
    return kind, [value if valid[i] else None for i, value in enumerate(values)]


def bits(values: list[Any]) -> list[Any]:
    return [struct.pack("<d", value) if isinstance(value, float) else value for value in values]


@given(st.data(), st.sampled_from(sorted(KINDS)), st.booleans())
def test_plain_values_arrive_as_they_are(data: Any, kind: str, as_dicts: bool) -> None:
    values = data.draw(st.lists(st.none() | KINDS[kind]))
    rows = [{"x": 0, "v": value} for value in values] if as_dicts else [(value, "other") for value in values]
    found = read(rows, "v" if as_dicts else 0, 2)
    if all(value is None for value in values):
        assert found is None
        return
    assert found is not None
    assert found[0] == kind
    assert bits(found[1]) == bits(values)
    assert list(map(type, found[1])) == list(map(type, values))


class Number(int):
    pass


class Row(dict[str, Any]):
    pass


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [(None,)],
        [(1,), (1.0,)],
        [(1,), (True,)],
        [("a",), (b"a",)],
        [(1,), ("a",)],
        [(1 << 63,)],
        [(-(1 << 63) - 1,)],
        [(Number(1),)],
        [(np.float64(1),)],
        [([],)],
        [("\ud800",)],
        [(1,), (1, 2)],
        [(1,), ()],
        [(1,), {"v": 1}],
        [(1,), [1]],
        [5],
    ],
)
def test_all_else_is_left_to_python(rows: list[Any]) -> None:
    assert read(rows, 0) is None


def test_dicts_without_the_name_or_of_another_class_are_left_to_python() -> None:
    assert read([{"v": 1}, {"w": 1}], "v") is None
    assert read([{"v": 1}, Row(v=1)], "v") is None
    assert read([{"v": 1}, (1,)], "v") is None
    assert read([{"v": 1}, {1: 1, "v": 2}], "v") == ("i", [1, 2])


def test_a_row_that_changes_meanwhile_does_no_harm() -> None:
    rows: list[Any] = []

    class Meddler:
        """Collides with the name and changes the rows when it is compared with it."""

        calls = 0

        def __hash__(self) -> int:
            return hash("v")

        def __eq__(self, other: object) -> bool:
            Meddler.calls += 1
            if Meddler.calls == self.when:
                rows[1] = {"v": "longer than it was"}
                del rows[2:]
            return False

        when = 0

    for when in range(1, 5):
        Meddler.when = -1
        rows[:] = [{Meddler(): 0, "v": "a"}, {Meddler(): 0, "v": "b"}, {"v": "c"}]
        Meddler.when, Meddler.calls = when, 0
        try:
            found = read(rows, "v")
        except IndexError:
            continue
        assert found is None or found[0] == "t"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (([(1,)], 0, 1, bytearray(15), bytearray(1)), ValueError),
        (([(1,)], 0, 1, bytearray(16), bytearray(0)), ValueError),
        (([(1,)], 1, 1, bytearray(16), bytearray(1)), ValueError),
        (([(1,)], -1, 1, bytearray(16), bytearray(1)), ValueError),
        (([(1,)], 0, 1, bytes(16), bytearray(1)), BufferError),
        (([(1,)], 0, 1, bytearray(16), bytes(1)), BufferError),
        (([(1,)], 0.0, 1, bytearray(16), bytearray(1)), TypeError),
        ((((1,),), 0, 1, bytearray(16), bytearray(1)), TypeError),
        (([(1,)], 0, 1, bytearray(16)), TypeError),
        (([(1,)], 1 << 70, 1, bytearray(16), bytearray(1)), OverflowError),
    ],
)
def test_wrong_arguments_are_refused(arguments: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        row_values(*arguments)


def test_unaligned_buffers_are_filled() -> None:
    words, valid = bytearray(1 + 8 * 3), bytearray(3)
    assert row_values([(1,), (2,)], 0, 1, memoryview(words)[1:], memoryview(valid)[1:]) == ("i", False, None)
    assert struct.unpack_from("<qq", words, 1) == (1, 2)


Point = namedtuple("Point", "x y")
ROWS = [(), (1,), (1, 2, 3), {}, {"a": 1, "b": 2}, Point(1, 2), OrderedDict(a=1), [1], None, "row"]


@given(st.lists(st.sampled_from(ROWS)) | st.lists(st.sampled_from(ROWS[:5])))
def test_the_longest_row_is_told_where_all_are_plain(rows: list[Any]) -> None:
    plain = all(type(row) in (dict, tuple) for row in rows)
    assert longest_row(rows) == (max(map(len, rows), default=0) if plain else None)


@pytest.mark.parametrize("arguments", [(), ((),), ([], []), (None,)])
def test_the_longest_row_of_what_is_no_list_is_refused(arguments: Any) -> None:
    with pytest.raises(TypeError):
        longest_row(*arguments)
