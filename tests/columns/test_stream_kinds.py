"""What a stream's batches are widened to, batch by batch."""

from __future__ import annotations

import numpy as np
import pytest

from shmjet import Batch, BatchError
from shmjet.columns.stream_kinds import StreamKinds


def kinds_of(*batches: Batch) -> StreamKinds:
    kinds = StreamKinds()
    for batch in batches:
        kinds.add(batch)
    return kinds


def test_batches_of_the_same_kinds_stay_as_they_are() -> None:
    batches = [Batch({"a": [1, 2], "b": ["x", None]}), Batch({"a": [3], "b": ["y"]})]
    kinds = kinds_of(*batches)
    assert [kinds.of(batch) is batch for batch in batches] == [True, True]


def test_a_wider_batch_widens_all_whenever_it_comes() -> None:
    ints, floats = Batch({"a": [1], "b": [2]}), Batch({"a": [0.5], "b": [2]})
    for batches in ((ints, ints, floats), (floats, ints), (ints, floats, ints)):
        kinds = kinds_of(*batches)
        assert kinds.of(ints).schema == {"a": np.dtype("float64"), "b": np.dtype("int64")}


def test_columns_in_another_order_are_put_into_that_of_the_first() -> None:
    first, second = Batch({"a": [1], "b": [2]}), Batch({"b": [4], "a": [3]})
    kinds = kinds_of(first, second)
    assert kinds.of(second).names == ("a", "b")
    assert Batch.concat(map(kinds.of, (first, second))).to_dict() == {"a": [1, 3], "b": [2, 4]}


def test_a_column_without_a_value_takes_the_kind_of_the_first_value() -> None:
    nothing, text = Batch({"a": [None, None]}), Batch({"a": ["x"]})
    kinds = kinds_of(nothing, nothing, text)
    assert Batch.concat(map(kinds.of, (nothing, text))).to_dict() == {"a": [None, None, "x"]}


def test_other_columns_are_refused() -> None:
    kinds = kinds_of(Batch({"a": [1]}), Batch({"a": [2]}))
    for other in (Batch({"b": [1]}), Batch({"a": [1], "b": [1]}), Batch({})):
        with pytest.raises(BatchError, match="batches of different columns"):
            kinds.add(other)
    with pytest.raises(BatchError):
        kinds.add(Batch({"a": ["text"]}))


@pytest.mark.parametrize("value", [np.datetime64(1 << 62, "s"), np.timedelta64(1 << 62, "s")])
def test_a_time_that_a_finer_unit_does_not_hold_is_named(value: object) -> None:
    fine = Batch({"at": np.array([5], f"{np.asarray(value).dtype.kind}8[us]")})
    coarse = Batch({"at": np.array([value])})
    kinds = kinds_of(fine, coarse)
    with pytest.raises(BatchError, match=r"'at' has .*datetime64\[us\]|'at' has .*timedelta64\[us\]"):
        kinds.of(coarse)
