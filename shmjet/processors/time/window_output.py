"""What window processors emit: results, from keys and accumulators.

Must not know: how windows are made.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any

from shmjet._native import keyed_results
from shmjet.aggregate_ops import AggregateOperation
from shmjet.data.window_results import KeyedWindowResult, WindowResult

MapToOutput = Callable[[int, int, Any, Any, bool], Any]
"""`(start, end, key, result, is_early)` -> item, or None for none."""

_AT_ONCE = 128
"""Results of keys made at once."""

_VALUES = frozenset((int, float, complex, bool, str, bytes, type(None)))


class WindowOutput:
    """Makes results of windows.

    Args:
        op: the operation.
        keyed: there are keys.
        timed: results go out as pairs with their event time, end - 1.
        map_to_output: makes what is emitted; None: `KeyedWindowResult`, without keys `WindowResult`.
        finishes: results are emitted, not accumulators.
    """

    __slots__ = ("_exporter", "_finisher", "_keyed", "_map", "_timed")

    def __init__(
        self,
        op: AggregateOperation[Any, Any, Any],
        *,
        keyed: bool,
        timed: bool = False,
        map_to_output: MapToOutput | None = None,
        finishes: bool = True,
    ) -> None:
        self._keyed = keyed
        self._timed = timed
        self._map = map_to_output
        self._finisher = op.finisher if finishes else None
        self._exporter: Callable[[Any], Any] | None = op.exporter
        if op.finisher is None and type(op.create()) in _VALUES:
            self._exporter = None

    @property
    def timed(self) -> bool:
        """Whether results go out with their event time."""
        return self._timed

    def without_event_time(self) -> WindowOutput:
        """Return what makes the same results without their event time."""
        made = copy.copy(self)
        made._timed = False
        return made

    def of(
        self, start: int, end: int, pairs: Iterable[tuple[Any, Any]], *, is_own: bool = True, is_early: bool = False
    ) -> Iterator[Any]:
        """Return the items of a window, lazily.

        Args:
            start, end: of the window.
            pairs: keys and accumulators.
            is_own: the accumulators are not used again; else they are left as they are.
            is_early: the window has not ended.
        """
        finisher = self._finisher if is_own else self._exporter
        if self._map is None and self._keyed:
            return chain.from_iterable(self._lists(start, end, pairs, finisher, is_early))
        if finisher is not None:
            pairs = ((key, finisher(accumulator)) for key, accumulator in pairs)
        items = (self._item(start, end, key, result, is_early) for key, result in pairs)
        return (item for item in items if item is not None)

    def _lists(
        self,
        start: int,
        end: int,
        pairs: Iterable[tuple[Any, Any]],
        finisher: Callable[[Any], Any] | None,
        is_early: bool,
    ) -> Iterator[list[Any]]:
        """Make the usual results of keys, some at a time."""
        stamp = end - 1 if self._timed else None
        entries = iter(pairs)
        while part := list(islice(entries, _AT_ONCE)):
            if finisher is not None:
                part = [(key, finisher(accumulator)) for key, accumulator in part]
            yield keyed_results(KeyedWindowResult, start, end, part, is_early, stamp)

    def _item(self, start: int, end: int, key: Any, result: Any, is_early: bool) -> Any:
        make = self._map
        item: Any
        if make is not None:
            item = make(start, end, key, result, is_early)
        elif self._keyed:
            item = tuple.__new__(KeyedWindowResult, (start, end, key, result, is_early))  # half the time
        else:
            item = WindowResult(start, end, result, is_early)
        return (end - 1, item) if self._timed and item is not None else item

    def one(self, start: int, end: int, key: Any, accumulator: Any, is_own: bool, is_early: bool) -> Any:
        """Return the item of one window and key; None for none. The arguments are those of `of`."""
        finisher = self._finisher if is_own else self._exporter
        return self._item(start, end, key, accumulator if finisher is None else finisher(accumulator), is_early)
