"""Keys by the names of columns."""

from __future__ import annotations

import pickle
from collections import OrderedDict, UserDict
from typing import Any

import cloudpickle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import Batch, BatchError
from shmjet.core import ColumnKey, Processor, Vertex, between, column, columns, partition_id

values = st.one_of(st.integers(), st.floats(allow_nan=False), st.text(), st.none(), st.booleans())


def test_one_column_gives_the_value_and_several_the_tuple() -> None:
    row = {"user": 7, "day": "Mon", "n": None}
    assert column("user")(row) == 7
    assert column("n")(row) is None
    assert columns("day", "user")(row) == ("Mon", 7)


def test_a_key_of_one_column_is_the_same_however_it_is_made() -> None:
    assert columns("user").names == column("user").names == ColumnKey(("user",)).names
    assert columns("user").same_as(column("user"))
    assert columns("a", "b") != columns("b", "a")
    assert {columns("a", "b"): 1}[columns("a", "b")] == 1


def test_names_are_a_tuple_and_the_repr_is_the_call() -> None:
    assert column("a").names == ("a",)
    assert columns("a", "b").names == ("a", "b")
    assert repr(column("a")) == "column('a')"
    assert repr(columns("a", "b")) == "columns('a', 'b')"


@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps])
def test_a_key_travels(dumps: Any) -> None:
    key = pickle.loads(dumps(columns("a", "b")))
    assert key == columns("a", "b")
    assert hash(key) == hash(columns("a", "b"))
    assert key({"a": 1, "b": 2}) == (1, 2)


def test_a_key_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        column("a").names = ("b",)  # type: ignore[misc]


@pytest.mark.parametrize("row", [OrderedDict(a=1), UserDict(a=1)])
def test_any_mapping_is_a_row(row: Any) -> None:
    assert column("a")(row) == 1


def test_an_item_without_the_column_is_an_error_that_lists_what_it_has() -> None:
    with pytest.raises(BatchError, match=r"columns\('a', 'c'\): the item has no 'c'; it has \['a', 'b'\]"):
        columns("a", "c")({"a": 1, "b": 2})


@pytest.mark.parametrize("item", [(1, 2), [1], "text", 5, None, np.array([1])])
def test_an_item_that_is_no_mapping_is_an_error_that_says_what_to_use(item: Any) -> None:
    with pytest.raises(BatchError, match=f"expected a row as .* got {type(item).__name__}.*itemgetter"):
        column("a")(item)


def test_a_whole_batch_is_no_row() -> None:
    with pytest.raises(BatchError, match="got a whole Batch"):
        column("a")(Batch({"a": [1, 2]}))


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ((), "at least 1 column, got none"),
        (("",), "non-empty str, got ''"),
        ((1,), "non-empty str, got 1"),
        (("a", None), "non-empty str, got None"),
        (("a", "b", "a"), "column 'a' is there twice"),
    ],
)
def test_wrong_names_are_refused_where_the_key_is_made(names: Any, text: str) -> None:
    with pytest.raises(BatchError, match=text):
        columns(*names)


def test_an_edge_shows_its_key() -> None:
    edge = between(Vertex("a", Processor), Vertex("b", Processor)).partitioned(columns("x", "y"))
    assert edge.key_fn == columns("x", "y")
    assert repr(edge) == "between('a', 'b').partitioned(columns('x', 'y'))"


@given(st.lists(values, min_size=2, max_size=2))
def test_the_partition_of_a_row_is_that_of_its_values(row: list[Any]) -> None:
    item = dict(zip("ab", row, strict=True))
    assert partition_id(column("a")(item)) == partition_id(row[0])
    assert partition_id(columns("a", "b")(item)) == partition_id(tuple(row))
