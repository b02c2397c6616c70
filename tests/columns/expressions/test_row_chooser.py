"""Rows that a mask keeps, against numpy's own choice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet.columns.expressions.row_chooser import RowChooser
from tests.examples import examples

runs = st.lists(
    st.one_of(
        st.tuples(st.booleans(), st.integers(1, 30)).map(lambda run: [run[0]] * run[1]),
        st.lists(st.booleans(), min_size=1, max_size=9),
    ),
    max_size=8,
)


@examples(150)
@given(runs, st.sampled_from(["i1", "?", "u2", "f4", "i8", "f8", "M8[us]"]), st.integers(0, 3))
def test_the_rows_kept_are_those_of_the_mask(parts: list[list[bool]], dtype: str, cut: int) -> None:
    whole = np.array([mark for part in parts for mark in part], np.bool_)
    mask = whole[cut:]
    values: Any = (np.arange(len(whole)) * 3 % 251).astype(dtype)[cut:]
    kept = RowChooser(mask, int(mask.sum())).kept(values)
    assert kept.dtype == values.dtype
    assert kept.tolist() == values[mask].tolist()


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99, 1.0])
@pytest.mark.parametrize("rows", [31, 32, 33, 1000, 20_000])
def test_many_rows_are_kept_in_order(share: float, rows: int) -> None:
    random = np.random.default_rng(rows)
    mask = random.random(rows) < share
    values = random.integers(-(1 << 63), (1 << 63) - 1, rows)
    for first in range(2):  # also where vectors are not aligned
        chooser = RowChooser(mask[first:], int(mask[first:].sum()))
        for dtype in ("i8", "f8", "u4"):
            column = values.view(dtype)[:rows][first:]
            assert chooser.kept(column).tobytes() == column[mask[first:]].tobytes()
