"""Random expressions over random columns, against an interpreter that goes row by row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shmjet import Batch, BatchError
from shmjet.columns.expressions import Projection, evaluate
from shmjet.columns.expressions.program import Program
from shmjet.columns.expressions.projection import computed_columns
from shmjet.core import ColumnKey, Expression
from shmjet.data.nullable import Nullable
from tests.columns.expressions import trees
from tests.columns.expressions.interpreter import Refused, Weak, kind_of, value_of
from tests.examples import examples


@examples(150)
@given(st.data(), trees.anything_of(3))
def test_an_expression_gives_what_each_row_gives(data: Any, expression: Expression) -> None:
    batch, rows = data.draw(trees.batches(expression.names))
    check(expression, batch, rows)


def check(expression: Expression, batch: Batch, rows: list[dict[str, Any]]) -> None:
    """Assert that columns give what rows give, an error included, however the rows are cut into blocks."""
    kinds = {name: trees.KINDS[name] for name in expression.names}
    try:
        kind = kind_of(expression, kinds)
        assume(not isinstance(kind, Weak))
        expected = [value_of(expression, row, kinds) for row in rows]
    except Refused:
        if isinstance(expression, ColumnKey) or not rows:
            return
        with pytest.raises(BatchError):
            evaluate(expression, batch)
        return
    for block_rows in (1, 3, 100):
        ((values, valid),) = computed_columns(Program([expression]), batch, block_rows)
        column: Any = values if valid is None else Nullable(values, valid)
        if kind is not None:
            assert column.dtype == kind, expression
        found = column.tolist()
        assert len(found) == len(expected)
        for row, (one, two) in enumerate(zip(found, expected, strict=True)):
            assert same(one, two), (expression, rows[row], one, two, block_rows)
    result = Projection({"result": expression}, keep=False)
    assert result.schema(batch.schema) == result.apply(batch).schema


def same(one: Any, two: Any) -> bool:
    """Whether two values are the same, to the sign of a zero."""
    if isinstance(one, float) and isinstance(two, float):
        return (one == two and math.copysign(1, one) == math.copysign(1, two)) or (one != one and two != two)
    return type(one) is type(two) and bool(one == two)


def test_float_columns_hold_what_python_floats_are() -> None:
    assert same(float(np.float32(0.1)), np.array([0.1], np.float32).tolist()[0])
