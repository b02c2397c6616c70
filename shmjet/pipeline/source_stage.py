"""`StreamSourceStage`: an endless source before it is said what the time of its items is.

After Jet's `StreamSourceStage`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from shmjet.core.column_key import ColumnKey
from shmjet.core.durations import Duration, milliseconds
from shmjet.core.event_time import EventTimePolicy, TimestampFn
from shmjet.data.errors import PlanError
from shmjet.data.suggestions import unknown_attribute
from shmjet.pipeline import transforms as t
from shmjet.pipeline.checks import checked_timestamps
from shmjet.pipeline.definitions import StreamSourceDef
from shmjet.pipeline.endless import NEEDS_ALL
from shmjet.pipeline.handles import STREAM_ADVICE, Stage
from shmjet.pipeline.stream_stage import StreamStage

T = TypeVar("T")

FOUR = "with_timestamps(fn), with_native_timestamps(), with_ingestion_timestamps() or without_timestamps()"
"""The methods that make a stream of a source."""


class StreamSourceStage(Stage, Generic[T]):
    """The stage of an endless source: say what the time of its items is, and it becomes a `StreamStage`.

    Example:
        >>> clicks = p.read_from(source).with_timestamps(lambda click: click.at, allowed_lag=2)        # doctest: +SKIP
    """

    def with_timestamps(self, fn: TimestampFn, allowed_lag: Duration = 0) -> StreamStage[T]:
        """Take the event time of an item from the item.

        Args:
            fn: `fn(item)` returns milliseconds since the epoch as an int, an aware `datetime` or a `datetime64`; for
                batches `column("ts")` of int64 milliseconds, or of dates or times with a zone or without.
            allowed_lag: how far behind the highest timestamp of its source partition an item may come, in seconds or as
                a `timedelta`; what comes later may be late.

        Raises:
            TypeError: `fn` cannot be called, or the lag is not a duration. ConfigError: the lag is negative.
            PlanError: the time of the source has been said before, or `fn` names several columns.

        Example:
            >>> p.read_from(source).with_timestamps(column("ts"))        # doctest: +SKIP
        """
        lag = milliseconds("with_timestamps: allowed_lag", allowed_lag, least=0)
        return self._timed(EventTimePolicy("items", checked_timestamps("with_timestamps", fn), lag))

    def with_native_timestamps(self, allowed_lag: Duration = 0) -> StreamStage[T]:
        """Take the event time that the source itself gives each item.

        Args:
            allowed_lag: as for `with_timestamps`.

        Raises:
            PlanError: the source has no timestamps of its own, or its time has been said before.
            TypeError, ConfigError: the lag is not a duration, or negative.
        """
        lag = milliseconds("with_native_timestamps: allowed_lag", allowed_lag, least=0)
        source = self._source
        if not source.has_native_timestamps:
            raise PlanError(
                f"source {source.name!r} has no timestamps of its own: say with_timestamps(fn) or "
                "with_ingestion_timestamps()"
            )
        return self._timed(EventTimePolicy("native", self._time_column, lag))

    def with_ingestion_timestamps(self) -> StreamStage[T]:
        """Take the wall clock, when an item is read, for its event time.

        Raises:
            PlanError: the time of the source has been said before.
        """
        return self._timed(EventTimePolicy("ingestion", self._time_column))

    def without_timestamps(self) -> StreamStage[T]:
        """Go without event time; windows and other stages that need it may follow `add_timestamps`.

        Raises:
            PlanError: the time of the source has been said before.
        """
        return self._timed(None)

    @property
    def _source(self) -> StreamSourceDef[T]:
        transform = self.pipeline.nodes[self.node_id].transform
        assert isinstance(transform, t.Source)
        assert isinstance(transform.source, StreamSourceDef)
        return transform.source

    @property
    def _time_column(self) -> ColumnKey | None:
        source = self._source
        return ColumnKey((source.time_column,)) if source.columnar else None

    def _timed(self, policy: EventTimePolicy | None) -> StreamStage[T]:
        transform = self.pipeline.nodes[self.node_id].transform
        assert isinstance(transform, t.Source)
        if transform.is_read:
            raise PlanError(
                f"the time of source {self.name!r} has been said before; go on from the stage that it gave, or read "
                "from the source once more"
            )
        self.pipeline._change(self.node_id, transform=t.Source(transform.source, policy, True))
        return StreamStage(self.pipeline, self.node_id)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in NEEDS_ALL or (not name.startswith("_") and hasattr(StreamStage, name)):
                raise PlanError(f"{self.name}.{name}(): first say what the time of the source's items is, with {FOUR}")
            raise unknown_attribute("the stage of an endless source", name, type(self), STREAM_ADVICE)
