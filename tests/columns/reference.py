"""Group-by in plain Python, and columns of all kinds to try it on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from shmjet.columns.aggregates import Aggregate
from shmjet.data.batch import Batch, stored_column
from shmjet.data.text import Text

NAT = np.iinfo(np.int64).min
"""NaT as an integer: dates are compared as these."""

_WORDS = ["", "a", "b", "ab", "b" * 12, "b" * 13, "b" * 12 + "c", "b" * 40, "Zürich", "日本", "😀", "z" * 300]
_FLOATS = [0.0, -0.0, 1.0, -1.5, 0.1, 3e4, -6e-5, math.nan, math.inf, -math.inf]
_SMALL_FLOATS = [0.0, 1.0, -1.5, 0.1, 3e4, -6e-5, 12.75]

VALUES: dict[str, list[Any]] = {
    "?": [False, True],
    **{
        code: [0, 1, 2, int(np.iinfo(code).min), int(np.iinfo(code).max)]
        for code in ("i1", "i2", "u1", "u2", "i4", "u4")
    },
    "i8": [0, 1, -1, NAT, -NAT - 1],
    "u8": [0, 1, 1 << 63, (1 << 63) - 1, (1 << 64) - 1],
    "f2": _FLOATS,
    "f4": _FLOATS,
    "f8": [*_FLOATS, 1e300],
    "M8[us]": [0, 1, -1, NAT, 1_700_000_000_000_000],
    "m8[s]": [0, 1, -1, NAT, 86_400],
    "S5": [b"", b"a", b"ab", b"a\0b", b"abcde", b"abcdf"],
    "S20": [b"", b"a" * 12, b"a" * 13, b"a" * 20, b"a" * 19 + b"b"],
    "U2": ["", "a", "ab", "é", "😀", "😀a"],
    "U9": ["", "abc", "abcd", "\ufffd" * 9, "😀" * 9],
    "text": _WORDS,
    "bytes": [word.encode() for word in _WORDS] + [b"\xff", b"\0", b"\0\0"],
}
"""Some values of each kind, the awkward ones among them."""

NUMBERS = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]


def column(kind: str, values: Sequence[Any]) -> Any:
    """Make a column; a None becomes some value."""
    filled = [VALUES[kind][-1] if value is None else value for value in values]
    if kind in ("text", "bytes"):
        return Text.of(filled) if filled else Text(np.zeros(1, np.int64), b"", is_bytes=kind == "bytes")
    if kind[0] in "mM":
        return np.array(filled, np.int64).view(kind)
    return np.array(filled, kind)


def batch_of(columns: Mapping[str, tuple[str, Sequence[Any]]]) -> Batch:
    """Make a batch of (kind, values) columns, whose memory begins in the middle of others'."""
    made: dict[str, Any] = {}
    valid: dict[str, Any] = {}
    for name, (kind, values) in columns.items():
        padded = [VALUES[kind][0], *values, VALUES[kind][-1]]
        made[name] = column(kind, padded)
        valid[name] = np.array([value is not None for value in padded], np.bool_)
    rows = len(next(iter(columns.values()))[1])
    return Batch(made, valid)[1 : rows + 1]


def plain(batch: Batch, name: str) -> list[Any]:
    """Return a column as Python values, None for nulls, with dates as integers and one NaN."""
    values, mask = stored_column(batch, name)
    if isinstance(values, np.ndarray) and values.dtype.kind in "mM":
        values = values.view(np.int64)
    listed = [_same_nan(value) for value in values.tolist()]
    return listed if mask is None else [value if ok else None for value, ok in zip(listed, mask.tolist(), strict=True)]


def _same_nan(value: Any) -> Any:
    return math.nan if isinstance(value, float) and math.isnan(value) else value


def grouped(batches: Sequence[Batch], keys: Sequence[str], aggregates: Mapping[str, Aggregate]) -> dict[Any, list[Any]]:
    """Group by hand: key tuple → results, in the order of the keys' first rows."""
    groups: dict[tuple[Any, ...], dict[str, list[Any]]] = {}
    dates: set[str | None] = set()
    for batch in batches:
        columns = {name: plain(batch, name) for name in batch.names}
        dates = {name for name, dtype in batch.schema.items() if not isinstance(dtype, str) and dtype.kind in "mM"}
        for row in range(batch.num_rows):
            group = groups.setdefault(tuple(columns[name][row] for name in keys), {name: [] for name in aggregates})
            for name, aggregate in aggregates.items():
                value = 0 if aggregate.column is None else columns[aggregate.column][row]
                if value is not None:
                    group[name].append(value)
    return {
        key: [_result(each, group[name], each.column in dates) for name, each in aggregates.items()]
        for key, group in groups.items()
    }


def _result(aggregate: Aggregate, values: list[Any], is_date: bool) -> Any:
    if aggregate.function == "count":
        return len(values)
    if not values:
        return None
    if aggregate.function in ("min", "max"):
        return _extreme(aggregate.function, values, is_date)
    if aggregate.function in ("first", "last"):
        return values[0 if aggregate.function == "first" else -1]
    if aggregate.function == "sum":
        return _sum(values) if isinstance(values[0], float) else sum(values)
    if aggregate.function == "mean":
        return _sum([float(value) for value in values]) / len(values)
    if len(values) <= aggregate.ddof:
        return None
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - aggregate.ddof)


def _extreme(function: str, values: list[Any], is_date: bool) -> Any:
    def order(value: Any) -> Any:
        is_last = (is_date and value == NAT) or (isinstance(value, float) and math.isnan(value))
        return (is_last, 0 if is_last else value, math.copysign(1, value) if isinstance(value, float) else 0)

    return (min if function == "min" else max)(values, key=order)


def _sum(values: list[float]) -> float:
    infinite = {value for value in values if math.isinf(value)}
    if any(math.isnan(value) for value in values) or len(infinite) == 2:
        return math.nan
    return infinite.pop() if infinite else math.fsum(values)


def alike(a: Any, b: Any) -> bool:
    """Whether two results are equal, floats up to rounding."""
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    return type(a) is type(b) and bool(a == b)


def some_values(kind: str, rows: int, *, nulls: bool, calm: bool = False) -> st.SearchStrategy[list[Any]]:
    """Lists of a kind's values and nulls; `calm` leaves out what makes sums overflow or undefined."""
    values = VALUES[kind]
    if calm:
        values = _SMALL_FLOATS if kind[0] == "f" else [value for value in values if abs(value) < 1 << 32]
    return st.lists(st.sampled_from([None, *values] if nulls else values), min_size=rows, max_size=rows)
