"""Functions of text: kernels over the bytes of all values, Python for the values that need all of Unicode.

Each gives what the method of `str` (or `re`) of that name gives for every value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from shmjet._native import _columns
from shmjet.columns.expressions import automata
from shmjet.columns.expressions.vector import Vector
from shmjet.columns.text import cased_at, lower, split, with_values_at
from shmjet.data.column_descriptors import descriptor
from shmjet.data.column_types import CategoryType, ListType
from shmjet.data.errors import BatchError
from shmjet.data.text import Mask, Text
from shmjet.data.typed_column import TypedColumn

Applied: TypeAlias = Callable[[Sequence[Vector], int, "Mask | None"], Vector]
Kernel: TypeAlias = Callable[[Text], Any]

_LISTS: Final = ListType("text")
_ANYWHERE, _AT_BEGINNING, _AT_END = 0, 1, 2
_SPACE: Final = "\t\n\v\f\r\x1c\x1d\x1e\x1f "


def prepared_text(function: str, options: dict[str, Any]) -> Applied:
    """Return the function of text of a name, with its options.

    Raises:
        BatchError: an option cannot be.
    """
    kernel = _KERNELS[function[4:]](**options)

    def apply(operands: Sequence[Vector], rows: int, active: Mask | None) -> Vector:
        (one,) = operands
        if one.is_untyped:
            return Vector(kernel(_blanks(rows)), np.zeros(rows, np.bool_))
        column = one.column(rows)
        if isinstance(column, TypedColumn) and isinstance(column.dtype, CategoryType):
            column = column.stored
        if not isinstance(column, Text) or column.is_bytes:
            raise BatchError(f".{function}() takes a column of text, got {one.type_name}")
        return Vector(kernel(column), one.valid)

    return apply


def _blanks(rows: int) -> Text:
    return Text.trusted(np.zeros(rows + 1, np.int64), np.zeros(0, np.uint8))


# -- what is in a text -------------------------------------------------------------------------------------------------


def _has(how: int, part: str) -> Kernel:
    needle = part.encode()

    def apply(text: Text) -> Mask:
        found = np.empty(len(text), np.bool_)
        _columns.text_has(descriptor(text), how, needle, found)
        return found

    return apply


def _contains(pattern: str, literal: bool) -> Kernel:
    part = pattern if literal else _plain_text(pattern)
    if part is not None:
        return _has(_ANYWHERE, part)
    search = re.compile(pattern).search
    automaton = automata.compiled(pattern)
    if automaton is None:
        return lambda text: np.fromiter((search(value) is not None for value in text.tolist()), np.bool_, len(text))

    def apply(text: Text) -> Mask:
        found = np.ones(len(text), np.uint8)
        column = descriptor(text)
        if automaton.literal:
            _columns.text_has(column, _ANYWHERE, automaton.literal, found)
        if _columns.text_dfa(column, automaton.table, automaton.at_end, automaton.start, found):
            for row in np.flatnonzero(found == automata.UNKNOWN).tolist():
                found[row] = search(text[row]) is not None
        return found.view(np.bool_)

    return apply


def _plain_text(pattern: str) -> str | None:
    """Return the text that a pattern stands for; None if it has anything but letters."""
    return pattern if not re.search(r"[\\^$.|?*+()\[\]{}]", pattern) else None


def _starts_with(prefix: str) -> Kernel:
    return _has(_AT_BEGINNING, prefix)


def _ends_with(suffix: str) -> Kernel:
    return _has(_AT_END, suffix)


def _len_chars() -> Kernel:
    def apply(text: Text) -> npt.NDArray[np.int64]:
        count = np.empty(len(text), np.int64)
        _columns.text_chars(descriptor(text), count)
        return count

    return apply


# -- another text ------------------------------------------------------------------------------------------------------


def _replace(pattern: str, value: str, literal: bool) -> Kernel:
    part = pattern if literal else _plain_text(pattern)
    if part and (literal or "\\" not in value):
        return _replace_text(part.encode(), value.encode())
    if literal:
        return lambda text: Text.of([each.replace(pattern, value) for each in text.tolist()])
    substitute, contains = re.compile(pattern).sub, _contains(pattern, False)

    def apply(text: Text) -> Text:
        rows = np.flatnonzero(contains(text))
        if not len(rows):
            return text
        return with_values_at(text, rows, [substitute(value, each) for each in text.take(rows).tolist()])

    return apply


def _replace_text(part: bytes, value: bytes) -> Kernel:
    def apply(text: Text) -> Text:
        column = descriptor(text)
        data = np.empty(_columns.text_replace(column, part, value, None, None), np.uint8)
        offsets = np.empty(len(text) + 1, np.int64)
        _columns.text_replace(column, part, value, offsets, data)
        return Text.trusted(offsets, data)

    return apply


def _lower() -> Kernel:
    return lower


def _upper() -> Kernel:
    def apply(text: Text) -> Text:
        first = int(text.offsets[0])
        data = np.empty(int(text.offsets[-1]) - first, np.uint8)
        other = np.empty(len(text), np.bool_)
        left = _columns.text_upper(descriptor(text), data, other)
        upper = Text.trusted(text.offsets - first, data)
        if not left:
            return upper
        return cased_at(upper, np.flatnonzero(other), text, str.upper)

    return apply


def _ranges(text: Text, begins: Any, ends: Any) -> Text:
    offsets = np.empty(len(text) + 1, np.int64)
    data = np.empty(int((ends - begins).sum()), np.uint8)
    _columns.text_ranges(descriptor(text), begins, ends, offsets, data)
    return Text.trusted(offsets, data)


def _strip(characters: str | None) -> Kernel:
    if characters is not None and not characters.isascii():
        return lambda text: Text.of([each.strip(characters) for each in text.tolist()])
    marks = np.zeros(256, np.uint8)
    marks[list((_SPACE if characters is None else characters).encode())] = 1

    def apply(text: Text) -> Text:
        begins, ends = np.empty(len(text), np.int64), np.empty(len(text), np.int64)
        other = np.empty(len(text), np.bool_)
        left = _columns.text_strip(descriptor(text), marks, characters is None, begins, ends, other)
        stripped = _ranges(text, begins, ends)
        if not left:
            return stripped
        rows = np.flatnonzero(other)
        return with_values_at(stripped, rows, [each.strip() for each in text.take(rows).tolist()])

    return apply


def _slice(start: int, length: int | None) -> Kernel:
    limit = 1 << 62
    first = max(-limit, min(limit, start))
    count = -1 if length is None else min(limit, length)

    def apply(text: Text) -> Text:
        begins, ends = np.empty(len(text), np.int64), np.empty(len(text), np.int64)
        _columns.text_slice(descriptor(text), first, count, begins, ends)
        return _ranges(text, begins, ends)

    return apply


def _split(by: str | None) -> Kernel:
    if by is None:
        return _words
    separator = by.encode()

    def apply(text: Text) -> TypedColumn:
        column = descriptor(text)
        data = np.empty(_columns.text_split_lists(column, separator, None, None), np.uint8)
        offsets = np.empty(len(text) + 1, np.int64)
        _columns.text_split_lists(column, separator, offsets, data)
        return TypedColumn.trusted(_LISTS, Text.trusted(offsets, data, True))

    return apply


def _words(text: Text) -> TypedColumn:
    """Return the words between white space as lists of text; see `shmjet.data.nested_values` for the bytes."""
    words, rows = split(text)
    counts, column = np.bincount(rows, minlength=len(text)).astype(np.int64), descriptor(words)
    data = np.empty(_columns.text_lists(column, counts, None, None), np.uint8)
    offsets = np.empty(len(text) + 1, np.int64)
    _columns.text_lists(column, counts, offsets, data)
    return TypedColumn.trusted(_LISTS, Text.trusted(offsets, data, True))


_KERNELS: Final[dict[str, Callable[..., Kernel]]] = {
    "contains": _contains,
    "replace": _replace,
    "starts_with": _starts_with,
    "ends_with": _ends_with,
    "lower": _lower,
    "upper": _upper,
    "strip": _strip,
    "len_chars": _len_chars,
    "slice": _slice,
    "split": _split,
}
