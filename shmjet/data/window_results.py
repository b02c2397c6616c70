"""What windows give: named tuples of plain values, which the codec sends as columns."""

from __future__ import annotations

from typing import Any, NamedTuple

from shmjet._native import name_tuples


class WindowResult(NamedTuple):
    """The result of one window.

    Args:
        start, end: of the window, in milliseconds since the epoch: `[start, end)`.
        result: of the aggregation.
        is_early: the window had not ended.

    Example:
        >>> WindowResult(0, 1_000, 7).result
        7
    """

    start: int
    end: int
    result: Any
    is_early: bool = False


class KeyedWindowResult(NamedTuple):
    """The result of one window for one key.

    Args:
        start, end: of the window, in milliseconds since the epoch: `[start, end)`.
        key: of the items.
        result: of the aggregation.
        is_early: the window had not ended.

    Example:
        >>> KeyedWindowResult(0, 1_000, "a", 7).key
        'a'
    """

    start: int
    end: int
    key: Any
    result: Any
    is_early: bool = False


name_tuples(0, WindowResult)
name_tuples(1, KeyedWindowResult)
