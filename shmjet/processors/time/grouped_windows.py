"""What is computed of windows on columns, and the batches of their results. Must not know how windows are made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from shmjet.columns.aggregates import Aggregate
from shmjet.core.windows import SlidingWindow, SlidingWindowPolicy

if TYPE_CHECKING:
    from shmjet.data.batch import Batch

START, END, IS_EARLY = "window_start", "window_end", "is_early"
"""Columns of results, with the keys and the aggregates."""


class Grouped(NamedTuple):
    """What is computed of which windows.

    Args:
        keys: names of the key columns.
        aggregates: output column → aggregate.
        policy: of the windows.
        time: the column with the timestamps of rows.
        time_column: results have their event time, end - 1, in a column of this name; None: they have none.
        has_early: results tell in a column whether they are early.
    """

    keys: tuple[str, ...]
    aggregates: Mapping[str, Aggregate]
    policy: SlidingWindowPolicy
    time: str
    time_column: str | None = None
    has_early: bool = False

    def output(self, batch: Batch, ends: Any, is_early: bool = False) -> Batch:
        """Return results as they are emitted.

        Args:
            batch: keys and aggregates.
            ends: of the window of each row, or of that of all rows.
            is_early: of all rows.
        """
        import numpy as np

        if isinstance(ends, int):
            ends = np.full(batch.num_rows, ends, np.int64)
        return _output(self, batch, ends - self.policy.size, ends, is_early)


class GroupedSessions(NamedTuple):
    """What is computed of sessions.

    Args:
        keys, aggregates, time, time_column, has_early: as of `Grouped`.
        gap: milliseconds without a row that end a session.
    """

    keys: tuple[str, ...]
    aggregates: Mapping[str, Aggregate]
    gap: int
    time: str
    time_column: str | None = None
    has_early: bool = False

    def output(self, batch: Batch, starts: Any, ends: Any, is_early: bool = False) -> Batch:
        """Return results as they are emitted; the arguments are those of `Grouped.output`, with the starts."""
        return _output(self, batch, starts, ends, is_early)


def _output(grouped: Grouped | GroupedSessions, batch: Batch, starts: Any, ends: Any, is_early: bool) -> Batch:
    import numpy as np

    from shmjet.data.batch import Batch

    columns, masks = batch.parts()
    rows = batch.num_rows
    made: dict[str, Any] = {START: starts.view("datetime64[ms]"), END: ends.view("datetime64[ms]")}
    names = (*grouped.keys, *grouped.aggregates)
    made.update((name, columns[name]) for name in names)
    if grouped.has_early:
        made[IS_EARLY] = np.full(rows, is_early)
    if grouped.time_column is not None:
        made[grouped.time_column] = ends - 1
    for values in made.values():
        if isinstance(values, np.ndarray):
            values.flags.writeable = False
    return Batch.trusted(made, {name: masks[name] for name in names if name in masks}, rows)


def grouped_by(
    keys: tuple[str, ...], aggregates: Mapping[str, Aggregate], window: SlidingWindow, time: str, **options: Any
) -> Grouped:
    """Return what is computed of the windows of a definition; `options` are those of `Grouped`."""
    return Grouped(keys, aggregates, window.policy, time, **options)
