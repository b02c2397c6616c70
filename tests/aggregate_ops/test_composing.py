"""Operations put together, over the same items and over several inputs."""

from __future__ import annotations

import operator
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import aggregate_ops as ops
from shmjet import processors
from shmjet.aggregate_ops import AggregateOperation
from shmjet.testing import verify_processor

from ..processors.driving import Driver, processors_of

only_accumulates: AggregateOperation[Any, Any, Any] = AggregateOperation(list, list.append)
first = operator.itemgetter(0)


def test_a_composed_operation_keeps_what_all_of_its_parts_have() -> None:
    assert ops.all_of(ops.counting(), ops.summing()).deduct
    assert ops.all_of(ops.counting(), ops.to_list()).combine
    assert ops.all_of(ops.counting(), ops.to_list()).deduct is None
    for op in (
        ops.all_of(ops.counting(), only_accumulates),
        ops.aggregate_operation2(ops.counting(), only_accumulates),
        ops.mapping(len, only_accumulates),
        ops.filtering(len, only_accumulates),
        ops.flat_mapping(list, only_accumulates),
        ops.grouping_by(len, only_accumulates),
    ):
        assert op.combine is None
        assert op.deduct is None
        processors.aggregate(op) if op.inputs == 1 else None


def test_operations_without_combine_are_composed_by_key_too() -> None:
    op = ops.all_of(ops.counting(), only_accumulates, ops.filtering(str.isupper, ops.counting()))
    supplier = processors.aggregate_by_key(str.lower, op)
    verify_processor(supplier).inputs(["a", "A", "b"]).expect([("a", (2, ["a", "A"], 1)), ("b", (1, ["b"], 0))])
    groups = ops.grouping_by(str.lower, only_accumulates)
    assert groups.aggregate(["a", "A", "b"]) == {"a": ["a", "A"], "b": ["b"]}


def test_all_of_takes_a_function_behind_the_operations() -> None:
    assert ops.all_of(ops.summing(), ops.counting(), operator.truediv).aggregate([1, 2, 6]) == 3.0
    assert ops.all_of(ops.summing(), ops.counting(), finish=operator.truediv).aggregate([1, 2, 6]) == 3.0


def test_all_of_needs_two_operations() -> None:
    with pytest.raises(ValueError, match="all_of: expected at least two operations, got 1"):
        ops.all_of(ops.counting())


def test_a_part_must_have_one_input() -> None:
    two = ops.aggregate_operation2(ops.counting(), ops.counting())
    makes: list[Any] = [
        lambda: ops.all_of(two, ops.counting()),
        lambda: ops.aggregate_operation2(two, ops.counting()),
        lambda: ops.mapping(len, two),
        lambda: ops.grouping_by(len, two),
        lambda: ops.all_of_builder().add(two),
    ]
    for make in makes:
        with pytest.raises(ValueError, match="must have one input each, got one with 2"):
            make()


def test_a_builder_gives_results_by_tag() -> None:
    builder = ops.all_of_builder()
    n, most = builder.add(ops.counting()), builder.add(ops.max_by())
    found = builder.build().aggregate([4, 9])
    assert (found[n], found[most], len(found)) == (2, 9, 2)
    assert found == {n: 2, most: 9}
    assert pickle.loads(pickle.dumps(found)) == found
    with pytest.raises(KeyError):
        found[ops.Tag(2)]
    with pytest.raises(ValueError, match="all_of_builder: add"):
        ops.all_of_builder().build()
    with pytest.raises(TypeError, match="finish must be callable"):
        builder.build(3)  # type: ignore[arg-type]


# -- co-aggregation


def test_inputs_are_counted() -> None:
    assert ops.counting().inputs == 1
    assert ops.aggregate_operation2(ops.counting(), ops.summing()).inputs == 2
    assert ops.aggregate_operation3(ops.counting(), ops.summing(), ops.to_list()).inputs == 3
    builder = ops.co_aggregate_operation_builder()
    for _ in range(5):
        builder.add(ops.counting())
    assert builder.build().inputs == 5
    with pytest.raises(ValueError, match="expected an operation for each input, got none"):
        ops.co_aggregating()
    with pytest.raises(ValueError, match="has 2 inputs, got 1"):
        ops.aggregate_operation2(ops.counting(), ops.summing()).aggregate([1])


join = ops.aggregate_operation2(ops.mapping(operator.itemgetter(1), ops.to_list()), ops.counting())


def test_two_inputs_are_aggregated_together() -> None:
    verify_processor(processors.aggregate(join)).inputs([("a", 1), ("b", 2)], "xyz").expect([([1, 2], 3)])


def test_two_inputs_are_aggregated_together_by_key_and_a_key_of_one_of_them_has_a_result() -> None:
    supplier = processors.aggregate_by_key([first, None], join)
    inputs: Any = ([("a", 1), ("b", 2), ("a", 3)], ["b", "c", "b"])
    expected = [("a", ([1, 3], 0)), ("b", ([2], 2)), ("c", ([], 1))]
    verify_processor(supplier).inputs(*inputs).any_order().expect(expected)
    verify_processor(supplier).inputs(inputs[0], []).any_order().expect([("a", ([1, 3], 0)), ("b", ([2], 0))])
    verify_processor(supplier).inputs([], inputs[1]).any_order().expect([("b", ([], 2)), ("c", ([], 1))])


pairs = st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 5)), max_size=10)
operations = st.sampled_from(
    [
        join,
        ops.aggregate_operation2(ops.counting(), ops.counting(), operator.sub),
        ops.aggregate_operation2(ops.to_list(), ops.pick_any()),
        ops.aggregate_operation2(ops.linear_trend(first, first), ops.max_by()),
        AggregateOperation(
            lambda: (0, 0),
            [lambda acc, item: (acc[0] + 1, acc[1]), lambda acc, item: (acc[0], acc[1] + item[1])],
            lambda a, b: (a[0] + b[0], a[1] + b[1]),
        ),
    ]
)


@given(left=pairs, right=pairs, op=operations)
def test_two_stages_of_two_inputs_give_what_one_stage_gives(
    left: list[Any], right: list[Any], op: AggregateOperation[Any, Any, Any]
) -> None:
    expected: dict[int, Any] = {}
    for key in sorted({key for key, _ in left + right}):
        sides = [[pair for pair in side if pair[0] == key] for side in (left, right)]
        expected[key] = op.aggregate(*sides)
    whole = Driver(processors_of(processors.aggregate_by_key(first, op))[0])
    stage = Driver(processors_of(processors.accumulate_by_key([first, first], op))[0])
    for driver in (whole, stage):
        for ordinal, side in enumerate((left, right)):
            for at in range(0, len(side), 3):
                driver.feed(side[at : at + 3], ordinal)
    second = Driver(processors_of(processors.combine_by_key(op))[0])
    found = stage.complete((0, 1))
    if found:
        second.feed(pickle.loads(pickle.dumps(found)))
    assert repr(sorted(whole.complete((0, 1)), key=first)) == repr(list(expected.items()))
    assert repr(sorted(second.complete(), key=first)) == repr(list(expected.items()))
    parts = [Driver(processors_of(processors.accumulate(op))[0]) for _ in range(2)]
    accumulators = [
        found
        for ordinal, (part, side) in enumerate(zip(parts, (left, right), strict=True))
        for found in (part.feed(side, ordinal) if side else part).complete((0, 1))
    ]
    combined = Driver(processors_of(processors.combine(op))[0]).feed(accumulators).complete()
    assert repr(combined) == repr([op.aggregate(left, right)])


def test_an_edge_without_an_input_is_an_error() -> None:
    driver = Driver(processors_of(processors.aggregate(join))[0])
    with pytest.raises(ValueError, match="has 2 inputs, but items arrived on edge 2"):
        driver.feed(["x"], 2)
    driver = Driver(processors_of(processors.aggregate_by_key(None, join))[0])
    with pytest.raises(ValueError, match="has 2 inputs, but items arrived on edge 2"):
        driver.feed(["x"], 2)


def test_every_input_needs_a_key_function() -> None:
    for factory in (processors.aggregate_by_key, processors.accumulate_by_key):
        with pytest.raises(ValueError, match="has 2 inputs, but there are 1 key functions"):
            factory([first], join)


def test_an_operation_needs_an_accumulate_function() -> None:
    with pytest.raises(ValueError, match="one for each input, got none"):
        AggregateOperation(list, [])
    with pytest.raises(TypeError, match="accumulate must be callable, got 5"):
        AggregateOperation(list, [list.append, 5])
    with pytest.raises(ValueError, match="3 of accumulate_list for 2 inputs"):
        AggregateOperation(list, [list.append] * 2, accumulate_list=(None, None, None))


# -- operations made of others


def test_an_operation_may_combine_accumulators_that_come_as_items() -> None:
    op = ops.counting().with_combining_accumulate_fn(operator.itemgetter(1))
    items = [("a", 2), ("b", 3), ("a", 4)]
    assert op.aggregate(items) == 9
    supplier = processors.aggregate_by_key(first, op)
    verify_processor(supplier).inputs(items).expect([("a", 6), ("b", 3)])
    both = ops.all_of(ops.counting(), ops.to_list()).with_combining_accumulate_fn(lambda parts: parts)
    assert both.aggregate([(1, ["a"]), (2, ["b", "c"])]) == (3, ["a", "b", "c"])
    with pytest.raises(ValueError, match="no combine function"):
        only_accumulates.with_combining_accumulate_fn(len)


def test_then_applies_to_results_in_between_too() -> None:
    op = ops.to_list().and_then(len).and_then(str)
    assert op.aggregate("abc") == "3"
    assert op.exporter
    assert op.exporter(["a"]) == "1"


def test_with_identity_finish_gives_accumulators() -> None:
    op = ops.top_n(2).with_identity_finish()
    assert op.finisher is None
    assert sorted(op.aggregate([1, 2])) == [1, 2]
    accumulator = op.fold(op.create(), [1])
    between = op.exporter(accumulator)
    op.fold(accumulator, [2])
    assert between == [1]
