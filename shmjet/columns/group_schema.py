"""The columns of a group-by: the dtypes that a native table takes, how they widen, and the names of its states.

Batches of one stream may differ in their dtypes (int32 here, floats there), and a column that is null all through has
whatever dtype its maker gave it. Here it is decided what is kept of them, so that neither the order of batches nor who
gets which matters. Must not know of tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from shmjet.columns.aggregates import Aggregate
from shmjet.columns.promotion import FLOAT64, INT64, UINT64, is_known, promoted
from shmjet.data.batch import Batch
from shmjet.data.column import physical
from shmjet.data.column_keys import date_kind
from shmjet.data.column_types import ColumnType, Kind
from shmjet.data.errors import BatchError

Dtype: TypeAlias = np.dtype[Any] | str
"""A numpy dtype, or "text" or "bytes" for `Text` columns."""

_SEPARATOR: Final = "#"

AS: Final = "as"
"""The part of a mixed state whose dtype is that of the result."""

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
    """Return what an aggregate keeps of a column of `dtype`: the dtype of its values, or for sums that of the result.

    Raises:
        BatchError: there is no such aggregate of that dtype.
    """
    function, column = aggregate.function, aggregate.column
    kind = "t" if isinstance(dtype, str) else dtype.kind
    if function == "count":
        return INT64
    if function in ("sum", "mean", "var", "std"):
        if kind not in "biuf" or (kind == "f" and not isinstance(dtype, str) and dtype.itemsize > 8):
            hint = "; divide spans of time by one, such as timedelta(seconds=1)" if kind == "m" else ""
            hint = "; .cast(float) makes numbers of text" if dtype == "text" else hint
            raise BatchError(
                f"column {column!r} of dtype {dtype} has no {function} (result {result!r}): expected {_NUMBERS}{hint}"
            )
        if kind == "f":
            return FLOAT64
        return UINT64 if function == "sum" and dtype == UINT64 else INT64
    if function in ("min", "max") and value_class(dtype) == "x":
        raise BatchError(
            f"column {column!r} of dtype {dtype} has no {function} (result {result!r}): expected {_ORDERED}"
        )
    return dtype


def _promoted(one: Dtype, other: Dtype) -> Dtype | None:
    return _physical(promoted(one, other))


def _physical(kind: Kind | None) -> Dtype | None:
    assert not isinstance(kind, ColumnType)
    return kind


def promoted_key(have: Kind, found: Kind) -> Kind | None:
    """As `promoted`, for keys: None also where no key of one is a key of the other, so that edges send them apart."""
    both = promoted(have, found)
    if not isinstance(have, np.dtype) or not isinstance(found, np.dtype) or have.kind not in "mM":
        return both
    return both if both is not None and date_kind(have) == date_kind(found) else None


class StateForm(NamedTuple):
    """What an aggregate keeps of its column, or a table of a key."""

    dtype: Dtype
    """Of the values, or for sums of the result."""
    is_known: bool = False
    """A value other than null has shown the dtype."""
    is_mixed: bool = False
    """The column has had numbers of which no one word holds all: the nearest float and what is left is kept.

    Of a key: it has had negative integers and integers of 2**63 or more, but no float yet. They are kept as floats,
    which they have to equal; if no float comes, they are an error in the end. So it does not matter when it comes.
    """

    def merged(self, aggregate: Aggregate, other: StateForm) -> StateForm | None:
        """Return what is kept of both; None where there is no such thing."""
        if not other.is_known or not self.is_known:
            return other if other.is_known else self
        dtype = _promoted(self.dtype, other.dtype)
        if dtype is None:
            return None
        is_mixed = self.is_mixed or other.is_mixed
        if aggregate.function in ("min", "max", "first", "last"):
            classes = {value_class(self.dtype), value_class(other.dtype)}
            is_mixed |= len(classes) > 1 and classes <= set("iuf")
        return StateForm(dtype, True, is_mixed)


def merged_key_form(one: StateForm, other: StateForm) -> StateForm | None:
    """Return what is kept of two key columns that have had values; None where there is no such thing."""
    dtype = _physical(promoted_key(one.dtype, other.dtype))
    if dtype is None:
        return None
    floats = [each for each in (one, other) if not isinstance(each.dtype, str) and each.dtype.kind == "f"]
    return StateForm(dtype, True, bool(floats) and all(each.is_mixed for each in floats))


def with_mixed_keys(names: Sequence[str], kept: Sequence[StateForm], batches: Sequence[Batch]) -> list[StateForm]:
    """Return what is kept with keys made mixed that have had 2**63 or more, where batches have negative integers."""
    found = list(kept)
    for place, name in enumerate(names):
        if kept[place].dtype == UINT64 and any(_has_negative(batch, name) for batch in batches):
            found[place] = StateForm(FLOAT64, True, True)
    return found


def _has_negative(batch: Batch, name: str) -> bool:
    columns, masks = batch.parts()
    values, mask = columns[name], masks.get(name)
    if not isinstance(values, np.ndarray) or values.dtype.kind != "i":
        return False
    is_negative = values < 0
    return bool((is_negative if mask is None else is_negative & mask).any())


def mixed_keys(name: str) -> BatchError:
    """Return the error for keys that neither 64 bits nor floats hold."""
    return BatchError(
        f"column {name!r} has negative integers as well as integers of uint64, and uint64 does not hold both; "
        "convert them where they are made"
    )


def parts(aggregate: Aggregate, kept: StateForm) -> tuple[tuple[str, Dtype], ...]:
    """Return the names and dtypes of the parts of an aggregate's state, in the order of a `GroupTable`'s fields."""
    function, dtype = aggregate.function, kept.dtype
    if function == "count":
        return (("n", INT64),)
    if function in ("sum", "mean"):
        part = "sum" if dtype == FLOAT64 else "low"
        total = ((part, dtype), ("error", FLOAT64) if dtype == FLOAT64 else ("high", INT64))
        return total if function == "sum" else (*total, ("n", INT64))
    if function in ("var", "std") and dtype == FLOAT64:
        return ("n", INT64), ("near", FLOAT64), ("mean", FLOAT64), ("squares", FLOAT64)
    if function in ("var", "std"):
        return ("n", INT64), ("low", INT64), ("high", INT64), ("mean", FLOAT64), ("squares", FLOAT64)
    return ((function, FLOAT64), ("rest", INT64)) if kept.is_mixed else ((function, dtype),)


def state_separator(keys: Sequence[str]) -> str:
    """Return what stands between the name of a result, or key, and that of a part of its state in state columns.

    It is in no key's name, so that no key has the name of a state column, whatever results are called: there is one `#`
    more than stand together in any of them. No two state columns have one name, as no part has a `#`.
    """
    longest = 0
    for key in keys:
        while _SEPARATOR * (longest + 1) in key:
            longest += 1
    return _SEPARATOR * (longest + 1)


def state_name(result: str, part: str, separator: str) -> str:
    """Return the name of a state column."""
    return f"{result}{separator}{part}"


def form_in_states(states: Batch, result: str, aggregate: Aggregate, separator: str) -> StateForm:
    """Return what an aggregate kept where a batch of states was made, in whose names there is this separator.

    Raises:
        BatchError: the batch is none of states of this aggregate.
    """
    columns, masks = states.parts()
    function = aggregate.function
    dtype: Dtype = INT64
    if function == "count":
        name = state_name(result, "n", separator)
    elif function in ("sum", "mean", "var", "std"):
        is_float = state_name(result, "high", separator) not in columns
        part = "n" if function in ("var", "std") else "sum" if is_float else "low"
        name = state_name(result, part, separator)
        dtype = FLOAT64 if is_float else INT64
    else:
        name = state_name(result, function, separator)
    if name not in columns:
        raise BatchError(f"expected states of the groups with the result {result!r}, found columns {list(columns)}")
    if function in ("sum", "min", "max", "first", "last"):
        dtype = physical(name, columns[name]).dtype
    known = is_known(columns[name], masks.get(name))
    as_ = columns.get(state_name(result, AS, separator))
    return StateForm(dtype, known) if as_ is None else StateForm(physical(name, as_).dtype, known, True)


def table_class(aggregate: Aggregate, kept: StateForm) -> str:
    """Return the letter that a `GroupTable` has for an aggregate."""
    if aggregate.function == "count":
        return "-"
    if aggregate.function in ("sum", "mean", "var", "std"):
        return "f" if kept.dtype == FLOAT64 else "i"
    return "m" if kept.is_mixed else value_class(kept.dtype)


def table_function(aggregate: Aggregate) -> str:
    """Return the name of the function that a `GroupTable` has for an aggregate."""
    return "var" if aggregate.function == "std" else aggregate.function


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
        if result in keys:
            raise BatchError(f"result {result!r} would have the name of the key column {result!r}; name it otherwise")
