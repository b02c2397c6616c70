"""How a batch looks in a terminal and in a notebook: its first rows, under names and dtypes."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from shmjet.ring.errors import BatchError

if TYPE_CHECKING:
    from shmjet.ring.batch import Batch

_CELL = 24
_HTML_COLUMNS = 50


def _cell(value: Any) -> str:
    text = "null" if value is None else value if isinstance(value, str) else repr(value)
    text = "".join(character if character.isprintable() else "·" for character in text[: _CELL + 1])
    return text if len(text) <= _CELL else text[: _CELL - 1] + "…"


def _head(batch: Batch, rows: int, names: tuple[str, ...]) -> list[list[str]]:
    """Return, for each column, name, dtype and the first values, cut to a width."""
    first = batch[:rows]
    return [[_cell(name), _cell(str(batch.schema[name])), *map(_cell, _values(first, name))] for name in names]


def _values(first: Batch, name: str) -> list[Any]:
    try:
        return first.values(name)
    except BatchError:
        return ["(not UTF-8)"] * first.num_rows


def as_text(batch: Batch, rows: int, width: int) -> str:
    """Return a table of the first rows and as many columns as fit."""
    columns: list[list[str]] = []
    used = 0
    for name in batch.names:
        column = _head(batch, rows, (name,))[0]
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
    """Return the same as an HTML table."""
    columns = _head(batch, rows, batch.names[:_HTML_COLUMNS])
    lines = [f"<p>Batch: {batch.num_rows:,} rows, {batch.num_columns:,} columns</p><table>"]
    for place, line in enumerate(zip(*columns, strict=True)):
        tag = "th" if place < 2 else "td"
        lines.append("<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in line) + "</tr>")
    return "".join([*lines, "</table>"])
