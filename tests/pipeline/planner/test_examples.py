"""The examples in the docstrings of the steps to partition counts."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["traverse", "joined_streams", "stream_edges", "stream_counts", "agreement"])
def test_examples_are_true(name: str) -> None:
    found = doctest.testmod(importlib.import_module(f"shmjet.pipeline.planner.{name}"))
    assert found.attempted > 0
    assert found.failed == 0
