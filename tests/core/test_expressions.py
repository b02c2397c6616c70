"""Expressions as descriptions: names, text, identity, what they refuse."""

from __future__ import annotations

import datetime
import functools
import math
import operator
import pickle
from typing import Any

import cloudpickle
import numpy as np
import pytest

from shmjet import Batch, BatchError, Expression, column, columns, when
from shmjet.core.expressions import Literal

a, b = column("a"), column("b")


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (a + 1, "(column('a') + 1)"),
        (1 - a, "(1 - column('a'))"),
        (a == "x", "(column('a') == 'x')"),
        (~(a < b) | None, "(~(column('a') < column('b')) | None)"),
        (-a, "-column('a')"),
        (abs(a) // 2, "(abs(column('a')) // 2)"),
        (a.str.contains("x.", literal=True), "column('a').str.contains('x.', literal=True)"),
        (a.str.slice(-2), "column('a').str.slice(-2)"),
        (a.dt.truncate("month"), "column('a').dt.truncate('month')"),
        (a.cast(int).fill_null(b), "column('a').cast(int).fill_null(column('b'))"),
        (a.is_in([1, None, 2]), "column('a').is_in([1, 2])"),
        (when(a > 1).then(b), "when((column('a') > 1)).then(column('b')).otherwise(None)"),
        (
            when(a > 1).then("x").when(b).then("y").otherwise(a),
            "when((column('a') > 1)).then('x').when(column('b')).then('y').otherwise(column('a'))",
        ),
    ],
)
def test_an_expression_is_shown_as_it_is_written(expression: Expression, text: str) -> None:
    assert repr(expression) == text
    assert expression.__name__ == text


def test_names_are_the_columns_in_the_order_in_which_they_are_read() -> None:
    expression = when(b > 1).then(a + b).otherwise(column("c"))
    assert expression.names == ("b", "a", "c")
    assert expression.output_name == "b"
    assert (2 * a).output_name == "a"


def test_the_same_expressions_are_found_though_they_are_written_twice() -> None:
    assert (a + 1).same_as(column("a") + 1)
    for one, other in [(a + 1, a + 1.0), (a + 1, a + True), (a + 0.0, a + -0.0), (a + 1, 1 + a), (a - 1, a + 1)]:
        assert not one.same_as(other)
    assert not a.str.slice(1).same_as(a.str.slice(2))


def test_a_deep_expression_costs_no_more_than_its_nodes() -> None:
    deep: Any = a
    for _ in range(60):
        deep = deep + deep
    assert deep.same_as(deep + 0) is False
    wide: Any = a == 0
    for number in range(3000):
        wide = wide | (a == number)
    assert wide.names == ("a",)
    assert wide.same_as(wide)


@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps])
def test_an_expression_travels(dumps: Any) -> None:
    expression = when(a.str.lower() == "x").then(b.cast("int8")).otherwise(datetime.date(2024, 1, 1))
    assert pickle.loads(dumps(expression)).same_as(expression)


def test_an_expression_is_neither_true_nor_false() -> None:
    with pytest.raises(TypeError, match=r"use & \| ~ instead of and"):
        bool(a > 1)
    with pytest.raises(TypeError):
        1 in a  # type: ignore[operator]  # noqa: B015
    with pytest.raises(TypeError):
        list(a)  # type: ignore[call-overload]


def test_numpy_leaves_operators_to_expressions() -> None:
    assert repr(np.int64(1) + a).endswith(" + column('a'))")
    with pytest.raises(TypeError):
        np.array([1, 2]) + a
    with pytest.raises(TypeError, match="single values, got a column of values"):
        a + np.array([1, 2])
    with pytest.raises(TypeError, match="single values"):
        a + [1, 2]  # type: ignore[operator]


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: a.str.contains("("), BatchError, "not a regular expression"),
        (lambda: a.str.contains("(?<=x)y"), BatchError, "look-around"),
        (lambda: a.str.contains("x(?!y)"), BatchError, "look-around"),
        (lambda: a.str.contains(r"(x)\1"), BatchError, "look-around"),
        (lambda: a.str.contains(b"x"), TypeError, "must be a str"),  # type: ignore[arg-type]
        (lambda: a.str.replace("(x)", r"\2"), BatchError, "does not fit the pattern"),
        (lambda: a.str.replace("(x)", r"\g<n>"), BatchError, "does not fit the pattern"),
        (lambda: a.str.slice(1, -1), BatchError, "0 or more"),
        (lambda: a.str.slice(1.5), TypeError, "start must be an int"),  # type: ignore[arg-type]
        (lambda: a.str.split(""), BatchError, "must not be empty"),
        (lambda: a.dt.truncate("decade"), BatchError, "takes one of year, quarter"),
        (lambda: a.is_in("abc"), TypeError, "takes a list"),
        (lambda: a.is_in(b), TypeError, "takes a list"),
        (lambda: a.fill_null(None), BatchError, "got None"),
        (lambda: columns("a", "b") + 1, TypeError, "key of several columns"),
        (lambda: a + columns("a", "b"), TypeError, "key of several columns"),
        (lambda: (a + 1)({"a": 1}), BatchError, "computed of batches"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_a_column_is_still_a_key() -> None:
    assert column("a")({"a": 7}) == 7
    assert hash(column("a")) == hash(column("a"))
    assert a.is_in(Batch({"x": [1, None]})["x"]).same_as(a.is_in(np.array([1])))


# -- deep ones ---------------------------------------------------------------------------------------------------------


def deep_sum(terms: int) -> Any:
    return functools.reduce(operator.add, [column(f"c{number}") for number in range(terms)])


@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps])
def test_an_expression_of_any_depth_travels_and_is_shown(dumps: Any) -> None:
    deep = deep_sum(1500)
    assert pickle.loads(dumps(deep)).same_as(deep)
    assert repr(deep).startswith("((((")
    assert repr(deep_sum(300)).endswith(" + column('c299'))")


def test_an_expression_that_uses_itself_is_shown_in_part() -> None:
    doubled: Any = a
    for _ in range(50):
        doubled = doubled + doubled
    assert len(repr(doubled)) < 30_000
    assert repr(doubled).endswith("...")
    assert pickle.loads(pickle.dumps(doubled)).same_as(doubled)


def test_a_condition_that_waits_for_its_last_value_stays_one_when_it_travels() -> None:
    waiting = pickle.loads(pickle.dumps(when(a > 1).then("x")))
    assert waiting.otherwise("y").same_as(when(a > 1).then("x").otherwise("y"))


# -- numpy's functions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "same"),
    [
        (lambda: np.add(a, 1), a + 1),
        (lambda: np.subtract(1, a), 1 - a),
        (lambda: np.abs(a), abs(a)),
        (lambda: np.less(2, a), a > 2),
        (lambda: np.float64(2) < a, a > np.float64(2)),
        (lambda: np.bool_(True) & a, Literal(np.bool_(True)) & a),
        (lambda: np.datetime64("2024-01-01") == a, a == np.datetime64("2024-01-01")),
    ],
)
def test_functions_of_numpy_that_are_operators_are_these(made: Any, same: Expression) -> None:
    assert made().same_as(same)


def test_functions_of_numpy_are_shown_with_their_module() -> None:
    assert repr(np.log(a + 1)) == "numpy.log((column('a') + 1))"
    assert not np.log(a).same_as(np.exp(a))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: np.where(a > 1, 1, 2), "numpy.where does not work .* when"),
        (lambda: np.mean(a), r"mean\(\) of shmjet.columns goes into .agg"),
        (lambda: np.sum(a), r"sum_\(\) of shmjet.columns goes into .agg"),
        (lambda: np.add.reduce(a), r"sum_\(\) of shmjet.columns goes into .agg"),
        (lambda: np.maximum(a, b), "when"),
        (lambda: np.round(a, 2), "numpy.rint"),
        (lambda: np.logical_and(a, b), "& does that"),
        (lambda: np.gcd(a, b), "map_batches"),
        (lambda: np.log(a, dtype=np.float32), "no arguments by name"),
        (lambda: np.log(columns("a", "b")), "key of several columns"),
        (lambda: np.asarray(a), "has no values before there are batches"),
        (lambda: math.log(a), "no number; numpy.log"),
    ],
)
def test_other_functions_of_numpy_say_what_to_write(make: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        make()
