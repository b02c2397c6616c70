"""Rows of batches by number, against numpy's own `take`."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from shmjet._native._columns import take_numbers
from shmjet.columns.take import take_rows, take_rows_or_nulls
from shmjet.data.batch import Batch
from tests.examples import seeds

LARGE = 1 << 18
"""Values of 8 bytes that are too many for a core's caches."""

KINDS = ("?", "i1", "u2", "i4", "f4", "i8", "u8", "f8", "M8[us]", "m8[D]", "f2", "c16", "S3", "U2")


@pytest.mark.parametrize("seed", seeds(40))
def test_rows_are_those_that_numpy_takes(seed: int) -> None:
    random = Random(seed)
    count, wanted = random.choice([1, 2, 64, 65, 1000]), random.choice([0, 1, 63, 64, 65, 66, 500])
    raw = np.random.default_rng(seed).integers(0, 100, count)
    columns: dict[str, Any] = {kind: raw.astype(kind) for kind in KINDS}
    columns["every other"] = np.repeat(raw, 2)[::2]
    columns["nulls"] = [None if value % 3 == 0 else int(value) for value in raw]
    columns["text"] = [str(value) for value in raw]
    batch = Batch(columns)
    rows = np.array([random.randrange(count) for _ in range(wanted)], np.int64)
    taken, known = take_rows(batch, rows), list(batch.tuples())
    assert taken.schema == batch.schema
    assert list(taken.tuples()) == [known[row] for row in rows]
    assert not taken["i8"].flags.writeable
    holes = np.array([row if random.random() < 0.7 else -1 for row in rows], np.int64)
    nothing = (None,) * len(columns)
    expected = [nothing if row < 0 else known[row] for row in holes]
    assert list(take_rows_or_nulls(batch, holes).tuples()) == expected
    for kind in (np.int32, np.uint32):
        assert list(take_rows(batch, rows.astype(kind)).tuples()) == list(taken.tuples())


@pytest.mark.parametrize("kind", ["i8", "u8", "f8", "M8[us]", "m8[D]", "i4", "f4", "i2", "?"])
@pytest.mark.parametrize("wanted", [2047, 2048, 5001])
def test_many_rows_of_many_are_those_that_numpy_takes(kind: str, wanted: int) -> None:
    random = np.random.default_rng(wanted)
    values = random.integers(0, 100, 2 * LARGE).astype(kind)
    rows = random.integers(0, len(values), wanted)
    mask = values.view("u1")[: len(values)] > 10
    batch = Batch.trusted({"a": values}, {"a": mask}, len(values))
    columns, masks = take_rows(batch, rows).parts()
    assert columns["a"].dtype == values.dtype
    assert np.array_equal(columns["a"], values.take(rows))
    assert np.array_equal(masks["a"], mask.take(rows))


@pytest.mark.parametrize("row", [-1, LARGE, 1 << 62, -(1 << 63), (1 << 63) - 1])
def test_a_row_that_is_not_there_is_refused(row: int) -> None:
    rows = np.concatenate([np.zeros(3000, np.int64), [row, 2]])
    with pytest.raises(IndexError, match=f"one of the {LARGE} there are"):
        take_rows(Batch({"a": np.arange(LARGE)}), rows)
    with pytest.raises(IndexError, match="one of the 0 there are"):
        take_numbers(np.zeros(0, np.int64), 8, np.array([0]), np.zeros(1, np.int64))


@pytest.mark.parametrize(
    ("itemsize", "rows", "out"),
    [
        (2, np.zeros(2, np.int64), np.zeros(2, np.int64)),
        (8, np.zeros(2, np.int64), np.zeros(3, np.int64)),
        (8, np.zeros(3, np.int32), np.zeros(1, np.int64)),
        (8, np.frombuffer(bytes(17), np.int64, 2, 1), np.zeros(2, np.int64)),
    ],
)
def test_arrays_that_do_not_fit_are_refused(itemsize: int, rows: Any, out: Any) -> None:
    with pytest.raises(ValueError, match="aligned values"):
        take_numbers(np.zeros(4, np.int64), itemsize, rows, out)
