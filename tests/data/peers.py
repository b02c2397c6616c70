"""The libraries that batches are exchanged with, where they are installed; a test skips where its own is missing."""

from __future__ import annotations

import datetime
import importlib
from types import ModuleType
from typing import Any

import pytest


def _found(name: str) -> Any:
    """Return a library, or what skips the test that asks it for something."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return _Missing(name)


class _Missing(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        pytest.skip(f"no {self.__name__}")


pl = _found("polars")
duckdb = _found("duckdb")

if not isinstance(pl, _Missing):  # it opens descriptors with the first query, and keeps them
    pl.LazyFrame({"a": [datetime.datetime(2020, 1, 1)]}).select(pl.col("a").dt.year()).collect()
    pl.Series([datetime.datetime(2020, 1, 1)], dtype=pl.Datetime("us"))
