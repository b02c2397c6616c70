"""Hash join on batches: those of edge 0 stream past a table that is built from those of edge 1.

Must not know how the build side is spread; its edge is broadcast, or both are partitioned by the key columns, and it
has a lower priority number than edge 0. It is `hash_join` for columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final

from shmjet.core.column_key import ColumnKey, checked_names
from shmjet.core.inbox import Inbox
from shmjet.core.latency_policy import may_be_saved, policy_in
from shmjet.core.outbox import Outbox
from shmjet.core.processor import NotSavedError, Processor, ProcessorContext
from shmjet.core.state_placement import placement_in
from shmjet.data.errors import ProcessorError
from shmjet.processors.columns.build_side_state import BUILD_EDGE, BuildSideState
from shmjet.processors.columns.empty_results import EmptyResults
from shmjet.processors.columns.saving import CapturedState
from shmjet.processors.general.base import ExpandingProcessor, Supply, check_batch_rows, require_batches

if TYPE_CHECKING:  # numpy takes 0.1 s to import: only where there are batches
    from shmjet.columns.join import HashJoin
    from shmjet.data.batch import Batch

KINDS: Final = ("inner", "left", "right", "outer", "semi", "anti")

FILTERS: Final = ("semi", "anti")
"""Kinds of which only the keys of edge 1 count."""

UNMATCHED: Final = ("right", "outer")
"""Kinds that give rows of edge 1 without a match too, once edge 0 has ended."""

BATCH_ROWS: Final = 1 << 14
"""Rows of a batch that is emitted, at most: about a millisecond's work."""

BUILT_BYTES: Final = 8 << 20
"""Bytes of the build side that are joined in a call."""


class HashJoinBatchesProcessor(ExpandingProcessor):
    """Builds a table of edge 1, then joins edge 0 with it."""

    state_kind = "hash_join_batches"

    movable = False
    """The table lies in memory that only its process knows."""

    _captures = True

    takes_schemas = True
    """A left join has the columns of edge 1 also where none of its rows come."""

    def __init__(
        self,
        on: Any,
        how: str,
        suffix: str | None,
        build_schema: Mapping[str, Any] | None,
        rows: int,
        stream_schema: Mapping[str, Any] | None = None,
        tells_columns: bool = False,
        sought: frozenset[str] = frozenset(),
    ) -> None:
        self._tells_columns = tells_columns
        self._sought = sought
        self._on = on
        self._how = how
        self._keys_only = how in FILTERS and build_schema is None
        self._suffix = suffix
        self._build_schema = build_schema
        self._stream_schema = stream_schema
        self._rows = rows
        self._join: HashJoin | None = None
        self._is_built = False
        self._empty: EmptyResults | None = None
        self._schemas: set[Any] = set()
        self._saving = CapturedState()
        self._restoring: BuildSideState | None = None

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        """As `ExpandingProcessor.init`."""
        from shmjet.columns.join import HashJoin

        self._keeps_keys = may_be_saved(context) or self._how in UNMATCHED
        self._empty = EmptyResults(at_once=may_be_saved(context))
        if self._how in UNMATCHED and context.total_parallelism > 1 and BUILD_EDGE in placement_in(context).broadcast:
            raise ProcessorError(
                f"vertex {context.vertex_name!r}: a join with how={self._how!r} gives each row of edge 1 without a "
                f"match once, but {context.total_parallelism} processors have all these rows; partition both edges by "
                "their key columns instead of broadcasting edge 1, or run the vertex with one processor"
            )
        self._join = HashJoin(
            on=self._on,
            suffix=self._suffix,
            schema=self._build_schema,
            keeps_keys=self._keeps_keys,
            probe_schema=self._stream_schema if self._how in UNMATCHED else None,
            notes_matches=self._how in UNMATCHED,
        )
        self._join.seek(self._sought)
        super().init(outbox, context)

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Join batches of edge 0, or put those of edge 1 into the table."""
        if ordinal == 1:
            self._build(inbox)
        elif ordinal > 1:
            raise ProcessorError(f"hash_join_batches joins edges 0 and 1, but items arrived on edge {ordinal}")
        elif not self._is_built:
            raise ProcessorError(
                f"vertex {self.context.vertex_name!r}: batches of the stream (edge 0) arrived before edge 1 was "
                "complete; give the joined edge a lower priority number: .priority(-1)"
            )
        else:
            super().process(ordinal, inbox)

    def expand(self, ordinal: int, items: list[Any]) -> Iterable[Batch]:
        """Join some batches of edge 0."""
        require_batches("hash_join_batches", items)
        return self._joined(items)

    def complete_edge(self, ordinal: int) -> bool:
        """Get the table ready when edge 1 has ended, some megabytes a call."""
        if ordinal == 1 and not self._is_built:
            assert self._join is not None
            self._is_built = self._join.build(BUILT_BYTES)
            return self._is_built
        return super().complete_edge(ordinal)

    def results(self) -> Iterator[Batch]:
        """Return the rows of edge 1 without a match, where they are wanted, and what tells columns without rows."""
        assert self._join is not None
        assert self._empty is not None
        if self._how in UNMATCHED:
            for batch in self._join.unmatched(self._rows):
                self._empty.passing(batch)
                yield batch
        if self._tells_columns:
            yield from self._empty.rest()

    def _capture(self) -> bool:
        if not self._keeps_keys:
            raise NotSavedError(
                "the keys of a join's build side are kept in jobs with a processing_guarantee or an endless source"
            )
        if not self.emission.flush_rest():
            return False
        self._saving.take(self.outbox, self._state().entries(self._is_built))
        return True

    def save_to_snapshot(self) -> bool:
        """Save the build side. The stream leaves nothing behind: its batches are joined before the barrier."""
        return self._saving.save(self._capture)

    def restore_from_snapshot(self, inbox: Inbox) -> None:
        """Take rows of the build side, for as long as a call should take."""
        deadline = monotonic_ns() + policy_in(self.context).call_ns
        state = self._restoring = self._restoring or self._state()
        while inbox:
            state.restore(*inbox.poll())
            if monotonic_ns() >= deadline:
                return

    def finish_snapshot_restore(self) -> bool:
        """Get the table ready if it was, some megabytes a call."""
        if self._restoring is not None:
            assert self._join is not None
            if self._restoring.was_built and not self._join.build(BUILT_BYTES):
                return False
            self._is_built = self._restoring.was_built
            self._restoring = None
        return True

    def _state(self) -> BuildSideState:
        assert self._join is not None
        return BuildSideState(self._join, self._on, self.context)

    def _build(self, inbox: Inbox) -> None:
        assert self._join is not None
        deadline = monotonic_ns() + policy_in(self.context).call_ns
        while inbox:
            batch = inbox.poll()
            require_batches("hash_join_batches", [batch])
            self._join.add(batch.select(*self._on.values()) if self._keys_only else batch)
            if monotonic_ns() >= deadline:
                return

    def _joined(self, items: list[Batch]) -> Iterator[Batch]:
        from shmjet.data.schema_heads import known_columns

        assert self._join is not None
        assert self._empty is not None
        join = getattr(self._join, self._how)
        for batch in items:
            schema = (tuple(batch.schema.items()), known_columns(batch)) if self._tells_columns else None
            if self._tells_columns and schema not in self._schemas:
                self._schemas.add(schema)
                head = self._empty.passing(self._join.head(batch, self._how))
                if head is not None:
                    yield head
            for made in join(batch, self._rows):
                self._empty.passing(made)
                yield made


def hash_join_batches(
    on: str | Sequence[str] | ColumnKey | Mapping[str, str],
    *,
    how: str = "inner",
    suffix: str | None = None,
    build_schema: Mapping[str, Any] | None = None,
    stream_schema: Mapping[str, Any] | None = None,
    batch_rows: int = BATCH_ROWS,
) -> Callable[[], Processor]:
    """Join the rows of batches on edge 0 with those of edge 1, which are kept in memory by key.

    Keys are equal as in Python: numbers by value whatever their dtypes, dates (units from years to days) and times
    (hours to microseconds) whatever their unit, but never a date and a time; nulls and NaN equal nothing. Results have
    the columns of edge 0 and then, but for `semi` and `anti`, the columns of edge 1 other than its keys.

    Args:
        on: the key columns: a name, several names, what `columns("a", "b")` returns, or a dict from names on edge 0 to
            names on edge 1.
        how: `"inner"`: each pair of rows with equal keys; `"left"`: rows of edge 0 without a match too, with nulls;
            `"right"`: pairs, and rows of edge 1 without a match, whose keys stand under the names of edge 0 and nulls
            in its other columns; `"outer"`: pairs and the rows of both edges without a match; `"semi"`: rows of edge 0
            with a match, once; `"anti"`: those without.
        suffix: is appended to the name of a column of edge 1 that edge 0 has too, which is an error by default.
        build_schema: name → type of the columns of edge 1, as `schema` of `to_batches`; a left join needs it where
            there may be no batch on that edge at all, for any processor.
        stream_schema: the same for edge 0, which right and outer joins need.
        batch_rows: rows of an emitted batch, at most.

    Give edge 1 `.broadcast()` and `.priority(-1)`; or partition both edges by their key columns, edge 1 with
    `.priority(-1)`. Right and outer joins need the second, or one processor, because a row of edge 1 without a match is
    given once.

    Raises:
        BatchError: no key column is named, one is named twice, or a schema is none. Columns that do not exist or
            cannot be equal make the job fail, and so does a right or outer join with a broadcast edge.
        ValueError: `how` or `batch_rows` is wrong.

    Example:
        >>> from shmjet import Batch
        >>> from shmjet.testing import verify_processor
        >>> visits, cities = Batch({"city": ["Oslo", "Bonn"]}), Batch({"city": ["Oslo"], "country": ["no"]})
        >>> verify_processor(hash_join_batches("city")).inputs([visits], [cities]).priorities(0, -1).expect(
        ...     [Batch({"city": ["Oslo"], "country": ["no"]})])
    """
    if how not in KINDS:
        raise ValueError(f"hash_join_batches: how must be one of {', '.join(KINDS)}, got {how!r}")
    check_batch_rows("hash_join_batches", batch_rows)
    if isinstance(on, Mapping):
        streamed, kept = checked_names("hash_join_batches: on", on), checked_names("hash_join_batches: on", on.values())
    else:
        streamed = kept = checked_names("hash_join_batches: on", on)
    if build_schema is not None:
        from shmjet.columns.schemas import schema_of

        build_schema = schema_of(build_schema)
    if stream_schema is not None:
        from shmjet.columns.schemas import schema_of

        stream_schema = schema_of(stream_schema)
    keys = dict(zip(streamed, kept, strict=True))
    supply = Supply(HashJoinBatchesProcessor, keys, how, suffix, build_schema, batch_rows, stream_schema)
    supply.state_kind += f" with {', '.join(kept)}"
    return supply


def seeking(supplier: Callable[[], Processor], names: frozenset[str]) -> Callable[[], Processor]:
    """Return a supplier of joins that have some columns also where the side that they are of has had no batch.

    Args:
        supplier: what `hash_join_batches` gave.
        names: of the columns that are read of results.
    """
    assert isinstance(supplier, Supply), supplier
    made = Supply(supplier.processor, *supplier.args, **supplier.kwargs, sought=names)
    made.state_kind = supplier.state_kind
    return made
