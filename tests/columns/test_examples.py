"""The examples in the docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import shmjet.columns

MODULES = [
    *(f"shmjet.columns.{module.name}" for module in pkgutil.iter_modules(shmjet.columns.__path__)),
    *(f"shmjet.ring.{name}" for name in ("batch", "nullable", "text", "value_text")),
    *(f"shmjet.processors.{name}" for name in ("batching", "grouping_columns", "mapping_batches")),
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
