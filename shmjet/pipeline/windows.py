"""Stages with a window: what can be done with each of the bounded pieces that a stream is cut into.

A stage with a window is a stage and what is said of the window, and makes no node of its own. After Jet's
`StageWithWindow` and `StageWithKeyAndWindow`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from shmjet.aggregate_ops import AggregateOperation
from shmjet.aggregate_ops.extremes import first_item
from shmjet.core.durations import Duration, milliseconds
from shmjet.core.key_functions import KeyFn
from shmjet.core.windows import SessionWindow, SlidingWindow, WindowDefinition
from shmjet.data.errors import PlanError
from shmjet.data.suggestions import unknown_attribute
from shmjet.data.window_results import KeyedWindowResult, WindowResult
from shmjet.pipeline import transforms as t
from shmjet.pipeline.checks import checked_key, checked_operation
from shmjet.pipeline.column_arguments import column_names
from shmjet.pipeline.definitions import SinkDef
from shmjet.pipeline.handles import STREAM_ADVICE
from shmjet.pipeline.join_clauses import co_aggregation
from shmjet.pipeline.stage_times import check_time, gives_batches
from shmjet.pipeline.window_groups import WindowGroups

if TYPE_CHECKING:
    from shmjet.pipeline.handles import Stage
    from shmjet.pipeline.stream_stage import StreamStage

T = TypeVar("T")
K = TypeVar("K")
A = TypeVar("A")
R = TypeVar("R")
W = TypeVar("W", bound="_Windowed")


@dataclass(frozen=True, repr=False)
class _Windowed:
    """What is said of a window, and the node that it becomes.

    Args:
        stage: what is cut.
        definition: of the windows.
        period: milliseconds between early results; 0: there are none.
        late_sink: where late items go; None: they are dropped.
    """

    stage: StreamStage[Any]
    definition: WindowDefinition
    period: int = 0
    late_sink: SinkDef[Any] | None = None

    def early_results(self: W, period: Duration) -> W:
        """Give results of windows that have not ended, too, every so often, with `is_early` set.

        Args:
            period: by the wall clock, in seconds or as a `timedelta`.

        Raises:
            TypeError: it is not a duration. ConfigError: it is below a millisecond.
        """
        return replace(self, period=milliseconds("early_results: period", period))

    def late_to(self: W, sink: SinkDef[Any]) -> W:
        """Write the items that come too late for their window to a sink, as they are; else they are dropped.

        Args:
            sink: from `shmjet.sinks`.

        Raises:
            TypeError: it is not a sink.
        """
        if not isinstance(sink, SinkDef):
            raise TypeError(f"late_to: expected a sink (see shmjet.sinks), got {type(sink).__name__}: {sink!r:.80}")
        return replace(self, late_sink=sink)

    def _aggregated(
        self,
        name: str,
        op: AggregateOperation[Any, Any, Any],
        key_fns: tuple[KeyFn, ...] | None,
        *others: Stage,
        make_result: Callable[..., Any] | None = None,
    ) -> StreamStage[Any]:
        for other in others:
            check_time(other.pipeline.nodes, other.node_id, f"{name} in {self.definition!r}")
        return self._planned(self.stage, name, op, key_fns, None, *others, make_result=make_result)

    def _planned(
        self,
        cut: StreamStage[Any],
        name: str,
        op: AggregateOperation[Any, Any, Any],
        key_fns: tuple[KeyFn, ...] | None,
        of_late: Callable[[Any], Any] | None,
        *others: Stage,
        make_result: Callable[..., Any] | None = None,
    ) -> StreamStage[Any]:
        """Add the node; `of_late` makes what is written of a late item."""
        late_sink = self.late_sink
        window = t.Window(self.definition, op, key_fns, self.period, late_sink is not None, make_result)
        stage = cut._then(name, window, *others)
        if late_sink is not None:
            late = stage._then(f"{stage.name}-late", t.LateItems())
            (late if of_late is None else late.map(of_late)).write_to(late_sink)
        return stage

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            from shmjet.pipeline.stream_stage import StreamStage

            if not name.startswith("_") and hasattr(StreamStage, name):
                raise AttributeError(
                    f"a window has no {name!r} before its items are aggregated: say window(...).aggregate(op) or one "
                    f"of its siblings, then .{name}(...)",
                    name=name,
                )
            raise unknown_attribute("a window", name, type(self), STREAM_ADVICE)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.stage.name!r}: {self.definition!r}>"


@dataclass(frozen=True, repr=False)
class StageWithWindow(_Windowed, Generic[T]):
    """A stream cut into windows; made by `stage.window(...)`.

    Example:
        >>> clicks.window(tumbling(60)).aggregate(aggregate_ops.counting())        # doctest: +SKIP
    """

    def grouping_key(self, key_fn: Callable[[T], K]) -> KeyedStageWithWindow[T, K]:
        """Group the items of each window by a key.

        Args:
            key_fn: key of an item; None: the item itself.
        """
        key = checked_key("grouping_key", key_fn)
        return KeyedStageWithWindow(self.stage, self.definition, self.period, self.late_sink, key)

    def group_by(self, *columns: Any) -> WindowGroups:
        """Group rows by columns: `stage.window(...).group_by("user").agg(n=count())`.

        Args:
            columns: names of the key columns, sequences of them, or `column(...)`; none: each window is one group.

        Raises:
            BatchError: a name is not a non-empty str, or is given twice. TypeError: one is something else.
        """
        return WindowGroups(self, column_names("group_by", columns, least=0))

    def aggregate(self, op: AggregateOperation[T, A, R]) -> StreamStage[WindowResult]:
        """Fold the items of each window into a `WindowResult`, emitted as the window ends.

        Args:
            op: from `shmjet.aggregate_ops`, with one input.

        Example:
            >>> clicks.window(sliding(60, 10)).aggregate(aggregate_ops.counting())        # doctest: +SKIP
        """
        return self._aggregated("window", checked_operation("window(...).aggregate", op, 1), None)

    def aggregate2(self, *arguments: Any) -> StreamStage[WindowResult]:
        """Fold the items that this stream and another one have in the same window into one result.

        Args:
            arguments: either `other, op` with an operation of two inputs, or `op0, other, op1`, which gives the pair of
                both results. `other` is a `StreamStage` with timestamps, without a window.

        Raises:
            TypeError: they are something else. PlanError: a stream has no timestamps.
        """
        return self._together("aggregate2", arguments, 2)

    def aggregate3(self, *arguments: Any) -> StreamStage[WindowResult]:
        """Fold the items that this stream and two others have in the same window into one result.

        Args:
            arguments: either `other1, other2, op`, or `op0, other1, op1, other2, op2`; as for `aggregate2`.
        """
        return self._together("aggregate3", arguments, 3)

    def _together(self, name: str, arguments: Any, inputs: int) -> StreamStage[WindowResult]:
        from shmjet.pipeline.stream_stage import StreamStage

        stages, op = co_aggregation(f"window(...).{name}", arguments, inputs, StreamStage)
        return self._aggregated(name, op, None, *stages)

    def distinct(self) -> StreamStage[WindowResult]:
        """Keep one item of each value in each window, as a `WindowResult` whose result is the item.

        Raises:
            PlanError: the items are rows of batches, which are distinct by columns: `grouping_key(names).distinct()`.
        """
        if gives_batches(self.stage.pipeline.nodes, self.stage.node_id):
            raise PlanError(
                "window(...).distinct: rows of batches are distinct by named columns, as each row has its time: say "
                "window(...).grouping_key(names).distinct()"
            )
        return self.grouping_key(None).distinct()  # type: ignore[arg-type]


@dataclass(frozen=True, repr=False)
class KeyedStageWithWindow(_Windowed, Generic[T, K]):
    """A stream cut into windows, grouped by a key; made by `stage.window(...).grouping_key(key_fn)`.

    Example:
        >>> clicks.window(session(30)).grouping_key(by_user).aggregate(aggregate_ops.to_list())        # doctest: +SKIP
    """

    key_fn: KeyFn = None

    def aggregate(self, op: AggregateOperation[T, A, R]) -> StreamStage[KeyedWindowResult]:
        """Fold the items of each key in each window into a `KeyedWindowResult`, emitted as the window ends.

        Args:
            op: from `shmjet.aggregate_ops`, with one input.
        """
        return self._aggregated("window", checked_operation("window(...).aggregate", op, 1), (self.key_fn,))

    def aggregate2(self, *arguments: Any) -> StreamStage[KeyedWindowResult]:
        """Fold the items that this and another keyed stream have in the same window under the same key.

        Args:
            arguments: either `other, op` with an operation of two inputs, or `op0, other, op1`, which gives the pair of
                both results. `other` is a keyed stream, made by `grouping_key`, with timestamps, without a window.

        Raises:
            TypeError: they are something else. PlanError: a stream has no timestamps.
        """
        return self._together("aggregate2", arguments, 2)

    def aggregate3(self, *arguments: Any) -> StreamStage[KeyedWindowResult]:
        """Fold the items that this and two other keyed streams have in the same window under the same key.

        Args:
            arguments: either `other1, other2, op`, or `op0, other1, op1, other2, op2`; as for `aggregate2`.
        """
        return self._together("aggregate3", arguments, 3)

    def _together(self, name: str, arguments: Any, inputs: int) -> StreamStage[KeyedWindowResult]:
        from shmjet.pipeline.keyed import KeyedStreamStage

        others, op = co_aggregation(f"window(...).{name}", arguments, inputs, KeyedStreamStage)
        keys = (self.key_fn, *(other.key_fn for other in others))
        return self._aggregated(name, op, keys, *(other.stage for other in others))

    def distinct(self) -> StreamStage[WindowResult]:
        """Keep one item of each key in each window, as a `WindowResult` whose result is the item."""
        return self._aggregated("window", first_item(), (self.key_fn,), make_result=_without_key)


def _without_key(start: int, end: int, key: Any, result: Any, is_early: bool) -> WindowResult:
    return WindowResult(start, end, result, is_early)


def checked_window(definition: Any) -> WindowDefinition:
    """Return the definition of a window.

    Raises:
        TypeError: it is something else.
    """
    if isinstance(definition, SlidingWindow | SessionWindow):
        return definition
    raise TypeError(
        "window: expected tumbling(size), sliding(size, slide) or session(gap), got "
        f"{type(definition).__name__}: {definition!r:.80}"
    )
