"""What is particular to an operation: its errors, order, numbers at the edge of what they can be."""

from __future__ import annotations

import decimal
import math
import operator
from functools import cmp_to_key, partial, reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import aggregate_ops as ops
from shmjet import processors
from shmjet.aggregate_ops import AggregateOperation
from shmjet.testing import verify_processor

numbers = st.one_of(
    st.integers(-5, 5),
    st.sampled_from([2**63 - 1, -(2**63), 2**64, -(2**70), True, 0.1, -0.0, 1e300, 2.5, decimal.Decimal(3)]),
)


def keyed(op: AggregateOperation[Any, Any, Any], pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """Fold (key, number) pairs by the group kernel."""
    table = op.table()
    for at in range(0, len(pairs), 3):
        piece = pairs[at : at + 3]
        op.fold_groups(table, [key for key, _ in piece], [value for _, value in piece])
    return dict(table.items())


# -- arithmetic


def plain_sum(values: list[Any]) -> Any:
    return reduce(operator.add, values, 0)


def outcome(run: Any) -> Any:
    """A result with its type, or the error's type."""
    try:
        result = run()
    except (TypeError, OverflowError) as error:
        return type(error)
    return type(result), repr(result)


@given(st.lists(numbers, max_size=8))
def test_sums_are_those_of_plain_addition_from_left_to_right(values: list[Any]) -> None:
    assert outcome(lambda: ops.summing().aggregate(values)) == outcome(lambda: plain_sum(values))
    expected = outcome(lambda: plain_sum(values))
    assert outcome(lambda: keyed(ops.summing(), [("k", value) for value in values]).get("k", 0)) == expected


@given(st.lists(st.tuples(st.integers(0, 3), numbers), max_size=20))
def test_sums_by_key_are_those_of_a_dict(pairs: list[tuple[int, Any]]) -> None:
    def expected() -> dict[int, Any]:
        table: dict[int, Any] = {}
        for key, value in pairs:
            table[key] = table.get(key, 0) + value
        return table

    assert outcome(lambda: keyed(ops.summing(), pairs)) == outcome(expected)


def test_sums_do_not_end_at_64_bits() -> None:
    values = [2**62] * 7 + [2**200, -1]
    assert ops.summing().aggregate(values) == sum(values)
    assert keyed(ops.summing(), [("k", value) for value in values]) == {"k": sum(values)}
    assert ops.averaging().aggregate([2**63, 2**63 + 2]) == float(2**63 + 1)


def test_the_mean_of_nothing_is_not_a_number() -> None:
    assert math.isnan(ops.averaging().aggregate([]))


def test_the_mean_has_the_type_of_a_division() -> None:
    assert ops.averaging().aggregate([decimal.Decimal(1), decimal.Decimal(2)]) == decimal.Decimal("1.5")
    assert type(ops.averaging().aggregate([2, 4])) is float


def test_the_trend_is_exact_far_from_the_origin() -> None:
    start = 1.7e9
    op = ops.linear_trend(operator.itemgetter(0), operator.itemgetter(1))
    assert op.aggregate([(start + n / 8, 1e12 + 3.0 * n) for n in range(100)]) == 24.0


@pytest.mark.parametrize("points", [[], [(1, 2)], [(3, 1), (3, 5)], [(0.0, 1), (math.inf, 2)], [(0, math.nan), (1, 1)]])
def test_points_without_a_line_have_no_trend(points: list[Any]) -> None:
    assert math.isnan(ops.linear_trend(operator.itemgetter(0), operator.itemgetter(1)).aggregate(points))


def test_a_trend_may_be_steeper_than_a_float() -> None:
    op = ops.linear_trend(operator.itemgetter(0), operator.itemgetter(1))
    assert op.aggregate([(0, 0), (1, 10**400)]) == math.inf
    assert op.aggregate([(0, 0), (1, -(10**400))]) == -math.inf


# -- extremes


def nan_greatest(number: float) -> tuple[bool, float]:
    """A key in whose order NaN is the greatest of all numbers."""
    return (True, 0) if math.isnan(number) else (False, number)


@given(st.lists(st.tuples(st.integers(0, 2), st.one_of(st.integers(-3, 3), st.floats())), max_size=20))
def test_extremes_by_key_are_those_of_min_and_max_item_by_item(pairs: list[tuple[int, Any]]) -> None:
    groups: dict[int, list[Any]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    least = keyed(ops.min_by(), pairs)
    most = keyed(ops.max_by(), pairs)
    assert {key: repr(value) for key, value in least.items()} == {
        key: repr(min(v, key=nan_greatest)) for key, v in groups.items()
    }
    assert {key: repr(value) for key, value in most.items()} == {
        key: repr(max(v, key=nan_greatest)) for key, v in groups.items()
    }


@given(st.lists(st.floats(), max_size=8), st.integers(0, 8))
def test_extremes_of_lists_are_those_of_min_and_max_where_nan_is_greatest(values: list[float], cut: int) -> None:
    def greatest_but_nan(values: list[float], default: None) -> float | None:
        return min(values, key=lambda number: nan_greatest(-number), default=default)

    least, most = partial(min, key=nan_greatest), partial(max, key=nan_greatest)
    for op, fn in ((ops.min_by(), least), (ops.max_by(), most), (ops.min_by(operator.neg), greatest_but_nan)):
        found = op.fold(op.fold(op.create(), values[:cut]), values[cut:])
        finisher = op.finisher
        found = found if finisher is None else finisher(found)
        assert repr(found) == repr(fn(values, default=None))


def test_of_equal_items_the_first_is_taken() -> None:
    words = ["b1", "a1", "a2", "b2"]
    assert ops.min_by(operator.itemgetter(0)).aggregate(words) == "a1"
    assert ops.max_by(operator.itemgetter(0)).aggregate(words) == "b1"
    assert ops.top_n(3, operator.itemgetter(0)).aggregate(words) == ["b1", "b2", "a1"]
    assert ops.bottom_n(1, operator.itemgetter(0)).aggregate(words) == ["a1"]
    assert ops.pick_any().aggregate(words) == "b1"


def test_a_comparator_is_a_key_too() -> None:
    def by_length(a: str, b: str) -> int:
        return len(a) - len(b)

    assert ops.max_by(cmp_to_key(by_length)).aggregate(["a", "ccc", "bb"]) == "ccc"
    assert ops.bottom_n(2, cmp_to_key(by_length)).aggregate(["a", "ccc", "bb"]) == ["a", "bb"]


@given(st.lists(st.lists(st.integers(0, 9), max_size=50), max_size=10), st.integers(1, 5))
def test_the_n_best_are_the_first_of_the_sorted_items(batches: list[list[int]], n: int) -> None:
    everything = [item / 3 for batch in batches for item in batch]
    for op, reverse in ((ops.top_n(n), True), (ops.bottom_n(n), False)):
        accumulator = op.create()
        for at, batch in enumerate(batches):
            values = [item / 3 for item in batch]
            if at % 2:
                accumulator = op.fold(accumulator, values)
            else:
                for value in values:
                    op.accumulate(accumulator, value)
        assert op.exporter
        assert op.exporter(accumulator) == sorted(everything, reverse=reverse)[:n]
        assert op.finisher
        assert op.finisher(accumulator) == sorted(everything, reverse=reverse)[:n]


def test_n_best_keep_few_items() -> None:
    op = ops.top_n(5)
    accumulator = op.create()
    for start in range(0, 100_000, 1000):
        accumulator = op.fold(accumulator, list(range(start, start + 1000)))
        assert len(accumulator) < 100


@pytest.mark.parametrize("make", [ops.top_n, ops.bottom_n])
def test_n_must_be_an_int_of_at_least_1(make: Any) -> None:
    with pytest.raises(ValueError, match=r"n must be at least 1, got 0"):
        make(0)
    with pytest.raises(TypeError, match=r"n must be an int, got float: 2.0"):
        make(2.0)


def test_picking_counts_so_that_it_can_be_deducted() -> None:
    op = ops.pick_any()
    assert op.deduct
    two = op.fold(op.create(), ["a", "b"])
    one = op.fold(op.create(), ["a"])
    left = op.deduct(two, one)
    assert left == ("a", 1)
    assert op.deduct(left, one) == op.create()


# -- containers


def test_a_key_that_comes_twice_is_named_with_both_values() -> None:
    op = ops.to_dict(str.lower, len)
    with pytest.raises(ValueError, match=r"the key 'a' came twice, with the values 1 and 1; give a merge_fn"):
        op.aggregate(["a", "A"])
    assert op.combine
    with pytest.raises(ValueError, match=r"the key 'k' came twice, with the values 1 and None"):
        op.combine({"k": 1}, {"k": None})
    assert ops.to_dict(None, None).aggregate([3, 4]) == {3: 3, 4: 4}
    assert ops.to_dict(abs, None, lambda old, new: (old, new)).aggregate([3, -3]) == {3: (3, -3)}


def test_concatenating_takes_text_only() -> None:
    assert ops.concatenating().aggregate([]) == ""
    assert ops.concatenating(", ", "(", ")").aggregate([]) == "()"
    for run in (lambda: ops.concatenating().aggregate(["a", 5]), lambda: ops.concatenating().accumulate([], 5)):
        with pytest.raises(TypeError, match=r"expected text, got int: 5; use mapping\(str"):
            run()
    with pytest.raises(TypeError, match=r"suffix must be a str, got NoneType"):
        ops.concatenating(",", "", None)  # type: ignore[arg-type]


def test_a_collection_needs_methods_for_one_and_for_many() -> None:
    with pytest.raises(TypeError, match="a tuple has neither"):
        ops.to_collection(tuple)


def test_sorting_is_stable() -> None:
    assert ops.sorting(abs).aggregate([2, -1, 1, -2]) == [-1, 1, 2, -2]
    assert ops.sorting(abs, reverse=True).aggregate([2, -1, 1, -2]) == [2, -2, -1, 1]


# -- around others


def test_a_key_whose_items_are_all_left_out_has_a_result() -> None:
    for inner, empty in (
        (ops.counting(), 0),
        (ops.to_list(), []),
        (ops.all_of(ops.counting(), ops.to_set()), (0, set())),
    ):
        for op in (ops.filtering(lambda pair: pair[1] > 2, inner), ops.mapping(lambda pair: None, inner)):
            supplier = processors.aggregate_by_key(operator.itemgetter(0), op)
            verify_processor(supplier).inputs([("a", 1), ("b", 0)]).expect([("a", empty), ("b", empty)])
        supplier = processors.aggregate_by_key(operator.itemgetter(0), ops.flat_mapping(lambda _: (), inner))
        verify_processor(supplier).inputs([("a", 1)]).expect([("a", empty)])


def test_a_mapping_to_none_leaves_the_item_out() -> None:
    assert ops.mapping({"a": 1}.get, ops.to_list()).aggregate(["a", "b", "a"]) == [1, 1]


def test_an_identity_that_all_keys_would_share_is_refused() -> None:
    with pytest.raises(TypeError, match="got a list, which all keys would share"):
        ops.reducing([], None, operator.add)


def test_a_group_goes_when_its_last_item_is_deducted_and_not_before() -> None:
    op = ops.grouping_by(abs, ops.summing())
    assert op.deduct
    assert op.combine
    groups = op.fold(op.create(), [1, -1, 2])
    op.deduct(groups, op.fold(op.create(), [2]))
    assert op.finisher
    assert op.finisher(groups) == {1: 0}
    op.deduct(groups, op.fold(op.create(), [-1, 1]))
    assert groups == op.create()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ops.summing(5), "summing: fn must be callable or None, got int: 5"),
        (lambda: ops.averaging(3), "averaging: fn must be callable or None, got int: 3"),
        (lambda: ops.min_by(1), "min_by: key must be callable or None"),
        (lambda: ops.max_by(1), "max_by: key must be callable or None"),
        (lambda: ops.top_n(1, 2), "top_n: key must be callable or None"),
        (lambda: ops.linear_trend(len, None), "linear_trend: y_fn must be callable, got NoneType"),
        (lambda: ops.to_dict(1, None), "to_dict: key_fn must be callable or None"),
        (lambda: ops.to_dict(None, None, 1), "to_dict: merge_fn must be callable"),
        (lambda: ops.mapping(None, ops.counting()), "mapping: fn must be callable"),
        (lambda: ops.mapping(len, len), "mapping: expected an AggregateOperation, got type|builtin"),
        (lambda: ops.filtering(3, ops.counting()), "filtering: predicate must be callable"),
        (lambda: ops.flat_mapping(3, ops.counting()), "flat_mapping: fn must be callable"),
        (lambda: ops.grouping_by(3), "grouping_by: key_fn must be callable or None"),
        (lambda: ops.grouping_by(None, 3), "grouping_by: expected an AggregateOperation, got int: 3"),
        (lambda: ops.reducing(0, None, 3), "reducing: combine must be callable"),
        (lambda: ops.reducing(0, None, max, 3), "reducing: deduct must be callable"),
        (lambda: ops.sorting(3), "sorting: key must be callable or None"),
        (lambda: ops.to_collection(3), "to_collection: create must be callable"),
        (lambda: ops.all_of(ops.counting(), 3), "all_of: expected an AggregateOperation, got int: 3"),
        (lambda: ops.all_of(ops.counting(), ops.counting(), finish=3), "all_of: finish must be callable"),
        (lambda: ops.counting().and_then(3), "and_then: expected a function of the result, got 3"),
        (lambda: ops.counting().with_combining_accumulate_fn(3), "expected a function, got 3"),
    ],
)
def test_what_cannot_be_called_is_named(make: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        make()
