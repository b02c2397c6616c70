"""Items as a person looks at them in a notebook: dicts and named tuples as a table, batches as batches."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from shmjet.data.html_tables import MOST_COLUMNS, MOST_ROWS, note, section, table, value_repr


def items_html(title: str, items: Sequence[Any], more: str = "") -> str:
    """Return the first items of a collection.

    Args:
        title: what it is.
        items: the first ones; of more than `MOST_ROWS` those are shown, and batches count by their rows.
        more: what to say below them.
    """
    parts = [_items(items[:MOST_ROWS])] if items else []
    return section(title, *parts, *([note(more)] if more else []))


def _items(items: Sequence[Any]) -> str:
    batches = sys.modules.get("shmjet.data.batch")  # where there is a batch, its module has been imported
    if batches is not None and all(type(item) is batches.Batch for item in items):
        return _batches(batches, items)
    if all(type(item) is dict and item and all(type(key) is str for key in item) for item in items):
        names = list(dict.fromkeys(name for item in items for name in item))
        if len(names) <= MOST_COLUMNS:
            return table(names, [[value_repr(item[name]) if name in item else "" for name in names] for item in items])
    fields = getattr(type(items[0]), "_fields", None)
    if isinstance(items[0], tuple) and fields and all(type(item) is type(items[0]) for item in items):
        return table([str(name) for name in fields], [[value_repr(value) for value in item] for item in items])
    return table(["item"], [[value_repr(item)] for item in items])


def _batches(module: Any, items: Sequence[Any]) -> str:
    """Return the rows of the first batches that together have enough, under one head if their types are the same."""
    shown: list[Any] = []
    rows = 0
    for batch in items:
        head = batch[: MOST_ROWS - rows]
        if shown and head.schema != shown[0].schema:
            break
        shown.append(head)
        rows += head.num_rows
        if rows >= MOST_ROWS:
            break
    return str(module.Batch.concat(shown)._repr_html_())
