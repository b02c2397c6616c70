"""Each operation is named, and shown by an example, where users look for it."""

from __future__ import annotations

from pathlib import Path

import shmjet
from shmjet import aggregate_ops

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
