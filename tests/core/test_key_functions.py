"""Functions that are called for each item of a list: a StopIteration in one must not end the list silently."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import itemgetter, methodcaller
from typing import Any

import pytest

from shmjet import aggregate_ops as ops
from shmjet import processors, tumbling
from shmjet.core.key_functions import keys_of, mapped, selected
from shmjet.testing import verify_processor
from tests.processors.driving import Driver, processors_of

ITEMS = [[1], [], [2]]


def first_of(items: list[int]) -> int:
    """What forgets that a list may be empty: `next` of nothing raises StopIteration."""
    return next(iter(items))


@pytest.mark.parametrize("fn", [first_of, partial(first_of), lambda items: first_of(items)])
def test_a_function_that_raises_stop_iteration_is_heard(fn: Callable[[list[int]], int]) -> None:
    for call in (mapped, selected, keys_of):
        with pytest.raises(StopIteration):
            list(call(fn, ITEMS))
        assert len(list(call(fn, [[1], [2]]))) == 2


def test_next_itself_is_heard() -> None:
    with pytest.raises(StopIteration):
        mapped(next, [iter([1]), iter([])])


@pytest.mark.parametrize("fn", [str.upper, itemgetter(0), len, str, methodcaller("lower"), bool])
def test_functions_in_c_give_what_a_loop_gives(fn: Callable[[str], Any]) -> None:
    items = ["a", "Bc", "d"]
    assert mapped(fn, items) == [fn(item) for item in items]
    assert selected(fn, items) == [item for item in items if fn(item)]


@pytest.mark.parametrize(
    "op",
    [
        ops.summing(first_of),
        ops.averaging(first_of),
        ops.min_by(first_of),
        ops.max_by(first_of),
        ops.top_n(1, first_of),
        ops.mapping(first_of, ops.counting()),
        ops.filtering(first_of, ops.counting()),
        ops.flat_mapping(lambda items: [first_of(items)], ops.counting()),
        ops.grouping_by(first_of, ops.counting()),
        ops.to_dict(first_of, first_of),
        ops.sorting(first_of),
    ],
)
def test_no_aggregation_takes_it_for_the_end(op: ops.AggregateOperation[Any, Any, Any]) -> None:
    with pytest.raises((StopIteration, RuntimeError)):
        op.aggregate(ITEMS)
    if op.combine is not None:
        table = op.table()
        with pytest.raises((StopIteration, RuntimeError)):
            op.fold_groups(table, ["a", "a", "a"], ITEMS)
            for _, accumulator in table.items():
                assert op.finisher is not None
                op.finisher(accumulator)


@pytest.mark.parametrize(
    "supplier",
    [
        processors.filter(first_of),
        processors.map(first_of),
        processors.flat_map(lambda items: [first_of(items)]),
        processors.distinct(first_of),
        processors.sort(first_of),
        processors.logger(str, first_of),
        processors.aggregate_by_key(first_of, ops.counting()),
        processors.group_and_accumulate(first_of, lambda: 0, lambda count, item: count + 1),
    ],
    ids=["filter", "map", "flat_map", "distinct", "sort", "logger", "aggregate_by_key", "group_and_accumulate"],
)
def test_no_processor_takes_it_for_the_end(supplier: Any) -> None:
    with pytest.raises((StopIteration, RuntimeError)):
        verify_processor(supplier).inputs(ITEMS).expect([])


@pytest.mark.parametrize(
    "supplier",
    [
        processors.accumulate_by_key(lambda item: [item], ops.counting()),
        processors.accumulate_by_frame(lambda item: [item], lambda item: item, tumbling(1), ops.counting()),
        processors.distinct(lambda item: [item]),
    ],
)
def test_a_key_that_cannot_be_hashed_is_named(supplier: Any) -> None:
    (processor,) = processors_of(supplier)
    with pytest.raises(TypeError, match=r"\[7\] of type list cannot be a key.*make it a tuple"):
        Driver(processor).feed([7])


def test_an_error_of_the_operation_is_its_own() -> None:
    (processor,) = processors_of(processors.accumulate_by_key(None, ops.summing(len)))
    with pytest.raises(TypeError, match="has no len"):
        Driver(processor).feed([7])
