"""Programs of plain numbers against the same steps one by one, which have an interpreter in Python as their oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shmjet._native._columns import run_numbers
from shmjet.columns.expressions.program import Program
from shmjet.columns.expressions.vector import Vector
from shmjet.core.column_key import column
from shmjet.core.expressions import Expression
from shmjet.data.errors import BatchError

ARITHMETIC = ("+", "-", "*", "/")
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
INTEGERS = [0, 1, -1, 7, 1 << 31, -(1 << 31), (1 << 53) + 1, (1 << 62) + 1, (1 << 63) - 1, -(1 << 63)]
FLOATS = [0.0, -0.0, 1.5, -2.25, 1e300, 5e-324, float("inf"), float("-inf"), float("nan"), 2.0**63]

numbers = st.one_of(
    st.sampled_from(["a", "b", "x", "y"]).map(column),
    st.sampled_from(["a", "b", "x", "y"]).map(column),
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


values = st.recursive(
    numbers, lambda inner: st.builds(combined, st.sampled_from(ARITHMETIC), inner, inner), max_leaves=5
)
conditions = st.recursive(
    st.builds(combined, st.sampled_from(COMPARISONS), values, values).filter(lambda each: isinstance(each, Expression)),
    lambda inner: st.builds(combined, st.sampled_from(["&", "|", "^"]), inner, inner),
    max_leaves=3,
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.one_of(values, conditions).filter(lambda each: isinstance(each, Expression)), min_size=1, max_size=3),
    st.sampled_from([2, 511, 512, 513, 1030]),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_a_program_gives_what_its_steps_give(expressions: list[Any], rows: int, is_calm: bool, random: Any) -> None:
    integers, floats = ([1, -3, 1000], [0.5, -2.0]) if is_calm else (INTEGERS, FLOATS)
    columns = {name: np.array(random.choices(integers, k=rows)) for name in "ab"}
    columns |= {name: np.array(random.choices(floats, k=rows)) for name in "xy"}
    program = Program(expressions)
    found = program.numbers.run({name: (values, None, False) for name, values in columns.items()}, rows)
    try:
        vectors = program.run({name: Vector(values) for name, values in columns.items()}, rows)
    except BatchError:
        assert found is None
        return
    if found is not None:
        for mine, vector in zip(found, vectors, strict=True):
            assert mine.dtype == vector.values.dtype
            assert mine.tobytes() == vector.values.tobytes() or np.array_equal(mine, vector.values, equal_nan=True)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.one_of(values, conditions).filter(lambda each: isinstance(each, Expression)), min_size=1, max_size=3),
    st.sampled_from([2, 255, 256, 257, 512, 1030, 3000]),
    st.sampled_from([0.001, 0.1, 0.5, 0.9, 1.0]),
    st.integers(0, 1 << 32),
)
def test_a_program_over_chosen_rows_gives_what_it_gives_over_these_rows_alone(
    expressions: list[Any], rows: int, share: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    columns: dict[str, Any] = {name: random.integers(-1000, 1000, rows) for name in "ab"}
    columns |= {name: random.choice(FLOATS, rows) for name in "xy"}
    chosen = (
        np.sort(random.random(rows) < share)[:: random.choice([1, -1])]
        if seed % 3 == 0
        else random.random(rows) < share
    )
    columns["a"][~chosen] = (1 << 63) - 1  # what leaves its type there does not count
    kept = int(chosen.sum())
    numbers = Program(expressions).numbers
    found = numbers.run(
        {name: (each, None, False) for name, each in columns.items()}, rows, np.ascontiguousarray(chosen), kept
    )
    expected = numbers.run({name: (each[chosen], None, False) for name, each in columns.items()}, kept)
    assert (found is None) == (expected is None)
    for mine, other in zip(found or (), expected or (), strict=True):
        assert mine.dtype == other.dtype
        assert mine.tobytes() == other.tobytes() or np.array_equal(mine, other, equal_nan=True)


def test_floats_of_integers_are_rounded_as_numpy_rounds_them() -> None:
    random = np.random.default_rng(1)
    wide = random.integers(-(1 << 63), (1 << 63) - 1, 4000, endpoint=True) >> random.integers(0, 64, 4000)
    near = np.array([each + step for each in INTEGERS for step in (-1, 0, 1) if -(1 << 63) <= each + step < 1 << 63])
    halves = (np.int64(1) << np.arange(53, 62)) + (np.int64(1) << np.arange(9))  # halfway between two floats
    integers = np.concatenate([wide, near, halves, halves - 1, halves + 1, -halves])
    program = Program([column("a") + column("zero")])
    zeros = np.full(len(integers), -0.0)
    (found,) = program.numbers.run({"a": (integers, None, False), "zero": (zeros, None, False)}, len(integers)) or ()
    assert found.tobytes() == (integers.astype(np.float64) + zeros).tobytes()


@pytest.mark.parametrize("symbol", ["+", "-", "*"])
def test_every_integer_that_leaves_its_type_ends_a_program(symbol: str) -> None:
    for one in INTEGERS:
        for two in INTEGERS:
            columns = {"a": (np.array([0, one]), None, False), "b": (np.array([0, two]), None, False)}
            exact = {"+": one + two, "-": one - two, "*": one * two}[symbol]
            found = Program([combined(symbol, column("a"), column("b"))]).numbers.run(columns, 2)
            assert (found is not None) == (-(1 << 63) <= exact < 1 << 63), (one, two)
            assert found is None or found[0].tolist() == [0, exact]


@pytest.mark.parametrize(
    ("expression", "is_compiled"),
    [
        ((column("a") * 2 + 1) * (column("x") - column("a")), True),
        ((column("a") > 1) & (column("x") <= 0.5), True),
        (column("a") * (1 << 62), False),
        (column("a") / 2, False),
        (column("a") // 2, False),
        (column("m") + 1, False),
        (column("small") + 1, False),
        (column("a") + (1 << 64), False),
        (column("a") & column("b"), False),
        (column("a").is_null(), False),
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
        (b"+f\x00\x00\x00", (np.zeros(4),), (), "instruction 0 is wrong"),
        (b"?f\x00\x00\x01", (np.zeros(4),), (np.zeros(4),), "instruction 0 is wrong"),
        (b"<f\x00\x00\x01", (np.zeros(4),), (np.zeros(4),), "instruction 0 is wrong"),
        (b"+f\x00\x40\x01", (np.zeros(4),), (np.zeros(4),), "instruction 0 is wrong"),
        (b"+f\x00\x00\x01", (np.zeros(5),), (np.zeros(4),), "columns are"),
        (b"+f\x00\x00\x01", (np.zeros(4),), (np.zeros(3),), "columns are"),
    ],
)
def test_programs_that_do_not_fit_are_refused(code: bytes, columns: Any, results: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        run_numbers(code, columns, b"", results, 4)


@pytest.mark.parametrize("mask", [np.ones(3, np.bool_), np.zeros(4, np.bool_), np.array([False, True, False, False])])
def test_masks_that_do_not_fit_are_refused(mask: Any) -> None:
    with pytest.raises(ValueError, match=r"mask has a byte|needs two rows"):
        run_numbers(b"+f\x00\x00\x01", (np.zeros(4),), b"", (np.zeros(int(mask.sum())),), 4, mask)
