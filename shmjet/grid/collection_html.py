"""A map or a list as a person looks at it in a notebook: how many entries it has, and the first of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shmjet.data.html_tables import MOST_ROWS, note, section, table, value_repr
from shmjet.data.items_html import items_html
from shmjet.host.bounded_call import NoAnswerError, call_within


def collection_html(name: str, read: Callable[[], tuple[int, list[Any]]], *, is_map: bool = False) -> str:
    """Return what there is to see; of a collection that does not answer soon its name, and why.

    Args:
        name: of the collection.
        read: returns how many entries there are, and the first `MOST_ROWS` of them.
        is_map: the entries are keys with their values.
    """
    try:
        size, entries = call_within(read)
    except NoAnswerError as error:
        return section(name, note(str(error)))
    title = f"{name}: {size:,} {'entries' if is_map else 'items'}"
    more = f"... {size - len(entries):,} more" if size > len(entries) == MOST_ROWS else ""
    if not is_map:
        return items_html(title, entries, more)
    rows = [[value_repr(key), value_repr(value)] for key, value in entries]
    return section(title, *([table(["key", "value"], rows)] if rows else []), *([note(more)] if more else []))
