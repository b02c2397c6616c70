"""Columns for users: `Batch` and `Text`, keys by columns, and the aggregates of `processors.group_by`.

Between the engine and the processors: it knows items and batches, and must not know processors, jobs or rings. Names
are loaded when they are first used, because numpy takes 0.1 s to import and most jobs do without it.

The module itself can be called: `shmjet.columns("a", "b")` is the key made of two columns.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from shmjet.core.column_key import ColumnKey, column, columns

if TYPE_CHECKING:
    from shmjet.columns.aggregates import (
        Aggregate,
        count,
        custom,
        first,
        last,
        list_,
        max_,
        max_by,
        mean,
        median,
        min_,
        min_by,
        n_unique,
        quantile,
        std,
        sum_,
        var,
    )
    from shmjet.data.batch import Batch
    from shmjet.data.nullable import Nullable
    from shmjet.data.text import Text

_PLACES = {
    "Batch": "shmjet.data.batch",
    "Nullable": "shmjet.data.nullable",
    "Text": "shmjet.data.text",
    **dict.fromkeys(
        (
            *("Aggregate", "count", "custom", "first", "last", "list_", "max_", "max_by", "mean", "median", "min_"),
            *("min_by", "n_unique", "quantile", "std", "sum_", "var"),
        ),
        "shmjet.columns.aggregates",
    ),
}

__all__ = [
    "Aggregate",
    "Batch",
    "ColumnKey",
    "Nullable",
    "Text",
    "column",
    "columns",
    "count",
    "custom",
    "first",
    "last",
    "list_",
    "max_",
    "max_by",
    "mean",
    "median",
    "min_",
    "min_by",
    "n_unique",
    "quantile",
    "std",
    "sum_",
    "var",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'shmjet.columns' has no attribute {name!r}")
    value = getattr(importlib.import_module(_PLACES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _CallableModule(ModuleType):
    """A module that is a function too: the package's name is that of the key as well."""

    def __call__(self, *names: str) -> ColumnKey:
        """As `columns`."""
        return columns(*names)


sys.modules[__name__].__class__ = _CallableModule
