"""The columns of states: made of rows, converted from one form into another, and turned into results.

A `GroupTable` keeps what its columns need: integers, floats, or, where a column has had both, the nearest float and
what is left of an integer. Which form it is depends on what has come so far; here states of one form become those of
another without losing anything, so that results do not depend on when that happened. Must not know of tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from shmjet.columns.aggregates import Aggregate
from shmjet.columns.group_schema import StateForm, parts, state_name
from shmjet.columns.promotion import FLOAT64, UINT64, converted, float_parts
from shmjet.data.batch import Batch
from shmjet.data.column import Values, not_exact, physical
from shmjet.data.errors import BatchError
from shmjet.data.text import Mask

Part: TypeAlias = tuple[Values, Mask | None]

_SUM_UNIT: Final = 64
"""Sums that leave the range of a double go on in units of 2 to this power; see `columns/group_aggregates.h`."""

_SQUARE_UNIT: Final = 600
_IN_UNITS: Final = 1 << 62
"""A flag in the count of a variance: its squares are in units of 2 to the power of twice `_SQUARE_UNIT`."""


# -- of rows -----------------------------------------------------------------------------------------------------------


def states_of_rows(batch: Batch, aggregate: Aggregate, kept: StateForm) -> list[Part]:
    """Return each row's value as a state of its own.

    Args:
        batch: rows.
        aggregate: whose states.
        kept: in what form.

    Raises:
        BatchError: a value cannot be held exactly.
    """
    rows = batch.num_rows
    columns, masks = batch.parts()
    if aggregate.column is None:
        return [(np.ones(rows, np.int64), None)]
    values, mask = physical(aggregate.column, columns[aggregate.column]), masks.get(aggregate.column)
    if aggregate.function == "count":
        return [(np.ones(rows, np.int64) if mask is None else mask.astype(np.int64), None)]
    if aggregate.function not in ("sum", "mean", "var", "std"):
        form = StateForm(values.dtype, kept.is_known)
        return _values_as(aggregate, [(values, mask)], form, kept)
    assert isinstance(values, np.ndarray)
    made: list[Values]
    if kept.dtype != FLOAT64:
        low, high = _wide(values)
        made = [low, high]
    else:
        near, rest = float_parts(values)
        made = [near, rest.astype(np.float64)]
    if aggregate.function == "mean":
        made.append(np.ones(rows, np.int64))
    elif aggregate.function in ("var", "std"):
        zeros = [np.zeros(rows)] * (1 if kept.dtype == FLOAT64 else 2)  # the rest of a float is its mean
        made = [np.ones(rows, np.int64), *made, *zeros]
    return [(column, mask if place == 0 else None) for place, column in enumerate(made)]


def _wide(values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Return integers as the two words of 128 bits."""
    if values.dtype == UINT64:
        return values, np.zeros(len(values), np.int64)
    low = values.astype(np.int64)
    return low, low >> 63


# -- from form to form -------------------------------------------------------------------------------------------------


def states_as(
    states: Batch, result: str, aggregate: Aggregate, found: StateForm, kept: StateForm, separator: str
) -> list[Part]:
    """Return the columns of a state in the form that a table keeps.

    Args:
        states: what `Groups.states` gave.
        result: of the aggregate.
        aggregate: whose states.
        found: the form that they have.
        kept: the form that is wanted.
        separator: that is in the names of state columns.

    Raises:
        BatchError: a column is missing, or a value cannot be held exactly.
    """
    columns, masks = states.parts()
    given: list[Part] = []
    for part, _ in parts(aggregate, found):
        name = state_name(result, part, separator)
        if name not in columns:
            raise BatchError(f"expected states of the groups with the result {result!r}, found columns {list(columns)}")
        given.append((columns[name], masks.get(name)))
    if aggregate.function == "count":
        return given
    if aggregate.function not in ("sum", "mean", "var", "std"):
        return _values_as(aggregate, given, found, kept)
    if (found.dtype == FLOAT64) == (kept.dtype == FLOAT64):
        return given
    if found.dtype == FLOAT64:  # all null: only then integers come later
        rows = states.num_rows
        return [
            (np.zeros(rows, dtype), given[0][1] if at == 0 else None)
            for at, (_, dtype) in enumerate(parts(aggregate, kept))
        ]
    return _sums_as_floats(aggregate, given)


def _sums_as_floats(aggregate: Aggregate, given: Sequence[Part]) -> list[Part]:
    arrays: list[Any] = [values for values, _ in given]
    mask = given[0][1]
    if aggregate.function in ("var", "std"):
        count, low, high, mean, squares = arrays
        near, rest = _floats_and_rests(low, high)
        return [(count, mask), (near, None), (mean + rest, None), (squares, None)]
    near, rest = _floats_and_rests(arrays[0], arrays[1])
    # The lowest bit of an error says that it is in units.
    error = (rest.view(np.int64) & ~1).view(np.float64)
    return [(near, mask), (error, None), *((values, None) for values in arrays[2:])]


def _integers(low: npt.NDArray[Any], high: npt.NDArray[Any]) -> list[int]:
    return [(h << 64) | low_ for low_, h in zip(low.view(np.uint64).tolist(), high.tolist(), strict=True)]


def _floats_and_rests(low: npt.NDArray[Any], high: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    totals = _integers(low, high)
    near = [float(total) for total in totals]
    rest = [float(total - int(each)) for total, each in zip(totals, near, strict=True)]
    return np.array(near, np.float64), np.array(rest, np.float64)


def _values_as(aggregate: Aggregate, given: Sequence[Part], found: StateForm, kept: StateForm) -> list[Part]:
    """Bring the value of a minimum, maximum, first or last into the form that is kept."""
    values, mask = given[0]
    if not kept.is_mixed:
        return [(converted(str(aggregate.column), values, mask, kept.dtype), mask)]
    if found.is_mixed:
        return list(given)
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "biuf":  # all null
        return [(np.zeros(len(values)), mask), (np.zeros(len(values), np.int64), None)]
    near, rest = float_parts(values)
    return [(near, mask), (rest, None)]


# -- results -----------------------------------------------------------------------------------------------------------


def finished(result: str, aggregate: Aggregate, kept: StateForm, fields: Sequence[Part]) -> Part:
    """Return an aggregate's result of the parts of its state.

    Raises:
        BatchError: a sum of integers, or a value together with others, does not fit the dtype of the result.
    """
    arrays: list[Any] = [values for values, _ in fields]
    mask = fields[0][1]
    function, is_float = aggregate.function, kept.dtype == FLOAT64
    if function == "sum" and aggregate.is_wide:
        return np.stack([words.view(np.uint64) for words in arrays], axis=1).reshape(-1).view("V16"), mask
    if function == "sum":
        return (_float_total(arrays[0], arrays[1], 1) if is_float else _integer_total(result, aggregate, *arrays)), mask
    if function == "mean":
        count = arrays[2]
        whole = np.maximum(count, 1)
        values = _float_total(arrays[0], arrays[1], whole) if is_float else _integer_mean(arrays[0], arrays[1], whole)
        return _where(count > 0, values)
    if function in ("var", "std"):
        return _variance(arrays[0], arrays[-1], aggregate.ddof, is_root=function == "std")
    if kept.is_mixed:
        return _unmixed(str(aggregate.column), arrays[0], arrays[1], kept), mask
    return fields[0]


def _where(valid: Mask, values: npt.NDArray[np.float64]) -> Part:
    return np.where(valid, values, 0.0), None if valid.all() else valid


def _float_total(
    sums: npt.NDArray[np.float64], errors: npt.NDArray[np.float64], count: npt.NDArray[np.int64] | int
) -> npt.NDArray[np.float64]:
    """Add the rounding errors, of which there are none where a sum is infinite, and divide."""
    words = errors.view(np.int64)
    if not (words & 1).any() and np.isfinite(sums).all():  # nearly always; all of the below costs six times as much
        with np.errstate(all="ignore"):
            return (sums + errors) / count
    units = np.where(words & 1, _SUM_UNIT, 0)
    exact = (words & ~1).view(np.float64)
    with np.errstate(all="ignore"):
        total = np.where(np.isfinite(sums), sums + np.where(np.isfinite(sums), exact, 0.0), sums) / count
        return np.where(units > 0, np.ldexp(total, units), total)


def _integer_total(
    result: str, aggregate: Aggregate, low: npt.NDArray[Any], high: npt.NDArray[np.int64]
) -> npt.NDArray[Any]:
    fits = high == (0 if low.dtype == UINT64 else low >> 63)
    if not fits.all():
        raise BatchError(
            f"the sum of column {aggregate.column!r} (result {result!r}) leaves {low.dtype}; "
            "make the column float64 if that is precise enough"
        )
    return low


def _integer_mean(low: npt.NDArray[Any], high: npt.NDArray[np.int64], count: npt.NDArray[np.int64]) -> Any:
    words = low.view(np.int64)
    if (high == words >> 63).all() and (np.abs(words) < 1 << 53).all():
        return words / count
    return np.array([total / n for total, n in zip(_integers(low, high), count.tolist(), strict=True)], np.float64)


def _variance(words: npt.NDArray[np.int64], squares: npt.NDArray[np.float64], ddof: int, *, is_root: bool) -> Part:
    units = np.where(words & _IN_UNITS, 2 * _SQUARE_UNIT, 0)
    count = (words & ~_IN_UNITS) - ddof
    with np.errstate(all="ignore"):
        values = squares / np.maximum(count, 1)
        if is_root:  # a deviation may be in range where its square is not
            values, units = np.sqrt(values), units // 2
        values = np.ldexp(values, units)
    return _where(count > 0, values)


def _unmixed(
    name: str, near: npt.NDArray[np.float64], rest: npt.NDArray[np.int64], kept: StateForm
) -> npt.NDArray[Any]:
    if kept.dtype == UINT64:
        whole = [int(value) + left for value, left in zip(near.tolist(), rest.tolist(), strict=True)]
        if whole and min(whole) < 0:
            raise not_exact(name, min(whole), UINT64)
        return np.array(whole, np.uint64)
    if rest.any():
        at = int(np.flatnonzero(rest)[0])
        raise not_exact(name, int(near[at]) + int(rest[at]), FLOAT64)
    return near.astype(kept.dtype)
