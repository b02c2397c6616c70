"""`StreamStage`, the stage of endless data: the general operations, none of which needs the end of its input.

Windows, which cut a stream into bounded pieces, are made from it (`windows`). After Jet's `StreamStage`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, get_args, overload

from shmjet.aggregate_ops import AggregateOperation
from shmjet.core.column_key import ColumnKey
from shmjet.core.durations import Duration, milliseconds
from shmjet.core.event_time import EventTimePolicy, TimestampFn
from shmjet.core.key_functions import KeyFn
from shmjet.core.windows import WindowDefinition
from shmjet.data.errors import ConfigError, PlanError
from shmjet.data.suggestions import unknown_attribute
from shmjet.pipeline import transforms as t
from shmjet.pipeline.checks import checked_fn, checked_key, checked_timestamps
from shmjet.pipeline.column_arguments import column_join, is_column_join, item_join
from shmjet.pipeline.endless import NEEDS_ALL, needs_window
from shmjet.pipeline.general import GeneralStage, OnEvict
from shmjet.pipeline.handles import STREAM_ADVICE
from shmjet.pipeline.stage_times import check_time, has_time
from shmjet.pipeline.windows import StageWithWindow, checked_window

if TYPE_CHECKING:
    from shmjet.pipeline.general import ServiceLike
    from shmjet.pipeline.handles import Stage
    from shmjet.pipeline.keyed import KeyedStreamStage
    from shmjet.pipeline.stages import BatchStage
    from shmjet.pipeline.tables import Table

T = TypeVar("T")
T1 = TypeVar("T1")
A = TypeVar("A")
K = TypeVar("K")
R = TypeVar("R")
S = TypeVar("S")
St = TypeVar("St")

_COLUMN_OPTIONS: Final = frozenset(("on", "left_on", "right_on", "suffix"))


class StreamStage(GeneralStage[T]):
    """A stage of endless data whose items are of type `T`.

    Example:
        >>> clicks.filter(is_human).map_stateful(list, session).write_to(sinks.logger())        # doctest: +SKIP
    """

    _is_endless = True

    if TYPE_CHECKING:  # what is made of a StreamStage is one

        def map(self, fn: Callable[[T], R | None]) -> StreamStage[R]: ...
        def flat_map(self, fn: Callable[[T], Iterable[R]]) -> StreamStage[R]: ...
        def map_batches(self, fn: Callable[[Any], Any], as_: type | None = None) -> StreamStage[Any]: ...
        def map_stateful(
            self,
            create: Callable[[], St],
            fn: Callable[[St, T], R | None],
            ttl: Duration | None = None,
            on_evict: OnEvict | None = None,
        ) -> StreamStage[R]: ...
        def flat_map_stateful(
            self,
            create: Callable[[], St],
            fn: Callable[[St, T], Iterable[R]],
            ttl: Duration | None = None,
            on_evict: OnEvict | None = None,
        ) -> StreamStage[R]: ...
        def rolling_aggregate(self, op: AggregateOperation[T, A, R], ttl: Duration | None = None) -> StreamStage[R]: ...
        def map_using_service(self, factory: ServiceLike[S], fn: Callable[[S, T], R | None]) -> StreamStage[R]: ...
        def flat_map_using_service(
            self, factory: ServiceLike[S], fn: Callable[[S, T], Iterable[R]]
        ) -> StreamStage[R]: ...
        def map_using_service_async(
            self,
            factory: ServiceLike[S],
            fn: Callable[[S, T], Coroutine[Any, Any, R | None]],
            max_concurrent_ops: int = 4,
            preserve_order: bool = True,
        ) -> StreamStage[R]: ...
        def flat_map_using_service_async(
            self,
            factory: ServiceLike[S],
            fn: Callable[[S, T], Coroutine[Any, Any, Iterable[R]]],
            max_concurrent_ops: int = 4,
            preserve_order: bool = True,
        ) -> StreamStage[R]: ...
        def map_using_map(self, name: str, key_fn: KeyFn, fn: Callable[[T, Any], R | None]) -> StreamStage[R]: ...
        def join_table(self, table: Table, key_fn: KeyFn, fn: Callable[[T, Any], R | None]) -> StreamStage[R]: ...
        def custom_transform(self, name: str, supplier: Any) -> StreamStage[Any]: ...
        def grouping_key(self, key_fn: Callable[[T], K] | str | Sequence[str]) -> KeyedStreamStage[T, K]: ...
        def select(self, *columns: Any, **named: Any) -> StreamStage[Any]: ...
        def with_columns(self, **named: Any) -> StreamStage[Any]: ...
        def union(self, *others: Any) -> StreamStage[Any]: ...
        def to_batches(self, schema: Mapping[str, Any] | None = None) -> StreamStage[Any]: ...
        def to_rows(self) -> StreamStage[dict[str, Any]]: ...
        def _then(self, name: str, transform: t.Transform, *others: Stage) -> StreamStage[Any]: ...
        def _hash_join(self, name: str, arguments: Sequence[Any], fn: Any, *, inner: bool) -> StreamStage[Any]: ...

    else:

        def __getattr__(self, name: str) -> Any:
            if name in NEEDS_ALL:
                raise PlanError(needs_window(f"{self.name}.{name}()", self.name))
            raise unknown_attribute("a stream", name, type(self), STREAM_ADVICE)

    def window(self, definition: WindowDefinition) -> StageWithWindow[T]:
        """Cut the stream into windows by the time of its items.

        Args:
            definition: `tumbling(size)`, `sliding(size, slide)` or `session(gap)`.

        Raises:
            TypeError: it is something else. PlanError: the items have no timestamps.

        Example:
            >>> clicks.window(tumbling(60)).aggregate(aggregate_ops.counting())        # doctest: +SKIP
        """
        checked = checked_window(definition)
        check_time(self.pipeline.nodes, self.node_id, f"window({checked!r})")
        return StageWithWindow(self, checked)

    def add_timestamps(self, fn: TimestampFn, allowed_lag: Duration = 0) -> StreamStage[T]:
        """Give the items of a stream without event time one each.

        Each processor of the stage that feeds it counts as a source partition.

        Args:
            fn, allowed_lag: as for `StreamSourceStage.with_timestamps`.

        Raises:
            PlanError: the items have timestamps. TypeError, ConfigError: an argument is wrong.

        Example:
            >>> events = lines.map(json.loads).add_timestamps(lambda event: event["at"], allowed_lag=2)
            ... # doctest: +SKIP
        """
        lag = milliseconds("add_timestamps: allowed_lag", allowed_lag, least=0)
        policy = EventTimePolicy("items", checked_timestamps("add_timestamps", fn), lag)
        if has_time(self.pipeline.nodes, self.node_id):
            raise PlanError(f"add_timestamps: the items of {self.name!r} have timestamps")
        return self._then("add_timestamps", t.AddTimestamps(policy))

    @overload
    def join(
        self,
        other: StreamStage[T1] | BatchStage[T1],
        left_key: KeyFn,
        right_key: KeyFn,
        fn: Callable[..., Any] | None = None,
        *,
        within: Duration | None = None,
        how: t.How = "inner",
    ) -> StreamStage[Any]: ...
    @overload
    def join(
        self,
        other: StreamStage[Any] | BatchStage[Any],
        on: str | Sequence[str] | ColumnKey | Mapping[str, str] | None = None,
        *,
        left_on: str | Sequence[str] | ColumnKey | None = None,
        right_on: str | Sequence[str] | ColumnKey | None = None,
        within: Duration | None = None,
        how: t.ColumnsHow = "inner",
        suffix: str | None = None,
    ) -> StreamStage[Any]: ...
    def join(self, other: StreamStage[Any] | BatchStage[Any], *keys: Any, **options: Any) -> StreamStage[Any]:
        """Join two streams by key: all pairs of an item here and an item there with equal keys, close in time.

        The result has the later time of the two. Rows without a match come when the watermark is `within` past them.

        `join(other, on)`, or `join(other, left_on=..., right_on=...)`, joins batches by columns, as `BatchStage.join`
        does: with those of a bounded stage, or of a stream (`within=`), where the column of the left timestamps has the
        later time in results. A row without a match has nulls in the columns of the other side, which are missing as
        long as that side has had no batch.

        Args:
            other: the other stream, with timestamps; or a bounded stage, which is kept in memory.
            left_key, right_key: key of an item here and there; None: the item itself; the name of a column where items
                are rows. Keys that are None match nothing.
            fn: `fn(item, other item)` makes a result (None: no result); by default the pair.
            within: how far apart the times may be, in seconds or as a `timedelta`; given exactly when `other` is a
                stream.
            how: "inner", or whose items come out without a match, with None in the place of the other: "left", "right"
                or "outer"; with a bounded stage "inner" or "left", by columns also "semi" or "anti".
            on, left_on, right_on, suffix: names of columns; as for `BatchStage.join`.

        Raises:
            PlanError: `within` is missing, or is given for a bounded stage; a stream has no timestamps; or `how` is not
                possible. TypeError, ConfigError: an argument is wrong.

        Example:
            >>> orders.join(payments, by_order, by_order, settle, within=60, how="left")        # doctest: +SKIP
            >>> orders.join(products, on="product")        # doctest: +SKIP
            >>> auctions.join(people, left_on="seller", right_on="id", within=60, suffix="_of_person")
            ... # doctest: +SKIP
        """
        from shmjet.pipeline.stages import BatchStage

        by_columns = is_column_join(keys, {name: given for name, given in options.items() if name != "how"})
        if not isinstance(other, StreamStage):
            if not isinstance(other, BatchStage):
                raise TypeError(
                    "join: expected a StreamStage, which a source becomes by with_timestamps(fn) and its siblings, or "
                    f"a BatchStage, got {type(other).__name__}: {other!r:.80}"
                )
            if options.pop("within", None) is not None:
                raise PlanError(f"join: within is for two streams, but {other!r} is bounded; leave it out")
            if options.get("how") in ("right", "outer"):
                raise PlanError(
                    f'join: how="{options["how"]}" needs the end of stream {self.name!r}; with a bounded stage say '
                    '"inner" or "left"'
                )
            if by_columns:
                return self._then("join", column_join(keys, options), other)
            how, clause = self._checked_join(keys, options)
            return self._then("join", t.Join(*clause, how), other)
        within = options.pop("within", None)
        by_columns = by_columns and (len(keys) != 2 or bool(_COLUMN_OPTIONS & options.keys()))
        columns = column_join(keys, options) if by_columns else None
        if columns is not None and columns.how not in get_args(t.How):
            ways = ", ".join(map(repr, get_args(t.How)))
            raise PlanError(f'join: how="{columns.how}" of two streams is not possible, only {ways}')
        items = None if columns is not None else self._checked_join(keys, options)
        if within is None:
            raise PlanError(
                f"join: {self.name!r} and {other.name!r} are both endless: say within=seconds, how far apart in time "
                "two items may be to match"
            )
        for side in (self, other):
            check_time(side.pipeline.nodes, side.node_id, "join(within=)")
        within_ms = milliseconds("join: within", within, least=0)
        if columns is not None:
            names = columns.left_keys, columns.right_keys, columns.suffix
            made = t.StreamJoinColumns(*names, within_ms, cast("t.How", columns.how))
            return self._then("join", made, other)
        assert items is not None
        how, clause = items
        return self._then("join", t.StreamJoin(*clause, how, within_ms), other)

    @staticmethod
    def _checked_join(keys: Sequence[Any], options: dict[str, Any]) -> tuple[t.How, tuple[KeyFn, KeyFn, Any]]:
        """Return which items come out, and the checked key functions and function of a join of items."""
        how = options.pop("how", "inner")
        if how not in get_args(t.How):
            raise ConfigError(f"join: how must be one of {', '.join(map(repr, get_args(t.How)))}, got {how!r}")
        left_key, right_key, fn = item_join(keys, options)
        project = None if fn is None else checked_fn("join", "a function of two items", fn)
        return how, (checked_key("join", left_key), checked_key("join", right_key), project)

    def hash_join(self, *sides: Any, fn: Callable[..., Any] | None = None) -> StreamStage[Any]:
        """Enrich each item with what matches it on other stages, which are bounded; as `BatchStage.hash_join`."""
        return self._hash_join("hash_join", sides, fn, inner=False)

    def inner_hash_join(self, *sides: Any, fn: Callable[..., Any] | None = None) -> StreamStage[Any]:
        """Join as `hash_join` does, but leave out items without a match on any side."""
        return self._hash_join("inner_hash_join", sides, fn, inner=True)

    def _keyed(self, key_fn: KeyFn) -> KeyedStreamStage[T, Any]:
        from shmjet.pipeline.keyed import KeyedStreamStage

        return KeyedStreamStage(self, key_fn)
