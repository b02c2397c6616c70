from __future__ import annotations

import operator
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import processors
from shmjet.processors import AggregateOperation, counting, summing
from shmjet.testing import verify_processor

from .driving import Driver, processors_of

collecting: AggregateOperation[Any, list[Any], list[Any]] = AggregateOperation(
    list, list.append, list.extend, finish=sorted
)
averaging: AggregateOperation[Any, Any, float] = AggregateOperation(
    create=lambda: (0, 0),
    accumulate=lambda acc, x: (acc[0] + x, acc[1] + 1),
    combine=lambda a, b: (a[0] + b[0], a[1] + b[1]),
    export=lambda acc: acc[0] / acc[1] if acc[1] else None,
)
small = st.integers(-3, 3)


def two_stages(op: AggregateOperation[Any, Any, Any], parts: list[list[Any]]) -> list[Any]:
    accumulators: list[Any] = []
    for part in parts:
        accumulators += Driver(processors_of(processors.accumulate(op))[0]).feed(part).complete()
    return Driver(processors_of(processors.combine(op))[0], room=3).feed(accumulators).complete()


@given(st.lists(st.lists(small, max_size=10), min_size=1, max_size=4))
def test_two_stages_give_what_one_stage_gives(parts: list[list[int]]) -> None:
    items = [item for part in parts for item in part]
    assert two_stages(counting(), parts) == [len(items)]
    assert two_stages(summing(), parts) == [sum(items)]
    assert two_stages(collecting, parts) == [sorted(items)]
    assert two_stages(averaging, parts) == ([sum(items) / len(items)] if items else [])


def test_aggregate_emits_one_result_at_the_end() -> None:
    verify_processor(processors.aggregate(counting())).inputs([5, 6, 7]).expect([3])
    verify_processor(processors.aggregate(summing(len))).inputs(["a", "bc"]).expect([3])
    verify_processor(processors.aggregate(collecting)).inputs([3, 1, 2]).expect([[1, 2, 3]])


def test_aggregate_of_nothing_is_the_result_of_a_fresh_accumulator_unless_that_is_none() -> None:
    verify_processor(processors.aggregate(counting())).inputs([]).expect([0])
    verify_processor(processors.aggregate(averaging)).inputs([]).expect([])


def keyed_two_stages(op: AggregateOperation[Any, Any, Any], key_fn: Any, parts: list[list[Any]]) -> dict[Any, Any]:
    pairs: list[Any] = []
    for part in parts:
        pairs += Driver(processors_of(processors.accumulate_by_key(key_fn, op))[0], room=2).feed(part).complete()
    combined = Driver(processors_of(processors.combine_by_key(op))[0], room=3).feed(pairs).complete()
    assert len(combined) == len(dict(combined))
    return dict(combined)


@given(st.lists(st.lists(small, max_size=10), max_size=4))
def test_two_stages_by_key_give_what_one_stage_by_key_gives(parts: list[list[int]]) -> None:
    items = [item for part in parts for item in part]
    groups: dict[int, list[int]] = {}
    for item in items:
        groups.setdefault(abs(item), []).append(item)
    assert keyed_two_stages(counting(), None, parts) == Counter(items)
    assert keyed_two_stages(counting(), lambda x: x, parts) == Counter(items)
    assert keyed_two_stages(counting(), abs, parts) == Counter(map(abs, items))
    assert keyed_two_stages(summing(), abs, parts) == {key: sum(group) for key, group in groups.items()}
    assert keyed_two_stages(collecting, abs, parts) == {key: sorted(group) for key, group in groups.items()}
    averages = {key: sum(group) / len(group) for key, group in groups.items()}
    assert keyed_two_stages(averaging, abs, parts) == averages


@pytest.mark.parametrize("op", [counting(), summing(lambda _: 1), AggregateOperation(int, lambda n, _: n + 1)])
def test_aggregate_by_key_emits_tuples_of_key_and_result(op: AggregateOperation[Any, Any, Any]) -> None:
    verify_processor(processors.aggregate_by_key(str.lower, op)).inputs(["a", "B", "A"]).expect([("a", 2), ("b", 1)])


def test_every_edge_can_have_a_key_function_of_its_own() -> None:
    supplier = processors.aggregate_by_key([operator.itemgetter(0), operator.itemgetter("k")], counting())
    verify_processor(supplier).inputs([("a", 1), ("b", 2)], [{"k": "a"}]).any_order().expect([("a", 2), ("b", 1)])


def test_a_million_groups_are_emitted_resumably() -> None:
    driver = Driver(processors_of(processors.accumulate_by_key(None, counting()))[0])
    for start in range(0, 100_000, 1000):
        driver.feed(range(start, start + 1000))
    assert driver.output == []
    assert sorted(driver.complete()) == [(key, 1) for key in range(100_000)]
    assert driver.calls > 100_000 / 2048


def test_accumulators_that_were_received_are_not_changed() -> None:
    received = ("key", [1])
    driver = Driver(processors_of(processors.combine_by_key(collecting))[0])
    driver.feed([received, ("key", [0])])
    assert driver.complete() == [("key", [0, 1])]
    assert received == ("key", [1])


def test_an_accumulator_may_be_none() -> None:
    largest: AggregateOperation[Any, Any, Any] = AggregateOperation(
        create=lambda: None,
        accumulate=lambda top, x: x if top is None else max(top, x),
        combine=lambda a, b: b if a is None else a if b is None else max(a, b),
    )
    assert keyed_two_stages(largest, abs, [[1, -1], [], [2]]) == {1: 1, 2: 2}
    assert two_stages(largest, [[], [3], [1]]) == [3]
    assert two_stages(largest, [[]]) == []


def test_an_operation_without_combine_cannot_be_done_in_two_stages() -> None:
    op: AggregateOperation[Any, Any, Any] = AggregateOperation(list, list.append)
    processors.aggregate(op)
    for factory in (processors.accumulate, processors.combine, processors.combine_by_key):
        with pytest.raises(ValueError, match="no combine function"):
            factory(op)
    with pytest.raises(ValueError, match="no combine function"):
        processors.accumulate_by_key(None, op)


@pytest.mark.parametrize("name", ["create", "accumulate", "combine", "deduct", "export", "finish"])
def test_a_primitive_that_cannot_be_called_is_named(name: str) -> None:
    arguments = {"create": int, "accumulate": max, name: 42}
    with pytest.raises(TypeError, match=f"{name} must be callable.*42"):
        AggregateOperation(**arguments)  # type: ignore[arg-type]


def test_what_is_no_operation_is_refused() -> None:
    with pytest.raises(TypeError, match="expected an AggregateOperation, got type"):
        processors.aggregate(int)  # type: ignore[arg-type]


def test_keys_that_cannot_be_hashed_are_an_error() -> None:
    driver = Driver(processors_of(processors.aggregate_by_key(None, counting()))[0])
    with pytest.raises(TypeError, match=r"\[1\] of type list cannot be a key: keys are hashable"):
        driver.feed([[1]])


def test_group_and_accumulate_transforms_an_immutable_value() -> None:
    supplier = processors.group_and_accumulate(lambda word: word[0], (), lambda group, word: (*group, word))
    verify_processor(supplier).inputs(["ab", "b", "ac"]).expect([("a", ("ab", "ac")), ("b", ("b",))])


@pytest.mark.parametrize("initial", [0, int, lambda: 0])
def test_the_initial_value_of_group_and_accumulate_may_be_made_by_a_function(initial: Any) -> None:
    supplier = processors.group_and_accumulate(lambda word: word[0], initial, lambda total, word: total + len(word))
    verify_processor(supplier).inputs(["ab", "abc", "x"]).expect([("a", 5), ("x", 1)])


def test_group_and_accumulate_refuses_a_mutable_initial_value() -> None:
    with pytest.raises(TypeError, match="group_and_collect"):
        processors.group_and_accumulate(None, [], max)


def test_group_and_collect_updates_a_container() -> None:
    supplier = processors.group_and_collect(len, set, set.add)
    verify_processor(supplier).inputs(["ab", "b", "ab", "cd"]).expect([(2, {"ab", "cd"}), (1, {"b"})])


def test_group_functions_that_cannot_be_called_are_named() -> None:
    with pytest.raises(TypeError, match="accumulate must be callable"):
        processors.group_and_accumulate(None, 0, 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="container must be callable"):
        processors.group_and_collect(None, [], list.append)  # type: ignore[arg-type]
