"""The examples in the docstrings."""

from __future__ import annotations

import doctest
import importlib

import pytest

MODULES = [
    *(f"shmjet.sources.{name}" for name in ("building", "files", "given", "plain")),
    *(f"shmjet.sinks.{name}" for name in ("building", "checks", "files", "plain", "results")),
    *(f"shmjet.processors.{name}" for name in ("asserting", "building", "compression", "merging", "partitioned_items")),
    *(f"shmjet.processors.{name}" for name in ("places", "plain_rows", "record_sink", "record_text", "row_text")),
    "shmjet.pipeline.definitions",
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_are_true(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
