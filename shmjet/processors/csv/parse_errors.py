"""Error texts of CSV lines that cannot be read. The codes are those of `columns/csv.h` and `columns/csv_decimal.h`."""

from __future__ import annotations

from typing import Final

UNREADABLE: Final = 1
TOO_LARGE: Final = 2
TOO_FINE: Final = 3
BAD_TEXT: Final = 10
TRAILING: Final = 11
UNCLOSED: Final = 12
COUNT: Final = 13

_SHOWN: Final = 60


def line_of(path: str, offset: int) -> int:
    """Return the number, from 1, of the line of a file that begins at a byte offset.

    It counts as an editor does, the lines inside quotes too; the file is read up to there, for an error only.
    """
    line, done, last = 1, 0, b""
    with open(path, "rb") as file:
        while done < offset and (piece := file.read(min(1 << 20, offset - done))):
            done += len(piece)
            whole = last + piece
            last = whole[-1:] if whole.endswith(b"\r") else b""
            whole = whole.removesuffix(b"\r")
            line += whole.count(b"\n") + whole.count(b"\r") - whole.count(b"\r\n")
    return line + (last != b"")


def complaint(reason: int, column: str | None, wanted: str, value: bytes, fields: int, expected: int) -> str:
    """Return what is wrong with a record, to be put behind file and line: column, expected and found.

    Args:
        reason: why the kernel refused it.
        column: the name of the bad field's column, None where the record as a whole is bad.
        wanted: that column's type.
        value: the bytes that were found.
        fields: how many fields the record has.
        expected: how many it should have.
    """
    shown = value[:_SHOWN].decode("utf-8", "backslashreplace")
    found = f"{shown!r}{'...' if len(value) > _SHOWN else ''}"
    if reason == COUNT:
        return f": expected {expected} fields, found {fields}: {found}"
    if reason == TRAILING:
        return f", column {column!r}: found text behind the closing quote of {found}; a quote inside quotes is doubled"
    if reason == UNCLOSED:
        return f", column {column!r}: a quote is opened and never closed, found {found} up to the file's end"
    if reason == BAD_TEXT:
        return f", column {column!r}: expected text in the file's encoding, found {found}"
    why = {TOO_LARGE: ", which does not fit into it", TOO_FINE: ", which has finer parts than its unit"}.get(reason, "")
    return f", column {column!r}: expected {wanted}, found {found}{why}"
