"""Operators of expressions: arithmetic, comparisons, logic, and what tells nulls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from shmjet._native._columns import text_compare, text_equal
from shmjet.columns.expressions.plain_numbers import plain_arithmetic, plain_comparison, plain_logic
from shmjet.columns.expressions.vector import Vector, both, null, nulls_like
from shmjet.data import operators
from shmjet.data.column_descriptors import descriptor
from shmjet.data.column_types import CategoryType
from shmjet.data.errors import BatchError
from shmjet.data.text import Mask, Text
from shmjet.data.typed_column import TypedColumn


def counted(valid: Mask | None, rows: int, active: Mask | None) -> Mask:
    """Return the rows whose values count: neither null nor left out."""
    if valid is None:
        return np.ones(rows, np.bool_) if active is None else active
    return valid if active is None else valid & active


def _arithmetic(symbol: str) -> Callable[[Sequence[Vector], int, Mask | None], Vector]:
    def apply(operands: Sequence[Vector], rows: int, active: Mask | None) -> Vector:
        one, two = operands
        if one.is_untyped or two.is_untyped:
            return _with_nulls(symbol, one, two, rows)
        valid = both(one.valid, two.valid)
        left, right = _columns(one, two, rows)
        fast = plain_arithmetic(symbol, left, right)
        if fast is not None:
            return Vector(fast, valid)
        values, known = operators.calculate(symbol, left, right, counted(valid, rows, active))
        has_nulls = valid is not None or symbol in ("//", "%")
        return Vector(values, known if has_nulls or active is not None else None)

    return apply


def _with_nulls(symbol: str, one: Vector, two: Vector, rows: int) -> Vector:
    """Return what an operator gives where an operand is null throughout: nulls, of the type that others would have."""
    if one.values is None and two.values is None:
        return null(rows)
    nothing = np.zeros(rows, np.bool_)
    left, right = (other if each.values is None else each for each, other in ((one, two), (two, one)))
    try:
        values, _ = operators.calculate(symbol, left.column(rows), right.column(rows), nothing)
    except BatchError:
        known = two if one.is_untyped else one
        return null(rows) if known.is_untyped else nulls_like(known.column(rows), rows)
    return Vector(values, nothing)


def _columns(one: Vector, two: Vector, rows: int) -> tuple[Any, Any]:
    """Return operands of which one at least is a column."""
    if one.is_scalar and two.is_scalar:
        return one.column(rows), two.values
    return one.values, two.values


def _comparison(symbol: str) -> Callable[[Sequence[Vector], int, Mask | None], Vector]:
    def apply(operands: Sequence[Vector], rows: int, active: Mask | None) -> Vector:
        one, two = operands
        if one.is_untyped or two.is_untyped:
            return Vector(np.zeros(rows, np.bool_), np.zeros(rows, np.bool_))
        valid = both(one.valid, two.valid)
        left, right = _columns(one, two, rows)
        fast = plain_comparison(symbol, left, right)
        if fast is not None:
            return Vector(fast, valid)
        check_comparable(one, two)
        if isinstance(left, str | bytes):
            return apply_mirrored(operands, rows, active)
        texts = _texts(left, right)
        if texts is not None:
            return Vector(_compared_texts(symbol, *texts), valid)
        return Vector(operators.compare(symbol, left, right, counted(valid, rows, active)), valid)

    def apply_mirrored(operands: Sequence[Vector], rows: int, active: Mask | None) -> Vector:
        return OPERATIONS[_MIRRORED[symbol]](operands[::-1], rows, active)

    return apply


def _texts(one: Any, two: Any) -> tuple[Text, Text] | None:
    """Return operands as columns of text, a value as one row, if both are text and the first one is a column."""
    if isinstance(two, TypedColumn | Text | str):
        one = without_category(one)
    if isinstance(one, Text) and not one.is_bytes:
        two = without_category(two)
    if isinstance(one, Text) and isinstance(two, Text | str | bytes):
        return one, two if isinstance(two, Text) else Text.of([two])
    return None


def without_category(column: Any) -> Any:
    """Return the text of categories; any other operand as it is."""
    if isinstance(column, TypedColumn) and isinstance(column.dtype, CategoryType):
        return column.stored
    return column


def _compared_texts(symbol: str, one: Text, two: Text) -> Mask:
    if symbol in ("==", "!="):
        equal = np.empty(len(one), np.bool_)
        text_equal(descriptor(one), descriptor(two), equal)
        return equal if symbol == "==" else np.logical_not(equal, out=equal)
    sign = np.empty(len(one), np.int8)
    text_compare(descriptor(one), descriptor(two), sign)
    found: Mask = _SIGNS[symbol](sign, 0)
    return found


_SIGNS: Final = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}
_MIRRORED: Final = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def check_comparable(one: Vector, two: Vector) -> None:
    """Raise BatchError if two operands are of kinds that nothing compares, whatever their values."""
    first, second = operators.kind_of(one.values), operators.kind_of(two.values)
    if first != second and not {first, second} <= set("biufc") and not {first, second} & set("?VO"):
        advice = (
            "compare with a datetime.date or datetime.datetime" if {first, second} == {"M", "U"} else "cast one of them"
        )
        raise BatchError(f"{one.type_name} and {two.type_name} cannot be compared; {advice}")


def _logic(symbol: str) -> Callable[[Sequence[Vector], int, Mask | None], Vector]:
    def apply(operands: Sequence[Vector], rows: int, active: Mask | None) -> Vector:
        one, two = operands
        if one.valid is None and two.valid is None and not (one.is_scalar or two.is_scalar):
            fast = plain_logic(symbol, one.values, two.values)
            if fast is not None:
                return Vector(fast)
            every = np.ones(rows, np.bool_)
            values, _ = operators.combine(symbol, one.values, every, two.values, every)
            return Vector(values)
        a, b = (_of_logic(each, other, rows) for each, other in ((one, two), (two, one)))
        values, known = operators.combine(symbol, a, one.mask(rows), b, two.mask(rows))
        return Vector(values, known)

    return apply


def _of_logic(operand: Vector, other: Vector, rows: int) -> Any:
    """Return the values of an operand of `& | ^`; nulls of no type are of the type of the other operand."""
    if not operand.is_untyped:
        return operand.column(rows) if operand.is_scalar and other.is_scalar else operand.values
    kind = None if other.is_untyped else other.column(0).dtype
    return np.zeros(rows, kind if isinstance(kind, np.dtype) else np.bool_)


def _negated(operands: Sequence[Vector], rows: int, active: Mask | None) -> Vector:
    (one,) = operands
    if one.is_untyped:
        return one
    return Vector(operators.negate(one.column(rows), counted(one.valid, rows, active)), one.valid)


def _absolute(operands: Sequence[Vector], rows: int, active: Mask | None) -> Vector:
    (one,) = operands
    if one.is_untyped:
        return one
    return Vector(operators.absolute(one.column(rows), counted(one.valid, rows, active)), one.valid)


def _positive(operands: Sequence[Vector], rows: int, active: Mask | None) -> Vector:
    (one,) = operands
    if not one.is_untyped and operators.kind_of(one.values) not in "iufcm?":
        raise BatchError(f"+ does not work on a column of {one.type_name}")
    return one


def _inverted(operands: Sequence[Vector], rows: int, active: Mask | None) -> Vector:
    (one,) = operands
    if one.is_untyped:
        return Vector(np.zeros(rows, np.bool_), np.zeros(rows, np.bool_))
    return Vector(operators.invert(one.column(rows)), one.valid)


def _is_null(operands: Sequence[Vector], rows: int, active: Mask | None) -> Vector:
    return Vector(~operands[0].mask(rows))


def _is_not_null(operands: Sequence[Vector], rows: int, active: Mask | None) -> Vector:
    return Vector(operands[0].mask(rows))


OPERATIONS: Final[dict[str, Callable[[Sequence[Vector], int, Mask | None], Vector]]] = {
    **{symbol: _arithmetic(symbol) for symbol in ("+", "-", "*", "/", "//", "%", "**")},
    **{symbol: _comparison(symbol) for symbol in ("==", "!=", "<", "<=", ">", ">=")},
    **{symbol: _logic(symbol) for symbol in "&|^"},
    "~": _inverted,
    "neg": _negated,
    "pos": _positive,
    "abs": _absolute,
    "is_null": _is_null,
    "is_not_null": _is_not_null,
}
"""Functions that need no options, by name."""
