"""Marks are values: ordered, comparable, and DONE is one object."""

from __future__ import annotations

import copy
import pickle

import pytest

from shmjet.data.marks import DONE, IDLE, Barrier, Done, Watermark


def test_watermarks_are_ordered_and_frozen() -> None:
    assert Watermark(1) < Watermark(2) < IDLE
    assert Watermark(3) == Watermark(3)
    assert len({Watermark(3), Watermark(3)}) == 1
    with pytest.raises(AttributeError):
        Watermark(1).timestamp = 2  # type: ignore[misc]


def test_barriers_are_values() -> None:
    assert Barrier(1) == Barrier(1, terminal=False)
    assert Barrier(1) != Barrier(1, terminal=True)


def test_done_is_one_object_whatever_is_done_to_it() -> None:
    assert Done() is DONE
    assert copy.deepcopy(DONE) is DONE
    assert pickle.loads(pickle.dumps(DONE)) is DONE
    assert repr(DONE) == "DONE"
