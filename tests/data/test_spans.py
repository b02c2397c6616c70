"""Spans of time, as Python's `timedelta` computes with them."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import Batch, column
from shmjet.columns.expressions import evaluate

SPANS = st.timedeltas(timedelta(days=-1000), timedelta(days=1000))


@given(st.lists(SPANS, min_size=1, max_size=5), st.integers(-1000, 1000).filter(bool))
def test_spans_are_divided_by_integers_rounding_down(spans: list[timedelta], number: int) -> None:
    found = evaluate(column("d") // number, Batch({"d": spans}))
    assert found.tolist() == [span // number for span in spans]
    found = evaluate(column("d") // column("n"), Batch({"d": spans, "n": [number] * len(spans)}))
    assert found.tolist() == [span // number for span in spans]


@pytest.mark.parametrize("number", [0, 2, -2])
def test_nothing_divided_is_nothing(number: int) -> None:
    batch = Batch({"d": np.array([-7, "NaT"], "m8[us]")})
    expected = {0: [None, None], 2: [timedelta(microseconds=-4), None], -2: [timedelta(microseconds=3), None]}
    found = evaluate(column("d") // number, batch)
    rows = found.tolist() if isinstance(found, np.ndarray) else list(found)
    assert [None if value != value or value is None else value for value in rows] == expected[number]
