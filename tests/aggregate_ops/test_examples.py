"""The examples in the docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import shmjet
from shmjet import aggregate_ops

MODULES = [f"shmjet.aggregate_ops.{module.name}" for module in pkgutil.iter_modules(aggregate_ops.__path__)]


@pytest.mark.parametrize(
    "name", [*MODULES, "shmjet.processors.general.aggregate", "shmjet.processors.general.aggregate_by_key"]
)
def test_examples_of(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


PAGE = Path(__file__).resolve().parents[2] / "docs" / "aggregations.md"


def test_the_page_for_users_has_every_operation() -> None:
    text = PAGE.read_text()
    others = {"ItemsByTag", "OperationBuilder", "Tag", "aggregate_operation3"}
    assert [name for name in aggregate_ops.__all__ if name not in others and f"`{name}(" not in text] == []


def test_every_operation_has_an_example() -> None:
    for name in aggregate_ops.__all__:
        found = getattr(aggregate_ops, name)
        if name not in ("OperationBuilder", "Tag"):
            assert ">>>" in found.__doc__, name


def test_names_are_importable_from_the_package() -> None:
    assert shmjet.AggregateOperation is aggregate_ops.AggregateOperation
    assert shmjet.aggregate_ops is aggregate_ops
