"""Groups of rows in windows: `stage.window(...).group_by("user").agg(n=count())`, whose results are batches.

Batches are aggregated as columns. Where rows come as items, they are aggregated one by one, with their time, by the
same windows as items.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from shmjet.core.column_key import ColumnKey
from shmjet.core.timed import TimedKey
from shmjet.data.errors import BatchError
from shmjet.pipeline import transforms as t
from shmjet.pipeline.stage_times import gives_batches

if TYPE_CHECKING:
    from shmjet.columns.aggregates import Aggregate
    from shmjet.core.windows import WindowDefinition
    from shmjet.pipeline.stream_stage import StreamStage
    from shmjet.pipeline.windows import StageWithWindow

START, END, IS_EARLY = "window_start", "window_end", "is_early"
"""Columns of results, with the keys and the aggregates."""


@dataclass(frozen=True, repr=False)
class WindowGroups:
    """What `stage.window(...).group_by(...)` returns; say `.agg(...)` next.

    Args:
        windowed: the stage with its window.
        columns: names of the key columns; none: each window is one group.
    """

    windowed: StageWithWindow[Any]
    columns: tuple[str, ...]

    def agg(self, **aggregates: Aggregate) -> StreamStage[Any]:
        """Return a stage of batches with a row for each group of each window.

        Its columns are `window_start` and `window_end` (`datetime64[ms]`), the key columns, one for each aggregate, and
        with early results `is_early`. `first` and `last` go by event time.

        Args:
            aggregates: name of a column → what is in it, from `shmjet.columns`.

        Raises:
            BatchError: there is no aggregate, or two columns have the same name. TypeError: one is not an aggregate.

        Example:
            >>> clicks.window(tumbling(60)).group_by("user").agg(n=count())        # doctest: +SKIP
        """
        from shmjet.columns.aggregates import Aggregate
        from shmjet.processors.columns.row_aggregates import rows_operation

        if not aggregates:
            raise BatchError("agg: expected at least one aggregate, such as n=count()")
        for name, aggregate in aggregates.items():
            if not isinstance(aggregate, Aggregate):
                raise TypeError(f"agg: {name} must be an aggregate from shmjet.columns, got {aggregate!r:.80}")
        windowed = self.windowed
        stage = windowed.stage
        has_early = bool(windowed.period)
        names = (START, END, *self.columns, *aggregates, *((IS_EARLY,) if has_early else ()))
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise BatchError(f"agg: two columns of the result would be called {twice!r}; give one another name")
        if gives_batches(stage.pipeline.nodes, stage.node_id):
            return self._of_columns(windowed.definition, aggregates)
        key_fns = (TimedKey(ColumnKey(self.columns)),) if self.columns else None
        stamped = windowed.stage._then("group_by-times", t.WithTime())
        results = windowed._planned(stamped, "window", rows_operation(*aggregates.values()), key_fns, _ROW)
        made = results.map(_ResultRow(self.columns, tuple(aggregates), has_early))
        return made._then("group_by", t.MapBatches(_same))._named_with(results)

    def _of_columns(self, definition: WindowDefinition, aggregates: dict[str, Aggregate]) -> StreamStage[Any]:
        windowed, has_late = self.windowed, self.windowed.late_sink is not None
        transform = t.WindowColumns(definition, self.columns, aggregates, windowed.period, has_late)
        stage = windowed.stage._then("window", transform)
        if windowed.late_sink is not None:
            late = stage._then(f"{stage.name}-late", t.LateItems())
            late._then(f"{stage.name}-late-rows", t.ToRows()).write_to(windowed.late_sink)
        return stage


_ROW = itemgetter(1)


def _same(batch: Any) -> Any:
    return batch


class _ResultRow:
    """Makes a row of a result; a class, so that it pickles."""

    def __init__(self, keys: tuple[str, ...], aggregates: tuple[str, ...], has_early: bool) -> None:
        self._keys = keys
        self._aggregates = aggregates
        self._has_early = has_early

    def __call__(self, found: Any) -> dict[str, Any]:
        """Return the row of a `WindowResult` or a `KeyedWindowResult`."""
        from numpy import datetime64

        row: dict[str, Any] = {START: datetime64(found.start, "ms"), END: datetime64(found.end, "ms")}
        if len(self._keys) == 1:
            row[self._keys[0]] = found.key
        elif self._keys:
            row.update(zip(self._keys, found.key, strict=True))
        row.update(zip(self._aggregates, found.result, strict=True))
        if self._has_early:
            row[IS_EARLY] = found.is_early
        return row
