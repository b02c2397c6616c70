"""The lane within a worker."""

from __future__ import annotations

import pytest

from shmjet.data.marks import DONE, Watermark
from shmjet.ring.lane import LaneReader, LaneWriter, LocalLane


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


def test_a_list_that_is_given_away_is_handed_over_itself() -> None:
    lane, items = LocalLane(10), [1, 2, 3]
    writer: LaneWriter = lane
    assert writer.give(items) == 3
    assert lane.queued_items == 3
    assert lane.pull() is items
    assert lane.queued_items == 0


def test_an_empty_lane_takes_a_given_list_of_twice_its_size_and_no_more() -> None:
    lane = LocalLane(3)
    long, longer = list(range(6)), list(range(7))
    assert lane.give(longer) == 3
    assert lane.give(long) == 0
    assert lane.pull() == [0, 1, 2]
    assert lane.give(long) == 6
    assert lane.give([6]) == 0
    assert lane.push([6]) == 0
    assert lane.pull() is long
    lane.push_mark(DONE)
    assert lane.give([1, 2, 3, 4]) == 3, "behind a mark there is room as usual"


def test_nothing_can_be_given_without_a_call() -> None:
    lane, calls = LocalLane(3), list[str]()
    lane.on_push = lambda: calls.append("push")
    assert lane.give([]) == 0
    assert calls == []
    lane.give([1])
    assert calls == ["push"]
    assert lane.has_data


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


def test_its_reader_is_idle_while_empty() -> None:
    lane = LocalLane(2)
    assert lane.reader_idle
    lane.push_mark(DONE)
    assert not lane.reader_idle


def test_a_queue_size_below_one_is_an_error() -> None:
    with pytest.raises(ValueError, match="queue_size"):
        LocalLane(0)


def test_a_word_follows_what_is_in_the_lane() -> None:
    words = memoryview(bytearray(16)).cast("q")
    lane = LocalLane(4)
    lane.push([1, 2])
    lane.publish_level(words, 1)
    assert words.tolist() == [0, 2]
    lane.push([3, 4, 5])
    lane.give([6])
    assert words.tolist() == [0, 4]
    lane.push_mark(DONE)
    while lane.has_data:
        lane.pull()
    assert words.tolist() == [0, 0]
    lane.give([7, 8, 9, 10, 11])
    assert words.tolist() == [0, 5]
    lane.publish_level(None)
    lane.pull()
    assert words.tolist() == [0, 0]
