"""Tables for notebooks: every text is cut and escaped, and a table has as many rows and columns as one can look at.

Pure presentation of texts and of single values. It must not know what the values mean, nor wait for them.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from decimal import Decimal
from html import escape
from reprlib import Repr
from typing import Any

MOST_ROWS = 20
"""Items that are shown of a collection."""
MOST_COLUMNS = 50
MOST_CHARACTERS = 80

_TABLE = "border-collapse:collapse;font-size:90%"
_CELL = "padding:2px 10px;text-align:left;white-space:nowrap"

_PLAIN = (datetime.date, datetime.datetime, datetime.time, datetime.timedelta, Decimal, int, float)

_short = Repr()
_short.maxstring = _short.maxother = _short.maxlong = 2 * MOST_CHARACTERS
_short.maxdict = _short.maxlist = _short.maxtuple = _short.maxset = 10


def value_repr(value: Any) -> str:
    """Return a value as Python writes it, a date as a date, cut, in one line; what its `__repr__` raises is told.

    Example:
        >>> value_repr({"a": [1, 2]}), len(value_repr("x" * 1_000_000))
        ("{'a': [1, 2]}", 80)
    """
    try:
        text = str(value) if type(value) in _PLAIN else _short.repr(value)
    except Exception as error:  # the value's class is the user's
        text = f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
    return cut(text)


def cut(text: str, most: int = MOST_CHARACTERS) -> str:
    """Return a text of at most so many characters, all of which can be printed."""
    clean = "".join(character if character.isprintable() else "·" for character in text[: most + 1])
    return clean if len(clean) <= most else clean[: most - 1] + "…"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], types: Sequence[str] = ()) -> str:
    """Return texts as an HTML table.

    Args:
        heads: names of the columns.
        rows: of as many texts each.
        types: of the columns, shown below their names.
    """
    lines = [_row("th", heads), *([_row("th", types)] if types else []), *(_row("td", row) for row in rows)]
    return f'<table style="{_TABLE}">{"".join(lines)}</table>'


def section(title: str, *parts: str) -> str:
    """Return a title, a text, above parts, which are HTML."""
    return f"<div><div><b>{escape(cut(title, 400))}</b></div>{''.join(parts)}</div>"


def note(text: str) -> str:
    """Return a line of small text."""
    return f'<div style="font-size:90%;opacity:.8">{escape(cut(text, 400))}</div>'


def _row(tag: str, texts: Sequence[str]) -> str:
    cells = "".join(f'<{tag} style="{_CELL}">{escape(cut(text))}</{tag}>' for text in texts[:MOST_COLUMNS])
    return f"<tr>{cells}</tr>"
