"""What a join keeps: equal to a dict of lists, whatever comes when."""

from __future__ import annotations

import pickle
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet.processors.general.match_table import NOTHING, MatchTable

entries = st.lists(st.tuples(st.one_of(st.integers(0, 5), st.sampled_from("ab")), st.integers()), max_size=8)


@given(st.lists(entries, max_size=5), st.booleans())
def test_it_gives_what_a_dict_of_lists_gives(batches: list[list[tuple[int | str, int]]], pickled: bool) -> None:
    table, model = MatchTable(), defaultdict(list)
    for batch in batches:
        table.add((key for key, _ in batch), [item for _, item in batch])
        for key, item in batch:
            model[key].append(item)
    if pickled:  # as when its processor moves to another worker
        table = pickle.loads(pickle.dumps(table))
    keys = [0, 1, 2, 3, 4, 5, "a", "b", "no"]
    assert [list(table.matches(key)) for key in keys] == [model.get(key, []) for key in keys]
    assert list(table.firsts(keys)) == [model[key][0] if key in model else NOTHING for key in keys]
    assert table.is_unique == all(len(items) <= 1 for items in model.values())


def test_the_same_object_may_come_twice() -> None:
    table = MatchTable()
    table.add([1], ["same"])
    table.add([1], ["same"])
    assert table.matches(1) == ["same", "same"]


def test_what_is_false_is_an_item_and_a_default_is_given_back() -> None:
    table = MatchTable()
    table.add([0], [0])
    assert table.matches(0) == (0,)
    assert table.matches(1, (None,)) == (None,)


def test_a_key_that_cannot_be_hashed_adds_nothing() -> None:
    table = MatchTable()
    with pytest.raises(TypeError, match="unhashable"):
        table.add([1, []], ["a", "b"])
    assert table.matches(1) == ()


def test_nothing_is_one_object_in_each_process() -> None:
    assert pickle.loads(pickle.dumps(NOTHING)) is NOTHING
