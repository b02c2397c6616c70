from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import processors
from shmjet.core.errors import ProcessorError
from shmjet.processors import sorting
from shmjet.testing import verify_processor

from .driving import Driver, processors_of

BY_SIZE = (len, lambda pair: pair[0])
SIZES = [(1, "one"), (2, "two"), (2, "zwei")]


def test_hash_join_emits_a_result_for_every_match_and_none_for_no_match() -> None:
    verify_processor(processors.hash_join(BY_SIZE)).inputs(["a", "bb", "ccc"], SIZES).priorities(0, -1).expect(
        [("a", (1, "one")), ("bb", (2, "two")), ("bb", (2, "zwei")), ("ccc", None)]
    )


def test_an_inner_hash_join_leaves_out_what_has_no_match() -> None:
    supplier = processors.hash_join(BY_SIZE, inner=True, project=lambda left, right: left + right[1])
    verify_processor(supplier).inputs(["a", "ccc"], SIZES).priorities(0, -1).expect(["aone"])


def test_several_edges_are_joined_as_their_product() -> None:
    supplier = processors.hash_join(BY_SIZE, (None, str.lower))
    verify_processor(supplier).inputs(["bb", "a"], SIZES, ["BB", "x"]).priorities(0, -1, -1).expect(
        [("bb", (2, "two"), "BB"), ("bb", (2, "zwei"), "BB"), ("a", (1, "one"), None)]
    )


def test_a_stream_that_comes_before_the_table_is_whole_is_an_error_with_the_remedy() -> None:
    driver = Driver(processors_of(processors.hash_join(BY_SIZE))[0])
    driver.feed(SIZES, ordinal=1)
    with pytest.raises(ProcessorError, match=r"edge 1 was complete.*priority\(-1\)"):
        driver.feed(["a"])


def test_an_edge_without_a_clause_is_an_error() -> None:
    driver = Driver(processors_of(processors.hash_join(BY_SIZE))[0])
    with pytest.raises(ProcessorError, match="1 join clauses, but items arrived on edge 2"):
        driver.feed([1], ordinal=2)


def test_wrong_clauses_are_refused() -> None:
    with pytest.raises(ValueError, match="got none"):
        processors.hash_join()
    with pytest.raises(TypeError, match="pair per joined edge"):
        processors.hash_join(len)  # type: ignore[arg-type]


pairs = st.tuples(st.integers(0, 3), st.integers())
batches = st.lists(st.lists(pairs, min_size=1, max_size=30), max_size=10)


@pytest.fixture(autouse=True)
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "LONGEST_RUN", 8)
    monkeypatch.setattr(sorting, "SLICE", 4)


@given(batches=batches, reverse=st.booleans(), by_first=st.booleans())
def test_sort_gives_what_sorted_gives_and_is_stable(
    batches: list[list[tuple[int, int]]], reverse: bool, by_first: bool
) -> None:
    key: Any = (lambda pair: pair[0]) if by_first else None
    driver = Driver(processors_of(processors.sort(key, reverse=reverse))[0], room=5)
    for batch in batches:
        driver.feed(batch)
    assert driver.output == []
    everything = [pair for batch in batches for pair in batch]
    assert driver.complete() == sorted(everything, key=key, reverse=reverse)


def test_sort_in_all_modes() -> None:
    verify_processor(processors.sort(str.lower)).inputs(["b", "A", "c", "a"]).expect(["A", "a", "b", "c"])


def test_items_that_cannot_be_compared_are_an_error() -> None:
    driver = Driver(processors_of(processors.sort())[0])
    with pytest.raises(TypeError, match="'<' not supported"):
        driver.feed([1, "a"])


def test_distinct_emits_the_first_item_of_each_key_at_once() -> None:
    verify_processor(processors.distinct()).inputs([1, 2, 1, 3, 2]).without_complete().expect([1, 2, 3])
    verify_processor(processors.distinct(str.lower)).inputs(["a", "A", "b", "B", "a"]).expect(["a", "b"])
