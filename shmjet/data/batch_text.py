"""How a batch looks in a terminal and in a notebook: its first rows, under names and dtypes."""

from __future__ import annotations

import html
from typing import Any

from shmjet.data.batch import Batch, any_column
from shmjet.data.column import Values
from shmjet.data.column_types import CategoryType
from shmjet.data.text import Text
from shmjet.data.typed_column import TypedColumn
from shmjet.data.value_text import typed_text, value_text

_CELL = 29
_HTML_COLUMNS = 50
_COLUMN_ROWS = 20


def _cell(text: str) -> str:
    """Return a text without control characters, cut to a width."""
    clean = "".join(character if character.isprintable() else "·" for character in text[: _CELL + 1])
    return clean if len(clean) <= _CELL else clean[: _CELL - 1] + "…"


def _head(batch: Batch, rows: int, name: str) -> list[str]:
    """Return name, dtype and the first values of a column."""
    values, mask = any_column(batch, name)
    shown = _shown(values[:rows])
    if mask is not None:
        shown = [text if there else "null" for text, there in zip(shown, mask[:rows].tolist(), strict=True)]
    return [_cell(name), _cell(str(values.dtype)), *map(_cell, shown)]


def _shown(values: Values) -> list[str]:
    """Return values as a person reads them; the text "null" in quotes, to tell it from a null."""
    if isinstance(values, TypedColumn):
        if not isinstance(values.dtype, CategoryType):
            return typed_text(values)
        values = values.stored
    if isinstance(values, Text) and not values.is_bytes:
        try:
            return ["'null'" if value == "null" else value for value in values]
        except UnicodeDecodeError:
            return ["(not UTF-8)"] * len(values)
    if isinstance(values, Text) or values.dtype.kind == "S":
        return [repr(value) for value in values.tolist()]
    if values.dtype.kind == "U":
        return ["'null'" if value == "null" else value for value in values.tolist()]
    return [value_text(value) for value in values]


def as_text(batch: Batch, rows: int, width: int) -> str:
    """Return a table of the first rows and as many columns as fit."""
    columns: list[list[str]] = []
    used = 0
    for name in batch.names:
        column = _head(batch, rows, name)
        wide = max(map(len, column)) + 2
        if columns and used + wide > width:
            break
        columns.append(column)
        used += wide
    widths = [max(map(len, column)) for column in columns]
    lines = [f"Batch({batch.num_rows:,} rows, {batch.num_columns:,} columns)"]
    for line in zip(*columns, strict=True):
        lines.append("  ".join(cell.ljust(wide) for cell, wide in zip(line, widths, strict=True)).rstrip())
    hidden = []
    if batch.num_rows > rows:
        hidden.append(f"{batch.num_rows - rows:,} more rows")
    if batch.num_columns > len(columns):
        hidden.append(f"{batch.num_columns - len(columns):,} more columns")
    if hidden:
        lines.append(f"... {', '.join(hidden)}")
    return "\n".join(lines)


def as_html(batch: Batch, rows: int) -> str:
    """Return the same as an HTML table, of at most `_HTML_COLUMNS` columns."""
    columns = [_head(batch, rows, name) for name in batch.names[:_HTML_COLUMNS]]
    hidden = []
    if batch.num_rows > rows:
        hidden.append(f"{batch.num_rows - rows:,} more rows")
    if batch.num_columns > _HTML_COLUMNS:
        hidden.append(f"{batch.num_columns - _HTML_COLUMNS:,} more columns")
    below = f"<p>... {', '.join(hidden)}</p>" if hidden else ""
    return _html_table(f"Batch: {batch.num_rows:,} rows, {batch.num_columns:,} columns", columns) + below


def column_html(column: Any) -> str:
    """Return the first values of a column, a `Text` or a `Nullable`, as an HTML table."""
    shown = _head(Batch({"value": column[:_COLUMN_ROWS]}), _COLUMN_ROWS, "value")[1:]
    title = f"{type(column).__name__}: {len(column):,} values"
    below = f"<p>... {len(column) - _COLUMN_ROWS:,} more</p>" if len(column) > _COLUMN_ROWS else ""
    return _html_table(title, [shown], heads=1) + below


def _html_table(title: str, columns: list[list[str]], heads: int = 2) -> str:
    """Return texts by column, of which the first ones are the head."""
    lines = [f"<p>{html.escape(title)}</p><table>"]
    for place, line in enumerate(zip(*columns, strict=True)):
        tag = "th" if place < heads else "td"
        lines.append("<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in line) + "</tr>")
    return "".join([*lines, "</table>"])
