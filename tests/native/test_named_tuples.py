"""Named tuples of known classes are columns, and come back as their class; frames are cut as Python would."""

from __future__ import annotations

import gc
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import KeyedWindowResult, WindowResult
from shmjet._native import Codec, cut_frames, cut_results, keyed_results, name_tuples
from shmjet.core.windows import SlidingWindowPolicy

codec = Codec()


def round_trip(items: list[Any]) -> list[Any] | None:
    payload = codec.encode(items, 0, len(items))
    return None if payload is None else codec.decode(payload, len(items))


@pytest.mark.parametrize(
    "items",
    [
        [WindowResult(0, 10, "x"), WindowResult(-5, 5, None, True)],
        [KeyedWindowResult(0, 10, "a", [1, 2]), KeyedWindowResult(10, 20, None, {"n": 1.5})],
        [(9, KeyedWindowResult(n, n + 10, f"k{n}", (n, 0.5))) for n in range(1000)],
        [KeyedWindowResult(0, 1, WindowResult(1, 2, 3), WindowResult(4, 5, KeyedWindowResult(1, 2, 3, 4)))],
        [[WindowResult(0, 1, 2)], []],
    ],
)
def test_results_of_windows_are_columns(items: list[Any]) -> None:
    back = round_trip(items)
    assert back == items
    assert repr(back) == repr(items)
    assert list(map(type, back)) == list(map(type, items))


def test_what_comes_back_is_a_tuple_in_all_respects() -> None:
    result = KeyedWindowResult(0, 1_000, "a", 7)
    (back,) = round_trip([result]) or [None]
    assert hash(back) == hash(result) == hash(tuple(result))
    assert {back: 1}[result] == 1
    assert back._replace(key="b") == (0, 1_000, "b", 7, False)
    gc.collect()
    assert back._asdict() == result._asdict()


def test_the_collector_need_not_look_at_tuples_of_plain_values() -> None:
    plain, listed = KeyedWindowResult(0, 1, "a", 2), KeyedWindowResult(0, 1, "a", [2])
    for items, tracked in (([(1, plain)], False), ([(1, listed)], True), ([(1, (2, (3, "x")))], False)):
        (back,) = round_trip(items) or [None]
        assert gc.is_tracked(back) is tracked
        assert gc.is_tracked(back[1]) is tracked


def test_lists_of_several_classes_are_no_columns() -> None:
    for items in ([WindowResult(0, 1, 2), (0, 1, 2, False)], [(0, 1), WindowResult(0, 1, 2)]):
        assert round_trip(items) is None
    assert round_trip([WindowResult(0, 1, 2), KeyedWindowResult(0, 1, 2, 3)]) is None
    odd = tuple.__new__(WindowResult, (1, 2))
    assert round_trip([odd]) is None


def test_a_damaged_class_is_an_error() -> None:
    payload = bytearray(codec.encode([WindowResult(0, 1, 2)], 0, 1) or b"")
    for number in (1, 2, 200):  # another number of fields, no class, beyond all
        payload[1] = number
        with pytest.raises(ValueError, match="damaged"):
            codec.decode(bytes(payload), 1)


@pytest.mark.parametrize(
    "arguments", [(0, tuple), (0, int), (8, WindowResult), (-1, WindowResult), ("x", WindowResult)]
)
def test_only_classes_of_named_tuples_get_a_number(arguments: Any) -> None:
    with pytest.raises(TypeError):
        name_tuples(*arguments)


STAMPS = st.lists(st.integers(-100, 100) | st.integers(-(2**62), 2**62), max_size=30)


@given(stamps=STAMPS, slide=st.integers(1, 50), lowest=st.integers(-60, 60))
def test_frames_are_cut_by_the_arithmetic_of_the_policy(stamps: list[int], slide: int, lowest: int) -> None:
    policy = SlidingWindowPolicy(slide, slide, slide // 3)
    items = [(stamp, n) for n, stamp in enumerate(stamps)]
    groups, late = cut_frames(items, None, slide, policy.offset, lowest)
    assert late == [item for item in items if policy.higher_frame(item[0]) < lowest]
    assert all(end >= lowest for end in groups)
    for end, group in groups.items():
        assert group == [n for n, stamp in enumerate(stamps) if policy.higher_frame(stamp) == end]
        assert all(a < b for a, b in pairwise(group))
    assert sum(map(len, groups.values())) + len(late) == len(items)
    assert cut_frames(items, stamps, slide, policy.offset, lowest)[1] == late


def test_timestamps_at_the_ends_of_all_time_have_frames() -> None:
    assert cut_frames(["a"], [2**63 - 1], 10, 0, 0) == ({2**63 - 1: ["a"]}, [])
    assert cut_frames(["a"], [-(2**63)], 10, 9, -(2**63))[1] == []


@pytest.mark.parametrize("items", [["ab"], [(1, 2, 3)], [("1", 2)], [(2**63, 1)], [(True, 1)], [[1, 2]]])
def test_what_is_no_timed_item_is_named(items: list[Any]) -> None:
    with pytest.raises(TypeError, match=r"timed item|timestamp must be an int"):
        cut_frames(items, None, 10, 0, 0)


def test_results_of_frames_are_cut_by_their_ends() -> None:
    results = [(0, 10, "a", 1), (0, 10, "b", 2), (10, 20, "a", 3), (0, 10, "a", 4), (-10, 0, "c", 5)]
    assert cut_results(results, True, 10) == ({10: [("a", 1), ("b", 2), ("a", 4)], 20: [("a", 3)]}, [results[4]])
    assert cut_results([WindowResult(0, 10, 7)], False, 0) == ({10: [(None, 7)]}, [])
    for item in ("ab", (0, 10), (0, "x", 1, 2), [0, 10, 1, 2]):
        with pytest.raises(TypeError, match="expected a result of a frame"):
            cut_results([item], True, 0)


def test_results_of_keys_are_made_of_pairs() -> None:
    pairs = [("a", 1), (None, [2])]
    made = keyed_results(KeyedWindowResult, 0, 10, pairs, True, None)
    assert made == [KeyedWindowResult(0, 10, "a", 1, True), KeyedWindowResult(0, 10, None, [2], True)]
    assert {type(each) for each in made} == {KeyedWindowResult}
    assert keyed_results(KeyedWindowResult, 0, 10, pairs, True, 9) == [(9, each) for each in made]
    with pytest.raises(TypeError, match="expected a pair"):
        keyed_results(KeyedWindowResult, 0, 10, [("a", 1, 2)], True, 9)  # type: ignore[list-item]
