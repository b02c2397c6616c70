"""Rows of plain values as CSV, by the kernels for columns: rows become columns, columns become text.

Plain are exact dicts with the same keys, or exact tuples of the same width, whose values are in each column all ints of
64 bits, all floats, all bools or all text, with None among them. `row_text` has the rules, and writes all others. Needs
no numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def written_rows(
    rows: Sequence[Any], names: tuple[str, ...] | None, width: int, delimiter: str, quote: str | None, null: str
) -> str | None:
    """Return rows as records of CSV.

    Args:
        rows: at least one.
        names: keys of the values in rows that are dicts.
        width: number of values in a row.
        delimiter, quote, null: as for `RowEncoder`.

    Returns:
        None when the rows are not plain, or have a value that cannot be written so.

    Example:
        >>> written_rows([{"a": 1, "b": None}, {"a": 2, "b": "x,y"}], ("a", "b"), 2, ",", '"', "")
        '1,\\n2,"x,y"\\n'
        >>> written_rows([(1, "a"), ("1", "a")], None, 2, ",", '"', "")
    """
    from shmjet._native import _columns  # a job that writes no CSV does not need it

    kinds, count = set(map(type, rows)), len(rows)
    places: Sequence[str | int]
    if kinds == {tuple}:
        places = range(width)
    elif kinds == {dict} and names is not None:
        places = names
    else:
        return None
    if set(map(len, rows)) != {width}:
        return None
    listed = list(rows)
    columns: list[Any] = []
    for place in places:
        words, valid = bytearray(8 * (count + 1)), bytearray(count)
        found = _columns.row_values(listed, place, width, words, valid)
        if found is None and _all_none(listed, place):
            found, words = ("t", True, b""), bytearray(8 * (count + 1))
        if found is None:
            return None
        kind, has_nulls, data = found
        mask = valid if has_nulls else None
        if kind == "t":
            columns.append((kind, 0, count, data, words, mask))
        elif kind != "y":
            columns.append((kind, 8, count, words, None, mask))
        else:
            return None
    if not columns:
        return None
    units, quoting = bytes(len(columns)), -1 if quote is None else ord(quote)
    written = _columns.csv_write(tuple(columns), units, ord(delimiter), quoting, null.encode())
    return None if written is None else written.decode()


def _all_none(rows: list[Any], place: Any) -> bool:
    try:
        return all(row[place] is None for row in rows)
    except LookupError:
        return False
