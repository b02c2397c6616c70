"""Rows for windows on batches, as batches and as what they are in plain Python, and streams of them."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
from hypothesis import strategies as st

from shmjet import Batch
from shmjet.columns import (
    count,
    first,
    last,
    list_,
    max_,
    max_by,
    mean,
    min_,
    min_by,
    n_unique,
    quantile,
    std,
    sum_,
    var,
)
from shmjet.data.column_keys import hash_rows
from shmjet.processors.columns.row_aggregates import rows_operation
from tests.processors.restoring import Stage

Row = tuple[int, Any, Any, Any]
"""A timestamp, two keys and a value."""

PARTITIONS = 7

EXACT = {"n": count(), "known": count("v"), "total": sum_("v"), "middle": mean("v")}
OTHERS = {"least": min_("v"), "most": max_("v"), "spread": var("v"), "away": std("v", 0), "kinds": n_unique("v")}
ORDERED = {
    "begin": first("v"),
    "end": last("v"),
    "newest": last("ts"),
    "top": max_by("other", "v"),
    "low": min_by("ts", "v"),
    "least": min_by("v", "other"),
    "n": count(),
}
KEPT = {"half": quantile("v", 0.5), "all": list_("v")}


def plain(values: list[Any]) -> dict[str, Any]:
    """Return the aggregates of the values of some rows, in plain Python."""
    known = [value for value in values if value is not None]
    n = len(known)
    middle = sum(known) / n if n else None
    squares = sum((value - middle) ** 2 for value in known) if middle is not None else 0
    ordered = sorted(known)
    half = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2 if n else None
    return {
        "n": len(values),
        "known": n,
        "total": sum(known) if n else None,
        "middle": middle,
        "least": min(known, default=None),
        "most": max(known, default=None),
        "spread": squares / (n - 1) if n > 1 else None,
        "away": math.sqrt(squares / n) if n else None,
        "kinds": len(set(known)),
        "half": half,
        "all": sorted(values, key=repr),
    }


def by_rows(rows: list[Row]) -> dict[str, Any]:
    """Return the aggregates that go by time, as they are computed of items."""
    operation = rows_operation(*ORDERED.values())
    items = [(row[0], {"ts": row[0], "k": row[1], "other": row[2], "v": row[3]}) for row in rows]
    return dict(zip(ORDERED, operation.export(operation.fold(operation.create(), items)), strict=True))


def comparable(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(sorted(map(repr, value)))
    if isinstance(value, float):
        return "nan" if value != value else round(value, 6) + 0.0
    return value


def batch_of(rows: list[Row]) -> Batch:
    return Batch(
        {
            "ts": np.array([row[0] for row in rows], np.int64),
            "k": [row[1] for row in rows],
            "other": [row[2] for row in rows],
            "v": [row[3] for row in rows],
        }
    )


def owned(stage: Stage, batch: Batch, keys: tuple[str, ...]) -> list[Batch]:
    """Return the rows of a batch by the processor of their keys."""
    count = len(stage.processors)
    if not keys or count == 1:
        return [batch]
    owners = hash_rows(batch, keys) % PARTITIONS % count
    return [batch.filter(owners == index) for index in range(count)]


def key_of(row: Row, keys: tuple[str, ...]) -> Any:
    """Return the key of a row."""
    return tuple(comparable(row[1 + ("k", "other").index(name)]) for name in keys)


def counted(output: list[Batch]) -> Counter[Any]:
    """Return the rows of results, which may be in any order."""
    return Counter(
        tuple(comparable(int(value.astype(int)) if isinstance(value, np.datetime64) else value) for value in row)
        for batch in output
        for row in zip(*(values_of(batch, name) for name in batch.names), strict=True)
    )


def values_of(batch: Batch, name: str) -> list[Any]:
    column = batch[name]
    if name.startswith("window"):
        return list(column.astype("int64").tolist())
    return list(column.tolist() if isinstance(column, np.ndarray) else list(column))


def rows(keys: st.SearchStrategy[Any], values: st.SearchStrategy[Any]) -> st.SearchStrategy[Row]:
    return st.tuples(st.integers(-60, 60), keys, st.sampled_from([1, 2, None]), values)


def streams(row: st.SearchStrategy[Row]) -> st.SearchStrategy[list[Any]]:
    """Batches with rising watermarks, snapshots ("0") and restarts among them."""
    batch = st.lists(row, min_size=1, max_size=6)
    return st.lists(st.one_of(batch, batch, st.integers(1, 60), st.sampled_from("0123")), max_size=12)


TEXTS = st.sampled_from(["a", "a text of more than twelve bytes", "", None])
NUMBERS = st.sampled_from([1, 2, 3, None])
FLOATS = st.sampled_from([0.5, -0.0, 0.0, math.nan, None])
WHOLE = st.one_of(st.none(), st.integers(-9, 9))
HALVES = st.sampled_from([None, 0.5, 1.5, -2.5, 4.0])
KEYS = st.sampled_from([("k",), (), ("k", "other"), ("other",)])

VALUES = {
    "text": st.sampled_from(["a", "b", "a text of more than twelve bytes", None]),
    "floats": st.sampled_from([0.5, -0.0, 0.0, math.nan, None]),
    "decimals": st.sampled_from([Decimal("1.5"), Decimal("1.50"), Decimal("-2.125"), None]),
}


def fit(calls: list[Any], keys: tuple[str, ...]) -> list[Any]:
    """Without keys there is one processor."""
    return calls if keys else ["1" if call in ("2", "3") else call for call in calls]
