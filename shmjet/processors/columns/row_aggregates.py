"""Aggregates of columns over single rows, for windows: what `shmjet.columns.groups` does for whole batches.

The values are Python's, so integers do not overflow before they are in a column again. Must not know windows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from shmjet.aggregate_ops import AggregateOperation
from shmjet.columns.aggregates import Aggregate
from shmjet.core.column_key import column

Row = Mapping[str, Any]
State = list[Any]


class _Function(NamedTuple):
    """How one aggregate is computed; a state is a list, which the functions change."""

    create: Callable[[], State]
    add: Callable[[State, Any, int], None]
    """Adds a value that is not null, with its time."""
    merge: Callable[[State, State], None]
    result: Callable[[State, Aggregate], Any]


def _nothing() -> State:
    return [None]


def _value(state: State, aggregate: Aggregate) -> Any:
    return state[0]


def _add_sum(state: State, value: Any, time: int) -> None:
    state[0] = +value if state[0] is None else state[0] + value


def _zero() -> State:
    return [0]


def _add_count(state: State, value: Any, time: int) -> None:
    state[0] += 1


def _add_min(state: State, value: Any, time: int) -> None:
    have = state[0]
    if have is None or have != have or value < have:
        state[0] = value


def _add_max(state: State, value: Any, time: int) -> None:
    have = state[0]
    if have is None or value != value or value > have:
        state[0] = value


def _no_moments() -> State:
    return [0, 0.0, 0.0]


def _add_moments(state: State, value: Any, time: int) -> None:
    count, mean, squares = state
    count += 1
    away = float(value) - mean
    mean += away / count
    state[:] = count, mean, squares + away * (float(value) - mean)


def _merge_moments(state: State, other: State) -> None:
    (count, mean, squares), (more, other_mean, other_squares) = state, other
    if more:
        total, away = count + more, other_mean - mean
        state[:] = total, mean + away * more / total, squares + other_squares + away * away * count * more / total


def _variance(state: State, aggregate: Aggregate) -> Any:
    count, _, squares = state
    return squares / (count - aggregate.ddof) if count > aggregate.ddof else None


def _deviation(state: State, aggregate: Aggregate) -> Any:
    variance = _variance(state, aggregate)
    return None if variance is None else math.sqrt(variance)


def _values() -> State:
    return []


def _add_value(state: State, value: Any, time: int) -> None:
    state.append(value)


def _quantile(state: State, aggregate: Aggregate) -> Any:
    if not state:
        return None
    found = sorted(state, key=lambda value: (value != value, value))
    place = aggregate.q * (len(found) - 1)
    low = math.floor(place)
    one, part = float(found[low]), place - low
    two = float(found[low + 1]) if part else one
    return one if one == two else one + (two - one) * part


def _no_set() -> State:
    return [set()]


def _add_distinct(state: State, value: Any, time: int) -> None:
    state[0].add(math.nan if value != value else value)  # one object: sets look at identity first


def _merge_distinct(state: State, other: State) -> None:
    for value in other[0]:
        _add_distinct(state, value, 0)


def _distinct(state: State, aggregate: Aggregate) -> Any:
    return len(state[0])


def _listed(state: State, aggregate: Aggregate) -> Any:
    return list(state)


def _custom(state: State, aggregate: Aggregate) -> Any:
    from shmjet.data.batch import Batch

    assert aggregate.fn is not None
    return aggregate.fn(Batch.from_rows(state))


def _add_mean(state: State, value: Any, time: int) -> None:
    state[0] += value
    state[1] += 1


def _merge_mean(state: State, other: State) -> None:
    state[0] += other[0]
    state[1] += other[1]


def _mean(state: State, aggregate: Aggregate) -> Any:
    return float(state[0]) / state[1] if state[1] else None


def _no_time() -> State:
    return [None, 0]


def _add_first(state: State, value: Any, time: int) -> None:
    if state[0] is None or time < state[1]:
        state[:] = value, time


def _add_last(state: State, value: Any, time: int) -> None:
    if state[0] is None or time >= state[1]:
        state[:] = value, time


def _no_extreme() -> State:
    return []


def _add_extreme(state: State, value: Any, time: int, takes_greatest: bool) -> None:
    """Add a pair of what is wanted and what is compared; of equals the first in event time stays."""
    if not state:
        state[:] = *value, time
        return
    _, have, have_time = state
    found = value[1]
    if have != have or found != found:  # NaN is greater than all others
        is_equal, is_greater = have != have and found != found, found != found
    else:
        is_equal, is_greater = found == have, found > have
    if time < have_time if is_equal else is_greater == takes_greatest:
        state[:] = *value, time


def _extreme(takes_greatest: bool) -> _Function:
    def add(state: State, value: Any, time: int) -> None:
        _add_extreme(state, value, time, takes_greatest)

    def merge(state: State, other: State) -> None:
        if other:
            _add_extreme(state, other[:2], other[2], takes_greatest)

    return _Function(_no_extreme, add, merge, lambda state, _: state[0] if state else None)


def _merging(add: Callable[[State, Any, int], None]) -> Callable[[State, State], None]:
    def merge(state: State, other: State) -> None:
        if other[0] is not None:
            add(state, other[0], other[1] if len(other) > 1 else 0)

    return merge


def _merge_count(state: State, other: State) -> None:
    state[0] += other[0]


_FUNCTIONS: dict[str, _Function] = {
    "sum": _Function(_nothing, _add_sum, _merging(_add_sum), _value),
    "count": _Function(_zero, _add_count, _merge_count, _value),
    "min": _Function(_nothing, _add_min, _merging(_add_min), _value),
    "max": _Function(_nothing, _add_max, _merging(_add_max), _value),
    "mean": _Function(lambda: [0, 0], _add_mean, _merge_mean, _mean),
    "var": _Function(_no_moments, _add_moments, _merge_moments, _variance),
    "std": _Function(_no_moments, _add_moments, _merge_moments, _deviation),
    "quantile": _Function(_values, _add_value, list.extend, _quantile),
    "n_unique": _Function(_no_set, _add_distinct, _merge_distinct, _distinct),
    "list": _Function(_values, _add_value, list.extend, _listed),
    "custom": _Function(_values, _add_value, list.extend, _custom),
    "min_by": _extreme(False),
    "max_by": _extreme(True),
    "first": _Function(_no_time, _add_first, _merging(_add_first), _value),
    "last": _Function(_no_time, _add_last, _merging(_add_last), _value),
}


class _Aggregation:
    """The primitives of an operation over `(time, row)` items; a class, so that it pickles."""

    def __init__(self, aggregates: tuple[Aggregate, ...]) -> None:
        self.aggregates = aggregates

    def create(self) -> list[State]:
        return [_FUNCTIONS[aggregate.function].create() for aggregate in self.aggregates]

    def accumulate(self, states: list[State], item: tuple[int, Row]) -> None:
        time, row = item
        is_dict = type(row) is dict
        for aggregate, state in zip(self.aggregates, states, strict=True):
            value: Any = row if aggregate.fn is not None else True
            if aggregate.column is not None:
                name = aggregate.column
                value = row[name] if is_dict and name in row else column(name)(row)
            if aggregate.by is not None:
                by = row[aggregate.by] if is_dict and aggregate.by in row else column(aggregate.by)(row)
                value = None if by is None else (value, by)
            if value is not None or aggregate.function == "list":
                _FUNCTIONS[aggregate.function].add(state, value, time)

    def combine(self, states: list[State], others: list[State]) -> None:
        for aggregate, state, other in zip(self.aggregates, states, others, strict=True):
            _FUNCTIONS[aggregate.function].merge(state, other)

    def export(self, states: list[State]) -> tuple[Any, ...]:
        return tuple(
            _FUNCTIONS[aggregate.function].result(state, aggregate)
            for aggregate, state in zip(self.aggregates, states, strict=True)
        )


def rows_operation(*aggregates: Aggregate) -> AggregateOperation[Any, Any, Any]:
    """Return the operation that computes aggregates of rows.

    Its items are `(time, row)` pairs, a row being a mapping of names to values or a named tuple; `first` and `last` go
    by the time, and so do `min_by` and `max_by` among equals. Its result is the tuple of the values.

    Args:
        aggregates: from `shmjet.columns`.

    Example:
        >>> from shmjet.columns import count, last, sum_
        >>> op = rows_operation(sum_("v"), count(), last("v"))
        >>> op.export(op.fold(op.create(), [(20, {"v": 5}), (10, {"v": 3}), (30, {"v": None})]))
        (8, 3, 5)

    Raises:
        TypeError: an aggregate is over an expression, which only batches have.
    """
    for aggregate in aggregates:
        if aggregate.expressions:
            raise TypeError(
                f"{aggregate!r}: in a window an aggregate is over a column; compute the expression before it"
            )
    made = _Aggregation(aggregates)
    return AggregateOperation(made.create, made.accumulate, made.combine, export=made.export)
