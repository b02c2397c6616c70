"""Every operation, with plain Python that computes the same from a list; the laws are checked on these."""

from __future__ import annotations

import math
import operator
import statistics
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from shmjet import aggregate_ops as ops
from shmjet.aggregate_ops import AggregateOperation


@dataclass(frozen=True)
class Entry:
    """An operation on ints, and its result on a list."""

    op: AggregateOperation[Any, Any, Any]
    expected: Callable[[list[int]], Any]
    normal: Callable[[Any], Any] = lambda result: result
    """Makes results comparable that depend on the order of items."""


def third(n: int) -> int:
    return n // 3


def is_even(n: int) -> bool:
    return n % 2 == 0


def even_or_none(n: int) -> int | None:
    return n if n % 2 == 0 else None


def digits(n: int) -> list[int]:
    return [int(digit) for digit in str(abs(n)) if digit != "0"]


def square(n: int) -> int:
    return n * n


def spread(greatest: int | None, least: int | None) -> int | None:
    return None if greatest is None or least is None else greatest - least


def grouped(items: list[int]) -> dict[int, list[int]]:
    groups: dict[int, list[int]] = {}
    for item in items:
        groups.setdefault(third(item), []).append(item)
    return groups


def slope(items: list[int]) -> float:
    points = [(item, item * item) for item in items]
    n = len(points)
    xs, ys = sum(x for x, _ in points), sum(y for _, y in points)
    down = n * sum(x * x for x, _ in points) - xs * xs
    return float(Fraction(n * sum(x * y for x, y in points) - xs * ys, down)) if down else math.nan


def mean(items: list[int]) -> float:
    return statistics.fmean(items) if items else math.nan


def add_two(total: int, count: int) -> tuple[int, int]:
    return total, count


def tagged() -> AggregateOperation[Any, Any, Any]:
    builder = ops.all_of_builder()
    builder.add(ops.counting())
    builder.add(ops.to_list())
    return builder.build()


class Tags:
    """What to make of the results of a builder."""

    @staticmethod
    def values(results: ops.ItemsByTag) -> Any:
        return [sorted(value) if isinstance(value, list) else value for value in results.values()]


CATALOGUE: dict[str, Entry] = {
    "counting": Entry(ops.counting(), len),
    "summing": Entry(ops.summing(), sum),
    "summing_fn": Entry(ops.summing(square), lambda items: sum(map(square, items))),
    "averaging": Entry(ops.averaging(), mean),
    "averaging_fn": Entry(ops.averaging(third), lambda items: mean(list(map(third, items)))),
    "min_by": Entry(ops.min_by(), lambda items: min(items, default=None)),
    "max_by": Entry(ops.max_by(), lambda items: max(items, default=None)),
    "min_by_key": Entry(ops.min_by(operator.neg), lambda items: max(items, default=None)),
    "max_by_key": Entry(ops.max_by(square), lambda items: max(map(abs, items), default=None), lambda n: n and abs(n)),
    "top_n": Entry(ops.top_n(3), lambda items: sorted(items, reverse=True)[:3]),
    "bottom_n_key": Entry(ops.bottom_n(2, operator.neg), lambda items: sorted(items, reverse=True)[:2]),
    "linear_trend": Entry(ops.linear_trend(int, square), slope),
    "concatenating": Entry(
        ops.mapping(str, ops.concatenating(",", "<", ">")),
        lambda items: sorted(map(str, items)),
        lambda text: sorted(text[1:-1].split(",")) if text != "<>" else [],
    ),
    "to_list": Entry(ops.to_list(), sorted, sorted),
    "to_set": Entry(ops.to_set(), set),
    "to_collection": Entry(ops.to_collection(deque), sorted, sorted),
    "to_dict": Entry(
        ops.to_dict(third, square, operator.add),
        lambda items: {key: sum(map(square, group)) for key, group in grouped(items).items()},
    ),
    "grouping_by": Entry(
        ops.grouping_by(third),
        lambda items: {key: sorted(group) for key, group in grouped(items).items()},
        lambda found: {key: sorted(group) for key, group in found.items()},
    ),
    "grouping_by_counting": Entry(
        ops.grouping_by(third, ops.counting()), lambda items: dict(Counter(map(third, items)))
    ),
    "grouping_by_twice": Entry(
        ops.grouping_by(third, ops.grouping_by(is_even, ops.summing())),
        lambda items: {
            key: {even: sum(n for n in group if is_even(n) == even) for even in set(map(is_even, group))}
            for key, group in grouped(items).items()
        },
    ),
    "reducing": Entry(
        ops.reducing(0, square, operator.add, operator.sub), lambda items: sum(square(item) for item in items)
    ),
    "mapping": Entry(ops.mapping(even_or_none, ops.counting()), lambda items: len(list(filter(is_even, items)))),
    "mapping_to_list": Entry(ops.mapping(third, ops.to_list()), lambda items: sorted(map(third, items)), sorted),
    "filtering": Entry(ops.filtering(is_even, ops.summing()), lambda items: sum(filter(is_even, items))),
    "filtering_counting": Entry(
        ops.filtering(is_even, ops.counting()), lambda items: len(list(filter(is_even, items)))
    ),
    "flat_mapping": Entry(
        ops.flat_mapping(digits, ops.counting()), lambda items: sum(len(digits(item)) for item in items)
    ),
    "pick_any": Entry(ops.pick_any(), lambda items: bool(items), lambda item: item is not None),
    "sorting": Entry(ops.sorting(operator.neg), lambda items: sorted(items, reverse=True)),
    "sorting_reverse": Entry(ops.sorting(reverse=True), lambda items: sorted(items, reverse=True)),
    "all_of2": Entry(
        ops.all_of(ops.counting(), ops.averaging()), lambda items: (len(items), mean(items)), lambda found: found
    ),
    "all_of3": Entry(
        ops.all_of(ops.max_by(), ops.min_by(), ops.counting()).and_then(operator.itemgetter(0, 1)),
        lambda items: (max(items, default=None), min(items, default=None)),
    ),
    "all_of_finish": Entry(
        ops.all_of(ops.max_by(), ops.min_by(), finish=spread), lambda items: max(items) - min(items) if items else None
    ),
    "all_of_nested": Entry(
        ops.all_of(
            ops.filtering(is_even, ops.counting()), ops.all_of(ops.summing(), ops.counting()), ops.to_list()
        ).and_then(operator.itemgetter(0, 1)),
        lambda items: (len(list(filter(is_even, items))), (sum(items), len(items))),
    ),
    "all_of_builder": Entry(tagged(), lambda items: [len(items), sorted(items)], Tags.values),
    "and_then": Entry(ops.summing().and_then(str), lambda items: str(sum(items))),
    "with_identity_finish": Entry(ops.averaging().with_identity_finish(), lambda items: (sum(items), len(items))),
}

SINGLE = {name: entry for name, entry in CATALOGUE.items() if entry.op.inputs == 1}


def same(a: Any, b: Any) -> bool:
    """Equality in which NaN equals itself."""
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (a != a and b != b)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)
