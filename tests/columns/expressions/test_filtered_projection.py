"""A filter with the projection after it, against the filter and then the projection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet.columns.expressions import Projection, Selection
from shmjet.columns.projections import compiled
from shmjet.core.column_key import column
from shmjet.core.expressions import Expression
from shmjet.data.batch import Batch
from shmjet.data.errors import BatchError
from tests.examples import examples

a, x, n, s = (column(name) for name in "axns")

OUTPUTS: tuple[Mapping[str, Expression], ...] = (
    {"p": a * 2 + 1, "q": x - a},
    {"a": a + 1, "x": x},
    {"s": s, "big": a > 3},
    {"x": a, "a": x},
    {"p": a * (1 << 62)},
    {"p": n + 1, "q": a + 1},
    {"p": s + "!", "n": n},
    {"n": n},
)
CONDITIONS = (a > 1, (a > 1) & (x < 2.0), n > 0, s == "two", a > 100, a > -100, x != x)

rows = st.lists(
    st.tuples(
        st.integers(-3, 5),
        st.sampled_from([0.5, -0.0, float("nan"), 3.0]),
        st.sampled_from([None, 1, -1]),
        st.sampled_from(["", "two", "ü"]),
    ),
    max_size=40,
)


def batch_of(given_rows: list[Any]) -> Batch:
    schema = {"a": "int64", "x": "float64", "n": "int64", "s": "text"}
    columns = {name: [row[i] for row in given_rows] for i, name in enumerate(schema)}
    return Batch(columns, schema=schema)


def outcome(make: Callable[[], Batch]) -> Any:
    """Names, types and values of a batch, or the message of its error."""
    try:
        batch = make()
    except BatchError as error:
        return str(error)
    return batch.names, batch.num_rows, batch.schema, repr(batch.to_dict())


@examples(300)
@given(rows, st.sampled_from(CONDITIONS), st.sampled_from(OUTPUTS), st.sampled_from(["select", "with"]), st.booleans())
def test_the_result_is_that_of_one_after_the_other(
    given_rows: list[Any], condition: Expression, outputs: Mapping[str, Expression], kind: str, drops: bool
) -> None:
    batch = batch_of(given_rows)
    projection = Projection(outputs, keep=kind == "with")
    wanted = (("only", (*projection.names, "x")),) if drops else ()
    steps = (("where", condition), *wanted, (kind, tuple(outputs.items())))
    between = [name for name in batch.names if not drops or name in wanted[0][1]]
    found = outcome(lambda: compiled(steps)(batch))
    assert found == outcome(lambda: projection.apply(Selection(condition).apply(batch).select(*between)))


def test_a_missing_column_is_named_whatever_the_filter_keeps() -> None:
    for kept in (0, 1, 3):
        with pytest.raises(BatchError, match="absent"):
            compiled([("where", a < kept), ("select", [("p", column("absent") + 1)])])(Batch({"a": np.arange(3)}))
