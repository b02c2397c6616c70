"""Stages with a state, rolling aggregation, and tables."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from shmjet.aggregate_ops import AggregateOperation, all_of, averaging, counting, grouping_by, to_list
from shmjet.data.errors import ProcessorError
from shmjet.processors import hash_join
from shmjet.processors.general.stateful import filter_stateful, flat_map_stateful, rolling_aggregate
from shmjet.processors.general.table_lookup import join_table
from shmjet.testing import verify_processor
from tests.processors.driving import Driver, processors_of


def first_of_each(state: list[int], *item: Any) -> bool:
    state.append(1)
    return len(state) == 1


def numbered(state: list[int], *item: Any) -> list[Any]:
    state.append(1)
    return [len(state)] * len(state)


def test_filter_with_a_state_for_each_key_and_with_one_in_all() -> None:
    driver = Driver(processors_of(filter_stateful(list, first_of_each, lambda x: x % 2))[0])
    assert driver.feed([1, 2, 3, 4]).complete() == [1, 2]
    driver = Driver(processors_of(filter_stateful(list, first_of_each))[0])
    assert driver.feed([1, 2, 3, 4]).complete() == [1]


def test_flat_map_with_a_state_for_each_key_and_with_one_in_all() -> None:
    driver = Driver(processors_of(flat_map_stateful(list, numbered, None))[0], room=2)
    assert driver.feed(["a", "b", "a"]).complete() == [1, 1, 2, 2]
    driver = Driver(processors_of(flat_map_stateful(list, numbered))[0])
    assert driver.feed(["a", "b"]).complete() == [1, 2, 2]


def test_a_rolling_aggregate_emits_the_result_so_far() -> None:
    verify_processor(rolling_aggregate(averaging())).inputs([2, 4, 9]).expect([2.0, 3.0, 5.0])
    keyed = rolling_aggregate(counting(), lambda x: x % 2)
    verify_processor(keyed).inputs([1, 2, 3]).expect([(1, 1), (0, 1), (1, 2)])


def test_results_of_a_rolling_aggregate_do_not_change_later() -> None:
    driver = Driver(processors_of(rolling_aggregate(to_list()))[0])
    assert driver.feed([1, 2]).complete() == [[1], [1, 2]]


def by_parity(accumulator: dict[str, list[int]], item: int) -> None:
    accumulator["odd" if item % 2 else "even"].append(item)


def nothing_yet() -> dict[str, list[int]]:
    return {"odd": [], "even": []}


@pytest.mark.parametrize("finish", [None, lambda found: found, lambda found: {k: found.pop(k) for k in list(found)}])
def test_without_an_export_function_results_share_nothing_with_the_accumulator(finish: Any) -> None:
    op: Any = AggregateOperation(nothing_yet, by_parity, finish=finish)
    results = [{"odd": [1], "even": []}, {"odd": [1], "even": [2]}]
    driver = Driver(processors_of(rolling_aggregate(op))[0])
    assert driver.feed([1, 2]).complete() == results
    driver = Driver(processors_of(rolling_aggregate(all_of(op, counting())))[0])
    assert driver.feed([1, 2]).complete() == [(results[0], 1), (results[1], 2)]
    driver = Driver(processors_of(rolling_aggregate(grouping_by(lambda x: "all", op), None))[0])
    assert driver.feed([1, 1]).complete() == [
        (1, {"all": {"odd": [1], "even": []}}),
        (1, {"all": {"odd": [1, 1], "even": []}}),
    ]


def test_an_accumulator_that_cannot_be_copied_needs_an_export_function() -> None:
    op: Any = AggregateOperation(threading.Lock, lambda lock, item: None)
    driver = Driver(processors_of(rolling_aggregate(op))[0])
    with pytest.raises(TypeError, match=r"accumulator of type lock cannot be copied.*export function"):
        driver.feed([1])


def with_table(entries: list[Any], entry_key: Any, items: list[Any]) -> list[Any]:
    processor = processors_of(join_table(lambda x: x % 2, [entry_key], lambda x, value: (x, value)))[0]
    driver = Driver(processor)
    driver.feed(entries, ordinal=1)
    return list(driver.feed(items).complete())


def test_items_are_joined_with_the_last_value_for_their_key() -> None:
    assert with_table([(1, "a"), (1, "b")], False, [3, 4]) == [(3, "b"), (4, None)]
    assert with_table([7, 9, 4], lambda x: x % 2, [1, 2]) == [(1, 9), (2, 4)]


def test_a_table_of_items_that_are_no_pairs_wants_a_key() -> None:
    with pytest.raises(ProcessorError, match=r"must be a \(key, value\) pair, or send_to\(table, key_fn\)"):
        with_table([5], False, [])


def test_a_join_with_a_table_needs_entries_and_a_function() -> None:
    with pytest.raises(ValueError, match="at least one edge of entries"):
        join_table(None, [], lambda x, y: x)
    with pytest.raises(TypeError, match="expected a function of item and value, got int"):
        join_table(None, [False], 5)  # type: ignore[arg-type]


def joined(*clauses: Any, **options: Any) -> list[Any]:
    driver = Driver(processors_of(hash_join(*clauses, **options))[0])
    for ordinal in range(1, len(clauses) + 1):
        driver.feed([(1, "a"), (2, "b")], ordinal=ordinal)
        driver.call(driver.processor.complete_edge, ordinal)
    return list(driver.feed([1, 3]).complete())


def first(pair: Any) -> Any:
    return pair[0]


def second(pair: Any) -> Any:
    return pair[1]


def test_of_a_joined_item_only_what_is_asked_for_is_kept() -> None:
    assert joined((None, first, second)) == [(1, "a"), (3, None)]


def test_each_side_of_a_hash_join_may_be_inner() -> None:
    assert joined((None, first), (None, first, second), inner=(False, True)) == [(1, (1, "a"), "a")]
    assert joined((None, first), (None, first), inner=(False, False))[1] == (3, None, None)
    with pytest.raises(ValueError, match="2 edges are joined, but inner has 1"):
        hash_join((None, None), (None, None), inner=(True,))


def test_a_join_whose_function_gives_none_has_no_result() -> None:
    assert joined((None, first), project=lambda item, match: match and item) == [1]
    assert joined((None, first), (None, first), project=lambda item, a, b: a and b and item) == [1]


@pytest.mark.parametrize("kinds", [{}, {"ttl": 1, "timed": True}])
def test_a_flat_map_that_gives_no_iterable_is_told_so(kinds: dict[str, Any]) -> None:
    driver = Driver(processors_of(flat_map_stateful(list, lambda state, item: 7, **kinds))[0])  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match="'int' object is not iterable; the function of a flat_map must return"):
        driver.feed([(1, 2)])
