"""The lane within a worker."""

from __future__ import annotations

import pytest

from shmjet.ring.lane import LaneReader, LaneWriter, LocalLane
from shmjet.ring.marks import DONE, Watermark


def test_it_is_both_ends_of_a_lane() -> None:
    lane = LocalLane(10)
    writer: LaneWriter = lane
    reader: LaneReader = lane
    assert writer.is_local
    assert writer.push([1, 2]) == 2
    assert reader.has_data
    assert reader.pull() == [1, 2]
    assert reader.pull() is None


def test_items_are_handed_over_and_the_list_is_not() -> None:
    lane, item = LocalLane(10), object()
    items = [item]
    lane.push(items)
    got = lane.pull()
    assert isinstance(got, list)
    assert got[0] is item
    assert got is not items


def test_it_is_bounded_by_items_and_marks_need_no_place() -> None:
    lane = LocalLane(3)
    assert lane.push([1, 2, 3, 4, 5], 1) == 3
    assert lane.push([5]) == 0
    assert lane.push_mark(Watermark(1))
    assert lane.push_mark(DONE)
    assert lane.queued_items == 3
    assert [lane.pull(), lane.pull(), lane.pull(), lane.pull()] == [[2, 3, 4], Watermark(1), DONE, None]
    assert lane.push([5]) == 1


def test_both_ends_are_told() -> None:
    lane, calls = LocalLane(2), list[str]()
    lane.on_push = lambda: calls.append("push")
    lane.on_pull = lambda: calls.append("pull")
    lane.push([1, 2])
    lane.push([3])
    lane.push_mark(DONE)
    lane.pull()
    lane.pull()
    lane.pull()
    assert calls == ["push", "push", "pull"]


def test_it_is_hungry_while_empty() -> None:
    lane = LocalLane(2)
    assert lane.hungry
    lane.push_mark(DONE)
    assert not lane.hungry


def test_a_queue_size_below_one_is_an_error() -> None:
    with pytest.raises(ValueError, match="queue_size"):
        LocalLane(0)
