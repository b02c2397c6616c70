"""Batches in outputs are compared by their rows, and `verify_processor` does so."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import Batch
from shmjet.columns.comparison import joined, rows_of
from shmjet.core import AbstractProcessor
from shmjet.testing import verify_processor

WHOLE = Batch({"a": [1, None, 3, 4, 5], "b": [0.5, math.nan, None, -0.0, 1.0], "c": ["x", "", None, "é", "x"]})


def cut(batch: Batch, places: list[int]) -> list[Batch]:
    ends = [0, *sorted(places), batch.num_rows]
    return [batch[start:end] for start, end in itertools.pairwise(ends)]


@given(st.lists(st.integers(0, 5), max_size=6), st.lists(st.integers(0, 5), max_size=6))
def test_where_a_batch_is_cut_does_not_count(left: list[int], right: list[int]) -> None:
    a, b = [*cut(WHOLE, left), "item"], [*cut(WHOLE, right), "item"]
    assert joined(a) == joined(b)
    assert list(rows_of(a)) == list(rows_of(b))


def test_other_rows_columns_or_dtypes_count() -> None:
    for other in (WHOLE[:4], WHOLE.select("a", "b"), WHOLE.select("b", "a", "c"), WHOLE.with_columns({"a": [1.0] * 5})):
        assert joined([WHOLE]) != joined([other])
        assert list(rows_of([WHOLE])) != list(rows_of([other]))


class Cutting(AbstractProcessor):
    """Emits every row as a batch of its own."""

    def __init__(self) -> None:
        self.mapper = self.flat_mapper(lambda batch: [batch[i : i + 1] for i in range(batch.num_rows)])

    def try_process0(self, item: Any) -> bool:
        return self.mapper.try_process(item)


def test_a_processor_that_emits_batches_can_be_verified() -> None:
    verify_processor(Cutting).inputs([WHOLE, WHOLE]).expect([WHOLE, WHOLE])
    verify_processor(Cutting).inputs([WHOLE]).same_batches().expect(cut(WHOLE, [1, 2, 3, 4]))
    verify_processor(Cutting).inputs([WHOLE]).any_order().expect([WHOLE[3:], WHOLE[:3]])


def test_wrong_rows_are_found() -> None:
    with pytest.raises(AssertionError, match="wrong output on ordinal 0"):
        verify_processor(Cutting).inputs([WHOLE]).expect([WHOLE, WHOLE[:1]])
    with pytest.raises(AssertionError, match="wrong output on ordinal 0"):
        verify_processor(Cutting).inputs([WHOLE]).same_batches().expect([WHOLE])
    with pytest.raises(AssertionError, match="wrong output on ordinal 0"):
        verify_processor(Cutting).inputs([WHOLE]).any_order().expect([WHOLE[:4]])
    with pytest.raises(AssertionError, match="wrong output on ordinal 0"):
        verify_processor(Cutting).inputs([WHOLE]).expect([1])
