"""numpy's functions of one number in expressions, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shmjet import Batch, BatchError, column, literal, when
from shmjet.columns.expressions import evaluate
from shmjet.core.expressions.numpy_functions import FLOATING, KEEPING

VALUES = np.array([0.0, -0.0, 0.5, -2.5, 1e30, np.inf, np.nan, 3.0])


@pytest.mark.parametrize("name", sorted(FLOATING | KEEPING))
def test_a_function_gives_what_numpy_gives(name: str) -> None:
    function = getattr(np, name)
    whole = np.array([0, 1, 4, -3], np.int8)
    with np.errstate(all="ignore"):
        wanted = function(VALUES), function(VALUES.astype("f4"))
        of_whole = function(whole if name in KEEPING else whole.astype(float))
    made = function(column("x"))
    for values, expected in zip((VALUES, VALUES.astype("f4"), whole), (*wanted, of_whole), strict=True):
        found = evaluate(made, Batch({"x": values}))
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


def test_nulls_stay_null() -> None:
    some = Batch({"x": [4, None, 9], "y": [None, None, None]})
    assert evaluate(np.sqrt(column("x")), some).to_list() == [2.0, None, 3.0]
    assert evaluate(np.sqrt(column("y")), some).to_list() == [None] * 3
    assert evaluate(np.isnan(column("y")), some).to_list() == [None] * 3
    assert evaluate(np.floor(column("x")), some).dtype == np.int64


@pytest.mark.parametrize("values", [["a"], [True], [b"a"]])
def test_only_numbers_are_taken(values: list[Any]) -> None:
    with pytest.raises(BatchError, match=r"numpy.log\(column\('x'\)\): numpy.log takes numbers"):
        evaluate(np.log(column("x")), Batch({"x": values}))


def test_conditions_within_conditions_are_refused_where_they_are_too_many() -> None:
    nested: Any = literal(0)
    for number in range(2000):
        nested = when(column("x") == number).then(number).otherwise(nested)
    with pytest.raises(BatchError, match="in one chain"):
        evaluate(nested, Batch({"x": [1]}))
