"""Programs of plain numbers against the same steps one by one, which have an interpreter in Python as their oracle."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet._native._columns import run_numbers
from shmjet.columns.expressions.program import Program
from shmjet.columns.expressions.vector import Vector
from shmjet.core.column_key import column
from shmjet.core.expressions import Expression, when
from shmjet.data.errors import BatchError
from tests.examples import examples

ARITHMETIC = ("+", "-", "*", "/")
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
INTEGERS = [0, 1, -1, 7, 1 << 31, -(1 << 31), (1 << 53) + 1, (1 << 62) + 1, (1 << 63) - 1, -(1 << 63)]
FLOATS = [0.0, -0.0, 1.5, -2.25, 1e300, 5e-324, float("inf"), float("-inf"), float("nan"), 2.0**63]

numbers = st.one_of(
    st.sampled_from(["a", "b", "x", "y", "m", "v"]).map(column),
    st.sampled_from(["a", "b", "x", "y", "m", "v"]).map(column),
    st.sampled_from([*INTEGERS, *FLOATS]),
)


def combined(symbol: str, one: Any, two: Any) -> Any:
    """The expression of an operator; of two numbers the number itself."""
    if not isinstance(one, Expression) and not isinstance(two, Expression):
        return one
    left, right = one, two
    made = {
        "+": lambda: left + right,
        "-": lambda: left - right,
        "*": lambda: left * right,
        "/": lambda: left / right,
        "<": lambda: left < right,
        "<=": lambda: left <= right,
        ">": lambda: left > right,
        ">=": lambda: left >= right,
        "==": lambda: left == right,
        "!=": lambda: left != right,
        "&": lambda: left & right,
        "|": lambda: left | right,
        "^": lambda: left ^ right,
    }
    return made[symbol]()


def chosen(conditions: list[Any], one: Any, two: Any) -> Any:
    """The expression of a choice."""
    made = when(conditions[0]).then(one)
    for condition in conditions[1:]:
        made = made.when(condition).then(two)
    return made.otherwise(two)


def filled(one: Any, two: Any) -> Any:
    return one.fill_null(two) if isinstance(one, Expression) else one


def is_expression(each: Any) -> bool:
    return isinstance(each, Expression)


simple = st.one_of(
    st.builds(combined, st.sampled_from(COMPARISONS), numbers, numbers).filter(is_expression),
    st.sampled_from([column("t"), column("u"), column("m").is_null(), column("v").is_not_null(), ~column("u")]),
)
values = st.recursive(
    numbers,
    lambda inner: st.one_of(
        st.builds(combined, st.sampled_from(ARITHMETIC), inner, inner),
        st.builds(combined, st.sampled_from(ARITHMETIC), inner, inner),
        st.builds(filled, inner, inner),
        st.builds(chosen, st.lists(simple, min_size=1, max_size=2), inner, inner),
    ),
    max_leaves=5,
)
conditions = st.recursive(
    st.one_of(
        simple,
        st.builds(combined, st.sampled_from(COMPARISONS), values, values).filter(is_expression),
        values.filter(is_expression).map(lambda each: each.is_null()),
    ),
    lambda inner: st.one_of(
        st.builds(combined, st.sampled_from(["&", "|", "^"]), inner, inner),
        inner.map(lambda each: ~each),
        st.builds(filled, inner, inner),
    ),
    max_leaves=3,
)
seeded = st.integers(0, (1 << 32) - 1).map(Random)
several = st.lists(st.one_of(values.filter(is_expression), conditions), min_size=1, max_size=3)


def random_columns(rows: int, integers: list[int], floats: list[float], random: Random) -> dict[str, Any]:
    """Numbers `a`, `b`, `x`, `y`, bools `t`, and with nulls `m`, `v` and `u`; what lies under these is anything."""
    drawn: dict[str, Any] = {name: (np.array(random.choices(integers, k=rows)), None) for name in "ab"}
    drawn |= {name: (np.array(random.choices(floats, k=rows)), None) for name in "xy"}
    valid = [np.array([True, False, *random.choices([False, True, True], k=rows - 2)]) for _ in range(3)]
    drawn["t"] = np.array(random.choices([False, True], k=rows)), None
    drawn["m"] = np.array(random.choices(integers, k=rows)), valid[0]
    drawn["v"] = np.array(random.choices(floats, k=rows)), valid[1]
    drawn["u"] = np.array(random.choices([False, True], k=rows)), valid[2]
    return {name: (each, mask, False) for name, (each, mask) in drawn.items()}


def assert_same(mine: Any, its_mask: Any, other: Any, others_mask: Any) -> None:
    """Assert that two results have the same type, nulls and values."""
    assert mine.dtype == other.dtype
    valid = np.ones(len(mine), np.bool_) if its_mask is None else its_mask
    assert np.array_equal(valid, np.ones(len(mine), np.bool_) if others_mask is None else others_mask)
    left, right = mine[valid], other[valid]
    assert left.tobytes() == right.tobytes() or np.array_equal(left, right, equal_nan=left.dtype.kind == "f")


@examples(150)
@given(several, st.sampled_from([2, 511, 512, 513, 1030]), st.booleans(), seeded)
def test_a_program_gives_what_its_steps_give(expressions: list[Any], rows: int, is_calm: bool, random: Random) -> None:
    columns = random_columns(rows, *(([1, -3, 1000], [0.5, -2.0]) if is_calm else (INTEGERS, FLOATS)), random)
    program = Program(expressions)
    found = program.numbers.run(columns, rows)
    try:
        vectors = program.run({name: Vector(values, mask) for name, (values, mask, _) in columns.items()}, rows)
    except BatchError:
        assert found is None
        return
    if found is not None:
        for (mine, its_mask), vector in zip(found, vectors, strict=True):
            assert_same(mine, its_mask, vector.column(rows), vector.valid)


@examples(150)
@given(
    several,
    st.sampled_from([2, 255, 256, 257, 512, 1030, 3000]),
    st.sampled_from([0.001, 0.1, 0.5, 0.9, 1.0]),
    st.booleans(),
    seeded,
)
def test_a_program_over_chosen_rows_gives_what_it_gives_over_these_rows_alone(
    expressions: list[Any], rows: int, share: float, is_sorted: bool, random: Random
) -> None:
    marks = [random.random() < share for _ in range(rows)]
    rows_taken = np.array(sorted(marks) if is_sorted else marks)
    columns = random_columns(rows, [1, -3, 1000], FLOATS, random)
    columns["a"][0][~rows_taken] = (1 << 63) - 1  # what leaves its type there does not count
    kept = int(rows_taken.sum())
    alone = {
        name: (each[rows_taken], None if mask is None else mask[rows_taken], False)
        for name, (each, mask, _) in columns.items()
    }
    numbers = Program(expressions).numbers
    found, expected = numbers.run(columns, rows, rows_taken, kept), numbers.run(alone, kept)
    if found is None:  # a column of floats may have nulls alone in these rows
        assert expected is None or not all(mask is None or mask.any() for _, mask, _ in alone.values())
        return
    assert expected is not None
    for mine, other in zip(found, expected, strict=True):
        assert_same(*mine, *other)


def test_floats_of_integers_are_rounded_as_numpy_rounds_them() -> None:
    random = np.random.default_rng(1)
    wide = random.integers(-(1 << 63), (1 << 63) - 1, 4000, endpoint=True) >> random.integers(0, 64, 4000)
    near = np.array([each + step for each in INTEGERS for step in (-1, 0, 1) if -(1 << 63) <= each + step < 1 << 63])
    halves = (np.int64(1) << np.arange(53, 62)) + (np.int64(1) << np.arange(9))  # halfway between two floats
    integers = np.concatenate([wide, near, halves, halves - 1, halves + 1, -halves])
    program = Program([column("a") + column("zero")])
    zeros = np.full(len(integers), -0.0)
    ((found, _),) = program.numbers.run(
        {"a": (integers, None, False), "zero": (zeros, None, False)}, len(integers)
    ) or ((None, None),)
    assert found.tobytes() == (integers.astype(np.float64) + zeros).tobytes()


@pytest.mark.parametrize("symbol", ["+", "-", "*"])
def test_every_integer_that_leaves_its_type_ends_a_program(symbol: str) -> None:
    for one in INTEGERS:
        for two in INTEGERS:
            columns = {"a": (np.array([0, one]), None, False), "b": (np.array([0, two]), None, False)}
            exact = {"+": one + two, "-": one - two, "*": one * two}[symbol]
            found = Program([combined(symbol, column("a"), column("b"))]).numbers.run(columns, 2)
            assert (found is not None) == (-(1 << 63) <= exact < 1 << 63), (one, two)
            assert found is None or found[0][0].tolist() == [0, exact]


@pytest.mark.parametrize(
    ("expression", "is_compiled"),
    [
        ((column("a") * 2 + 1) * (column("x") - column("a")), True),
        ((column("a") > 1) & (column("x") <= 0.5), True),
        (column("a") * (1 << 62), False),
        (column("a") / 2, False),
        (column("a") // 2, False),
        (column("m") + 1, True),
        (column("m").is_null() | ~(column("a") > 1), True),
        (when(column("m") > 1).then(column("a")).otherwise(column("x")), True),
        (column("m").fill_null(0.5), True),
        (when(column("a") > 1).then(True).otherwise(False), False),
        (~column("a"), False),
        (column("small") + 1, False),
        (column("a") + (1 << 64), False),
        (column("a") & column("b"), False),
        (column("a").is_null(), True),
        (column("a"), False),
    ],
)
def test_what_is_compiled(expression: Any, is_compiled: bool) -> None:
    columns = {
        "a": (np.arange(10), None, False),
        "b": (np.arange(10), None, False),
        "x": (np.arange(10) / 4, None, False),
        "m": (np.arange(10), np.arange(10) > 3, False),
        "small": (np.arange(10, dtype=np.int32), None, False),
    }
    assert (Program([expression]).numbers.run(columns, 10) is not None) == is_compiled


@pytest.mark.parametrize(
    ("code", "columns", "results", "text"),
    [
        (b"+f\x00\x00\x00\x00", (np.zeros(4),), (), "instruction 0 is wrong"),
        (b"?f\x00\x00\x01\x40", (np.zeros(4),), (np.zeros(4),), "instruction 0 is wrong"),
        (b"+f\x00\x00\x01\x00", (np.zeros(4, np.bool_),), (np.zeros(4),), "instruction 0 is wrong"),
        (b"$f\x00\x00\x01\x00", (np.zeros(4),), (np.zeros(4),), "instruction 0 is wrong"),
        (b"<f\x00\x00\x01\x00", (np.zeros(4),), (np.zeros(4),), "instruction 0 is wrong"),
        (b"+f\x00\x40\x01\x00", (np.zeros(4),), (np.zeros(4),), "instruction 0 is wrong"),
        (b"+f\x00\x00\x01\x00", (np.zeros(5),), (np.zeros(4),), "columns are"),
        (b"+f\x00\x00\x01\x00", (np.zeros(4),), (np.zeros(3),), "columns are"),
    ],
)
def test_programs_that_do_not_fit_are_refused(code: bytes, columns: Any, results: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        run_numbers(code, columns, b"", results, 4)


@pytest.mark.parametrize("mask", [np.ones(3, np.bool_), np.zeros(4, np.bool_), np.array([False, True, False, False])])
def test_masks_that_do_not_fit_are_refused(mask: Any) -> None:
    with pytest.raises(ValueError, match=r"mask has a byte|needs two rows"):
        run_numbers(b"+f\x00\x00\x01\x00", (np.zeros(4),), b"", (np.zeros(int(mask.sum())),), 4, mask)
