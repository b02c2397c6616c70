"""What the windows over frames of columns hold, as batches of results. After `shmjet.processors.time.window_contents`.

Counts and sums of integers come back exactly when they are deducted: a window is the one before plus its leading and
minus its trailing frame, in one table. All other aggregates are combined anew for each window, those of many frames by
way of a tree: neighbours are combined once. Which frames a node has depends on their numbers alone, so that a restart
does not change the rounding of floats. Must not know where rows come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from shmjet.columns.aggregates import Aggregate, count
from shmjet.columns.frame_groups import LEAST_DEAD, STAMP, FrameStates
from shmjet.columns.frame_tables import FRAME
from shmjet.columns.group_schema import state_separator
from shmjet.columns.typed_groups import TypedGroups
from shmjet.core.windows import SlidingWindowPolicy
from shmjet.data.batch import Batch

ROWS: Final = "\0rows"
"""The hidden result that has the number of rows: a key without any is not in the window."""

VALUES: Final = "\0values"
"""Begins the names of hidden results with the number of values of a column: a sum of none is null."""

_DEDUCTED: Final = frozenset(("count", "sum", "mean"))
_ORDERED: Final = frozenset(("first", "last", "min_by", "max_by"))
_FLOATS: Final = frozenset(("sum", "error"))
"""Parts of states that only floats have."""

_FEW: Final = 6
"""Frames that are combined one by one."""


def with_hidden(aggregates: Mapping[str, Aggregate], policy: SlidingWindowPolicy) -> dict[str, Aggregate]:
    """Return what is computed of each frame: also what tells that a key has left a window, where frames are deducted.

    What goes by the order of rows goes by their time.

    Example:
        >>> from shmjet.columns.aggregates import sum_
        >>> list(with_hidden({"total": sum_("v")}, SlidingWindowPolicy(2, 1)))
        ['total', '\\x00rows', '\\x00valuesv']
    """
    found = in_time(aggregates)
    if not policy.is_tumbling and _are_deducted(aggregates):
        found[ROWS] = count()
        for aggregate in aggregates.values():
            if aggregate.function == "sum":
                found[f"{VALUES}{aggregate.column}"] = replace(aggregate, function="count")
    return found


def in_time(aggregates: Mapping[str, Aggregate]) -> dict[str, Aggregate]:
    """Return aggregates, of which `first`, `last` and the like go by the time of rows and not by their order.

    Example:
        >>> from shmjet.columns.aggregates import first
        >>> in_time({"n": count(), "one": first("v")})["one"].order
        '\\x00stamp'
    """
    return {
        result: replace(each, order=STAMP) if each.function in _ORDERED else each for result, each in aggregates.items()
    }


def _are_deducted(aggregates: Mapping[str, Aggregate]) -> bool:
    return all(aggregate.function in _DEDUCTED for aggregate in aggregates.values())


class CombinedWindows:
    """Windows each of which is combined from its frames.

    Args:
        frames: closed, as far as a window is asked for.
        policy: of the windows.
        keys: the key columns.
        aggregates: result → aggregate, without hidden ones.
        rows: of a batch of results, at most.
    """

    def __init__(
        self,
        frames: FrameStates,
        policy: SlidingWindowPolicy,
        keys: Sequence[str],
        aggregates: Mapping[str, Aggregate],
        rows: int,
    ) -> None:
        self._frames = frames
        self._size, self._slide, self._offset = policy.size, policy.slide, policy.offset
        self._keys = tuple(keys)
        self._shown = tuple(aggregates)
        self._aggregates = with_hidden(aggregates, policy)
        self._rows = rows
        self._levels = (policy.size // policy.slide).bit_length()
        self._nodes: dict[tuple[int, int], Batch | None] = {}

    def content(self, end: int) -> Iterator[Batch]:
        """Give the keys and results of the window that ends there; each window once, in ascending order."""
        frames = self._frames
        within = frames.within(end - self._size, end)
        states = [frames.states(each) for each in within] if len(within) <= _FEW else self._parts(end)
        yield from self._results(self._combined(states))

    def leave(self, end: int) -> None:
        """Forget the trailing frame of a window, and the nodes that it is in."""
        self._frames.remove(end - self._size + self._slide)
        number = (end - self._size - self._offset) // self._slide + 1
        for level in range(1, self._levels + 1):
            self._nodes.pop((level, number >> level), None)

    def _table(self) -> TypedGroups:
        return TypedGroups(self._keys, self._aggregates)

    def _combined(self, states: Iterable[Batch | None]) -> TypedGroups:
        table = self._table()
        for each in states:
            if each is not None:
                table.merge(each)
        return table

    def _results(self, table: TypedGroups) -> Iterator[Batch]:
        position = 0 if len(table) else -1
        while position >= 0:
            batch, position = table.results(position, self._rows)
            batch = self._shown_of(batch)
            if batch.num_rows:
                yield batch

    def _shown_of(self, batch: Batch) -> Batch:
        return batch.select(*self._keys, *self._shown)

    def _parts(self, end: int) -> Iterator[Batch | None]:
        at, stop = (end - self._size - self._offset) // self._slide + 1, (end - self._offset) // self._slide + 1
        while at < stop:
            level = 0
            while at % (2 << level) == 0 and at + (2 << level) <= stop:
                level += 1
            yield self._node(level, at >> level)
            at += 1 << level

    def _node(self, level: int, number: int) -> Batch | None:
        """Return the states of `1 << level` frames from number `number << level` on; None: there are none."""
        if level == 0:
            return self._frames.states(number * self._slide + self._offset)
        if (level, number) in self._nodes:
            return self._nodes[level, number]
        first = (number << level) * self._slide + self._offset
        if not self._frames.any_within(first - self._slide, first + ((1 << level) - 1) * self._slide):
            return None
        node, later = self._node(level - 1, 2 * number), self._node(level - 1, 2 * number + 1)
        if node is not None and later is not None:
            table = self._combined((node, later))
            node, _ = table.states(0, len(table))
        elif node is None:
            node = later
        self._nodes[level, number] = node
        return node


class DeductedWindows(CombinedWindows):
    """Windows each of which is the one before, plus the leading and minus the trailing frame.

    Frames with sums of floats are combined instead, see `CombinedWindows`.
    """

    def __init__(
        self,
        frames: FrameStates,
        policy: SlidingWindowPolicy,
        keys: Sequence[str],
        aggregates: Mapping[str, Aggregate],
        rows: int,
    ) -> None:
        super().__init__(frames, policy, keys, aggregates, rows)
        self._separator = state_separator(self._keys)
        self._sums = {result: f"{VALUES}{each.column}" for result, each in aggregates.items() if each.function == "sum"}
        self._window = self._table()
        self._alive = 0
        self._last: int | None = None
        """The end of the window that is kept; None: there is none."""

    def content(self, end: int) -> Iterator[Batch]:
        """Give the keys and results of the window, made from the one before if that was its neighbour."""
        frames = self._frames
        leading = [end]
        if self._last != end - self._slide:
            self._window = self._table()
            leading = frames.within(end - self._size, end)
        states = [found for each in leading if (found := frames.states(each)) is not None]
        if not all(is_exact(each, self._separator) for each in states):
            self._last, self._window = None, self._table()
            yield from super().content(end)
            return
        for each in states:
            self._window.merge(each)
        self._last = end
        self._alive = 0
        yield from self._results(self._window)

    def leave(self, end: int) -> None:
        """Deduct and forget the trailing frame."""
        gone = self._frames.states(end - self._size + self._slide) if self._last == end else None
        super().leave(end)
        if gone is not None:
            self._window.merge(negated(gone, self._separator))
            self._let_go()

    def _let_go(self) -> None:
        """Make the table anew when most of its keys have left the window."""
        if len(self._window) < 2 * self._alive + LEAST_DEAD:
            return
        states, _ = self._window.states(0, len(self._window))
        counts: Any = states.parts()[0][f"{ROWS}{self._separator}n"]
        self._window = self._table()
        if counts.any():  # no rows with a mask would say what a column is
            self._window.merge(states.filter(counts > 0))

    def _shown_of(self, batch: Batch) -> Batch:
        columns, masks = batch.parts()
        counts: Any = columns[ROWS]
        if not counts.all():
            batch = batch.filter(counts > 0)
            columns, masks = batch.parts()
        self._alive += batch.num_rows
        masks = dict(masks)
        for result, name in self._sums.items():
            known = columns[name] > 0  # type: ignore[operator]
            if known.all():
                masks.pop(result, None)
            else:
                masks[result] = known
        names = (*self._keys, *self._shown)
        return Batch.trusted(
            {name: columns[name] for name in names}, {name: masks[name] for name in names if name in masks}, len(batch)
        )


def windows_over(
    frames: FrameStates,
    policy: SlidingWindowPolicy,
    keys: Sequence[str],
    aggregates: Mapping[str, Aggregate],
    rows: int,
    *,
    in_turn: bool = True,
) -> CombinedWindows:
    """Return the way in which the windows over frames are made; the arguments are those of `CombinedWindows`.

    Args:
        in_turn: windows follow one another and frames are removed behind them.
    """
    is_deducted = in_turn and ROWS in with_hidden(aggregates, policy)
    return (DeductedWindows if is_deducted else CombinedWindows)(frames, policy, keys, aggregates, rows)


def is_exact(states: Batch, separator: str) -> bool:
    """Tell whether states come back as they were when others are added and deducted again: those without floats."""
    return not any(
        name.rpartition(separator)[2] in _FLOATS for name in states.names if separator in name and name != FRAME
    )


def negated(states: Batch, separator: str) -> Batch:
    """Return states of counts and sums of integers that take away, when they are merged, what the states have added.

    Example:
        >>> from shmjet.columns.aggregates import count
        >>> table = TypedGroups(["k"], {"n": count()})
        >>> table.add(Batch({"k": ["a", "b", "a"]}))
        >>> negated(table.states(0, 2)[0], "#").to_dict()
        {'k': ['a', 'b'], 'n#n': [-2, -1]}
    """
    columns, masks = states.parts()
    made = dict(columns)
    for name, values in columns.items():
        result, between, part = name.rpartition(separator)
        if not between:
            continue
        words: Any = values
        if part == "n":
            made[name] = -words
        elif part == "low":
            high: Any = columns[f"{result}{separator}high"]
            made[name] = (~words.view(np.int64) + 1).view(words.dtype)
            made[f"{result}{separator}high"] = ~high + (words == 0)
    return Batch.trusted(made, dict(masks), states.num_rows)
