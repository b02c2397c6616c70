"""What every operation must hold to, whatever it computes: stages, lists, groups, deduction, export, pickling."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import processors
from shmjet.aggregate_ops import AggregateOperation
from tests.examples import examples

from ..processors.driving import Driver, processors_of
from .catalogue import CATALOGUE, Entry, same

Op = AggregateOperation[Any, Any, Any]

ints = st.integers(-20, 20)
lists = st.lists(ints, max_size=12)
few = examples(15)
every = pytest.mark.parametrize("entry", CATALOGUE.values(), ids=CATALOGUE)
deductible = pytest.mark.parametrize(
    "entry",
    [entry for entry in CATALOGUE.values() if entry.op.deduct],
    ids=[name for name, entry in CATALOGUE.items() if entry.op.deduct],
)


def one_by_one(op: Op, items: list[int], accumulator: Any = None) -> Any:
    """Fold by the primitive alone, without kernels."""
    accumulator = op.create() if accumulator is None else accumulator
    for item in items:
        changed = op.accumulate(accumulator, item)
        accumulator = accumulator if changed is None else changed
    return accumulator


def combined(op: Op, *accumulators: Any) -> Any:
    """Combine into a fresh accumulator."""
    return op.merge(op.create(), accumulators)


def finished(entry: Entry, accumulator: Any) -> Any:
    finisher = entry.op.finisher
    return entry.normal(accumulator if finisher is None else finisher(accumulator))


def exported(entry: Entry, accumulator: Any) -> Any:
    return entry.normal(entry.op.exporter(accumulator))


@every
@few
@given(items=lists)
def test_a_single_pass_gives_the_expected_result(entry: Entry, items: list[int]) -> None:
    assert same(finished(entry, one_by_one(entry.op, items)), entry.expected(items))
    assert same(entry.normal(entry.op.aggregate(items)), entry.expected(items))


@every
@few
@given(a=lists, b=lists)
def test_lists_are_folded_as_their_items_are(entry: Entry, a: list[int], b: list[int]) -> None:
    before = list(a), list(b)
    accumulator = entry.op.fold(entry.op.fold(entry.op.create(), a), b)
    assert same(finished(entry, accumulator), entry.expected(a + b))
    assert (a, b) == before


@every
@few
@given(a=lists, b=lists, c=lists)
def test_combine_is_associative_and_agrees_with_a_single_pass(
    entry: Entry, a: list[int], b: list[int], c: list[int]
) -> None:
    op = entry.op
    parts = [op.fold(op.create(), part) for part in (a, b, c)]
    untouched = copy.deepcopy(parts)
    left = combined(op, combined(op, parts[0], parts[1]), parts[2])
    right = combined(op, parts[0], combined(op, parts[1], parts[2]))
    assert same(finished(entry, left), entry.expected(a + b + c))
    assert same(finished(entry, right), entry.expected(a + b + c))
    assert all(map(same, parts, untouched)), "combine() changed its second argument"


@deductible
@few
@given(a=lists, b=lists)
def test_deduct_is_the_reverse_of_combine(entry: Entry, a: list[int], b: list[int]) -> None:
    op = entry.op
    assert op.deduct is not None
    kept, gone = op.fold(op.create(), a), op.fold(op.create(), b)
    accumulator = combined(op, kept, gone)
    changed = op.deduct(accumulator, gone)
    accumulator = accumulator if changed is None else changed
    assert same(finished(entry, accumulator), entry.expected(a))
    changed = op.deduct(accumulator, kept)
    assert same(accumulator if changed is None else changed, op.create()), "all is deducted: equal to a fresh one"


@every
@few
@given(a=lists, b=lists)
def test_export_leaves_the_accumulator_alone_and_shares_nothing_with_it(
    entry: Entry, a: list[int], b: list[int]
) -> None:
    accumulator = entry.op.fold(entry.op.create(), a)
    result = exported(entry, accumulator)
    assert same(result, entry.expected(a))
    accumulator = entry.op.fold(accumulator, b)
    assert same(result, entry.expected(a))
    assert same(finished(entry, accumulator), entry.expected(a + b))


def by_key(items: list[int]) -> dict[int, list[int]]:
    groups: dict[int, list[int]] = {}
    for item in items:
        groups.setdefault(item % 3, []).append(item)
    return groups


def remainder(item: int) -> int:
    return item % 3


@every
@few
@given(parts=st.lists(lists, max_size=3))
def test_processors_with_keys_give_the_result_of_each_key_in_one_stage_and_in_two(
    entry: Entry, parts: list[list[int]]
) -> None:
    everything = [item for part in parts for item in part]
    expected = {key: entry.expected(group) for key, group in by_key(everything).items()}
    whole = Driver(processors_of(processors.aggregate_by_key(remainder, entry.op))[0], room=2)
    pairs: list[Any] = []
    for part in parts:
        whole.feed(part)
        stage = Driver(processors_of(processors.accumulate_by_key(remainder, entry.op))[0], room=3)
        pairs += pickle.loads(pickle.dumps(stage.feed(part[:4]).feed(part[4:]).complete()))
    second = Driver(processors_of(processors.combine_by_key(entry.op))[0], room=2).feed(pairs)
    for found in (whole.complete(), second.complete()):
        results = {key: entry.normal(result) for key, result in found}
        assert len(found) == len(results)
        assert results.keys() == expected.keys()
        assert all(same(results[key], expected[key]) for key in expected)


@every
@few
@given(parts=st.lists(lists, min_size=1, max_size=3))
def test_processors_without_keys_give_the_result_in_one_stage_and_in_two(entry: Entry, parts: list[list[int]]) -> None:
    expected = entry.expected([item for part in parts for item in part])
    whole = Driver(processors_of(processors.aggregate(entry.op))[0])
    accumulators: list[Any] = []
    for part in parts:
        whole.feed(part) if part else None
        first = Driver(processors_of(processors.accumulate(entry.op))[0])
        accumulators += (first.feed(part) if part else first).complete()
    second = Driver(processors_of(processors.combine(entry.op))[0])
    for found in (whole.complete(), (second.feed(accumulators) if accumulators else second).complete()):
        assert same(entry.normal(found[0] if found else None), expected)


@every
def test_operations_pickle(entry: Entry) -> None:
    again = pickle.loads(pickle.dumps(entry.op))
    items = [5, -3, 8, 8, 0, 12]
    assert same(entry.normal(again.aggregate(items)), entry.expected(items))
    assert again.inputs == entry.op.inputs


@every
def test_an_operation_keeps_deduct_only_with_combine(entry: Entry) -> None:
    assert entry.op.combine is not None
    assert entry.op.finish is not None or entry.op.export is not None or entry.op.finisher is None
