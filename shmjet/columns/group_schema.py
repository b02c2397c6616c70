"""The columns of a group-by: which dtypes a native table takes, how they widen, and what its states are called.

Batches of one stream may differ in their dtypes a little (int32 here, int64 there), and a column that is null all
through has whatever dtype its maker gave it. Here it is decided what fits. Must not know of tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from shmjet.columns.aggregates import Aggregate
from shmjet.ring.batch import Batch, stored_column
from shmjet.ring.column_keys import date_kind
from shmjet.ring.errors import BatchError

Dtype: TypeAlias = np.dtype[Any] | str
"""A numpy dtype, or "text" or "bytes" for `Text` columns."""

INT64: Final = np.dtype(np.int64)
FLOAT64: Final = np.dtype(np.float64)

STATE_SEPARATOR: Final = "#"
"""Between an aggregate's name and that of a part of its state, in the names of state columns."""

_NUMBERS: Final = "a column of bool, integers or floats of up to 64 bits"
_ORDERED: Final = "a column of numbers of up to 64 bits, dates, or text"
_KEYS: Final = "bool, integers, floats of up to 64 bits, dates, durations, text or bytes"


def key_class(name: str, dtype: Dtype) -> str:
    """Return the letter that a `GroupTable` has for a key of this dtype. Raises BatchError when it takes none."""
    if isinstance(dtype, str) or dtype.kind in "SU":
        return "t"
    if dtype.kind in "biumM":
        return "i"
    if dtype.kind == "f" and dtype.itemsize <= 8:
        return "f"
    raise BatchError(f"column {name!r} cannot be a key: expected {_KEYS}, found {dtype}")


def value_class(dtype: Dtype) -> str:
    """Return the letter that a `GroupTable` has for values of this dtype in min, max, first and last."""
    if isinstance(dtype, str) or dtype.kind == "S":
        return "t"
    if dtype.kind == "U":
        return "U"
    if dtype.kind == "u" and dtype.itemsize == 8:
        return "u"
    if dtype.kind in "biu":
        return "i"
    if dtype.kind in "mM":
        return "d"
    return "f" if dtype.kind == "f" and dtype.itemsize <= 8 else "x"


def state_dtype(result: str, aggregate: Aggregate, dtype: Dtype) -> Dtype:
    """Return the dtype of an aggregate's values over a column of `dtype`: that of the column or of its sum.

    Raises:
        BatchError: there is no such aggregate of that dtype.
    """
    function, column = aggregate.function, aggregate.column
    kind = "t" if isinstance(dtype, str) else dtype.kind
    if function == "count":
        return INT64
    if function in ("sum", "mean", "var"):
        if kind not in "biuf" or (kind == "f" and not isinstance(dtype, str) and dtype.itemsize > 8):
            raise BatchError(
                f"column {column!r} of dtype {dtype} has no {function} (result {result!r}): expected {_NUMBERS}"
            )
        return FLOAT64 if kind == "f" or function != "sum" else INT64
    if function in ("min", "max") and value_class(dtype) == "x":
        raise BatchError(
            f"column {column!r} of dtype {dtype} has no {function} (result {result!r}): expected {_ORDERED}"
        )
    return dtype


def widened(have: Dtype, found: Dtype) -> Dtype | None:
    """Return the dtype that holds the values of both without loss; None when they are of different kinds."""
    if have == found:
        return have
    if isinstance(have, str) or isinstance(found, str):
        return None
    if {have.kind, found.kind} <= set("biu"):
        both = np.result_type(have, found)
        return both if both.kind in "biu" else None  # uint64 with a signed one gives a float
    if have.kind != found.kind or have.kind == "V":
        return None
    try:
        return np.result_type(have, found)
    except TypeError:
        return None  # months and days, say


def widened_key(have: Dtype, found: Dtype) -> Dtype | None:
    """As `widened`, for keys: None also where no key of one is a key of the other, so that edges send them apart."""
    both = widened(have, found)
    if isinstance(have, str) or isinstance(found, str) or have.kind not in "mM":
        return both
    return both if both is not None and date_kind(have) == date_kind(found) else None


def parts(aggregate: Aggregate, dtype: Dtype) -> tuple[tuple[str, Dtype], ...]:
    """Return the names and dtypes of the parts of an aggregate's state, in the order of a `GroupTable`'s fields."""
    if aggregate.function == "count":
        return (("n", INT64),)
    if aggregate.function == "sum":
        return (("sum", dtype), ("compensation", FLOAT64)) if dtype == FLOAT64 else (("sum", dtype),)
    if aggregate.function == "mean":
        return ("sum", FLOAT64), ("compensation", FLOAT64), ("n", INT64)
    if aggregate.function == "var":
        return ("n", INT64), ("mean", FLOAT64), ("squares", FLOAT64)
    return ((aggregate.function, dtype),)


def state_name(result: str, part: str) -> str:
    """Return the name of a state column."""
    return f"{result}{STATE_SEPARATOR}{part}"


def state_column(result: str, aggregate: Aggregate) -> str:
    """Return the state column whose dtype tells that of the aggregate's values."""
    return state_name(result, parts(aggregate, INT64)[0][0])


def table_class(aggregate: Aggregate, dtype: Dtype) -> str:
    """Return the letter that a `GroupTable` has for an aggregate whose values are of `dtype`."""
    if aggregate.function == "count":
        return "-"
    if aggregate.function == "sum":
        return "f" if dtype == FLOAT64 else "i"
    return "n" if aggregate.function in ("mean", "var") else value_class(dtype)


def check_names(keys: Sequence[str], aggregates: Mapping[str, Aggregate]) -> None:
    """Raise BatchError when a name is empty, no str, or there twice."""
    for name in (*keys, *aggregates):
        if not isinstance(name, str) or not name:
            raise BatchError(f"names of keys and results must be non-empty str, got {name!r}")
    if len(set(keys)) < len(keys):
        raise BatchError(f"a key column is named twice: {list(keys)}")
    for result, aggregate in aggregates.items():
        if not isinstance(aggregate, Aggregate):
            raise BatchError(f"result {result!r} must be an aggregate such as sum_('column'), got {aggregate!r:.80}")
        taken = {result, *(state_name(result, part) for part, _ in parts(aggregate, FLOAT64))}
        for name in keys:
            if name in taken:
                raise BatchError(f"result {result!r} would have the name of the key column {name!r}; name it otherwise")


def column_dtype(batch: Batch, name: str) -> Dtype:
    """Return a column's dtype. Raises BatchError when the batch has no such column."""
    if name not in batch:
        raise BatchError(f"expected a column {name!r}, found {list(batch.names)}")
    return stored_column(batch, name)[0].dtype
