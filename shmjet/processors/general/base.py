"""The bases of the processors in this package: a list of items in, a list of items out.

They are to lists what `AbstractProcessor` is to single items: a subclass says how a list of items becomes results, and
suspending and resuming are dealt with here. The per-item work is then one comprehension or one chain of C iterators.

Must not know: what any processor computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from time import monotonic_ns
from typing import Any

from shmjet.core.inbox import Inbox
from shmjet.core.latency_policy import policy_in
from shmjet.core.outbox import Ordinals, Outbox
from shmjet.core.processor import NO_STATE, Processor, ProcessorContext
from shmjet.data.columnar import Columnar
from shmjet.data.errors import BatchError, ProcessorError
from shmjet.processors.general.emission import Emission
from shmjet.processors.general.failures import FailureGuard, OnError, main_ordinals, side_count

FIRST_RATIO = 16.0
"""Results per item that are expected before the first item."""

LEAST_RATIO = 0.05
"""Results per item that are expected at least, or a rare result would let a call take a whole large inbox."""

SPARE = 1.2
"""By how much the results of the next items may exceed the usual before the outbox is full."""

LAZY_FILL = 0.98
"""How full the last items of an inbox may make the outbox: whether a lazy sequence has ended shows only below that."""


_SWEPT_AT_ONCE = 256
"""Results drawn between two looks at the clock."""


class BulkProcessor(Processor):
    """A processor that takes its inbox as a list: the base of sources, sinks and aggregations.

    A subclass overrides `absorb` (called with each fresh list of items), when it has results at the end `results`
    (called once, after the last item), and `finish`.

    No subclass leaves output behind when its inbox is empty, so watermarks, barriers and the ends of edges need no
    flushing, and an idle processor need not be called (`try_process` is not overridden).

    One with state also overrides `saved_entries` and `restore_entries`. What `results` gives is drawn only as far as it
    is emitted, so its state is what has not been drawn: `emission.drawn` items of `results` have been.
    """

    emission: Emission

    failure_policies: tuple[OnError | None, ...] = ()
    """What is done with items whose functions raise; set before `init`. Without any, an error fails the job."""

    guard: FailureGuard | None = None
    """Takes items whose functions raise, where there is a policy for that."""

    main: Ordinals = -1
    """The outbound ordinals of the results: all but those of failed items."""

    entries_at_once = 256
    """Saved entries that take about a tenth of a millisecond to make."""

    _entries_left: Iterator[tuple[Any, Any]] | None = None
    _sweeping: Iterator[Any] | None = None
    _swept = False

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        """Keep outbox and context, then call `start`."""
        super().init(outbox, context)
        if any(self.failure_policies):
            self.main = main_ordinals(outbox, side_count(self.failure_policies))
            self.guard = FailureGuard(self.failure_policies, outbox, context)
        self.emission = Emission(outbox, self.main, call_ns=policy_in(context).call_ns)
        self._finishing = False
        self._held = False
        self.start(context)

    def start(self, context: ProcessorContext) -> None:
        """Prepare, once, before the first item. It may block."""

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Process a non-empty list of items that came in on `ordinal`; the list is the processor's to keep."""
        raise ProcessorError(f"{type(self).__name__} is a source: it accepts no items, but edge {ordinal} brought some")

    def results(self) -> Iterable[Any]:
        """Return what is to be emitted after the last item; it is drawn lazily. Called once."""
        return ()

    def finish(self) -> bool:
        """Do the last work once everything is emitted (close a file, say); False: call again."""
        return True

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Empty the inbox."""
        self.absorb(ordinal, inbox.take())

    def complete(self) -> bool:
        """Emit `results`, as far as there is room; then `finish`."""
        if not self._finishing:
            self._finishing = True
            self.emission.start(self.results())
        return self.emission.flush() and self.finish()

    @property
    def is_sweeping(self) -> bool:
        """Whether a sweep has begun and not come to its end."""
        return self._sweeping is not None

    def sweep(self, results: Callable[[], Iterator[Any]]) -> bool:
        """Emit what an iterator gives and is not None, in short calls, however rare that is.

        Args:
            results: makes the iterator, when the sweep begins.

        Returns:
            True at its end. False: leave the callback, and call `sweep` again before anything else.
        """
        emission, guard = self.emission, self.guard
        if self._sweeping is None:
            self._sweeping = results()
        deadline = monotonic_ns() + policy_in(self.context).call_ns
        while emission.flush() and (guard is None or guard.flush()):
            if self._swept:
                self._sweeping, self._swept = None, False
                return True
            drawn = list(islice(self._sweeping, _SWEPT_AT_ONCE))
            self._swept = len(drawn) < _SWEPT_AT_ONCE
            emission.put([result for result in drawn if result is not None])
            if not self._swept and monotonic_ns() >= deadline:
                return False
        return False

    def _emitted_drawn(self) -> bool:
        return self.emission.flush_rest() and (self.guard is None or self.guard.flush())

    def saved_entries(self) -> Iterable[tuple[Any, Any]]:
        """Return the state as (key, value) entries; they are drawn over several calls, in which nothing changes."""
        return ()

    def restore_entries(self, entries: list[tuple[Any, Any]]) -> None:
        """Take saved entries back."""
        raise ProcessorError(f"{type(self).__name__} got saved state, but has none: {entries[0]!r:.80}")

    def save_to_snapshot(self) -> bool:
        """Emit what a sweep has drawn, then save `saved_entries`."""
        if self._sweeping is not None and not self._emitted_drawn():
            return False
        entries = self._entries_left
        if entries is None:
            entries = self._entries_left = iter(self.saved_entries())
        if not self.outbox.offer_all_to_snapshot(entries, self.entries_at_once):
            return False
        self._entries_left = None
        return True

    def restore_from_snapshot(self, inbox: Inbox) -> None:
        """Hand the entries in the inbox to `restore_entries`."""
        self.restore_entries(inbox.take())

    def hold(self, inbox: Inbox, item: Any) -> None:
        """Leave an item in the inbox that has become empty, so that `process` is called again before anything else."""
        if not inbox:
            inbox.fill([item])
            self._held = True

    def release(self, inbox: Inbox) -> None:
        """Remove the item that `hold` left."""
        if self._held:
            self._held = False
            inbox.remove()


class TransformingProcessor(BulkProcessor):
    """A processor that makes at most one item of each. It takes as many as there is room for."""

    def transform(self, items: list[Any]) -> list[Any]:
        """Return what is to be emitted for a list of items, no more than there are, in a list to be given away."""
        raise ProcessorError(f"{type(self).__name__} must override transform(items)")

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Transform what there is room for, until half of the room is used or the inbox is empty."""
        outbox, main, guard = self.outbox, self.main, self.guard
        room = least = outbox.room()
        while inbox and room and 2 * room >= least:
            outbox.give(self.transform(inbox.take(room)), main)
            if guard is not None:
                guard.flush()  # there is room: each item has failed at most once
                self.failed_items_skipped = guard.skipped
            room = outbox.room()


class ExpandingProcessor(BulkProcessor):
    """A processor that makes any number of items of each, lazily.

    It takes about so many items as will fill the room there is, by the ratio it has met so far; a callback then does
    what it takes, and the engine's measure of the time per item is right.
    """

    fill = LAZY_FILL
    """How full the last items of an inbox may make the outbox, by what is expected of them."""

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        """As `BulkProcessor.init`."""
        self._ratio = FIRST_RATIO
        self._taken = 0
        super().init(outbox, context)

    def expand(self, ordinal: int, items: list[Any]) -> Iterable[Any]:
        """Return what is to be emitted for a list of items, as a lazy iterable."""
        raise ProcessorError(f"{type(self).__name__} must override expand(ordinal, items)")

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Emit what is left of earlier items, then expand as many as will probably fit."""
        emission = self.emission
        if not emission.idle or not (self.guard is None or self.guard.idle):
            if not self._flush():
                return
            self.release(inbox)
        room = self.outbox.room()
        if not inbox or not room:
            return
        fit = room / self._ratio
        items = inbox.take(len(inbox) if len(inbox) <= self.fill * SPARE * fit + 1 else max(1, int(fit)))
        last = items[-1]
        self._taken = len(items)
        emission.drawn = 0
        self.begin(ordinal, items)
        if not self._flush():
            self.hold(inbox, last)

    def begin(self, ordinal: int, items: list[Any]) -> None:
        """Hand what a list of items makes to the emission, which is idle."""
        self.emission.start(self.expand(ordinal, items))

    def _flush(self) -> bool:
        if not self.emission.flush():
            return False
        if self.guard is not None:
            self.failed_items_skipped = self.guard.skipped
            if not self.guard.flush():
                return False
        met = SPARE * self.emission.drawn / self._taken
        self._ratio = max(met, (3 * self._ratio + met) / 4, LEAST_RATIO)
        return True


def require_batches(processor: str, items: list[Any]) -> None:
    """Check that all items are batches, for a processor that works on nothing else.

    Args:
        processor: what the user calls it.
        items: what came.

    Raises:
        BatchError: an item is not a batch; the text says how to make batches of items.
    """
    for item in items:
        if not isinstance(item, Columnar):
            raise BatchError(
                f"{processor} expected a Batch, got {type(item).__name__} {item!r:.80}; put a vertex with "
                "processors.to_batches() in front, or use a processor for items"
            )


def check_batch_rows(processor: str, rows: Any) -> None:
    """Check the argument `batch_rows` of a processor. Raises ValueError when it is not an int from 1 on."""
    if not isinstance(rows, int) or isinstance(rows, bool) or not 1 <= rows < 1 << 31:
        raise ValueError(f"{processor}: batch_rows must be at least 1 and below 2**31, got {rows!r}")


class Supply:
    """A picklable supplier without arguments: makes `processor(*args, **kwargs)`.

    The attribute `is_cooperative` spares the engine a probe. `takes_schemas` says that the processors want to know the
    columns of all batches on partitioned edges, those too of which they get no row (`shmjet.data.schema_heads`).
    `is_endless` says that they are a source without an end.
    `state_kind` names what their saved state is; empty when nothing is known of it, `NO_STATE` where they have none.

    Example:
        >>> Supply(dict, a=1)()
        {'a': 1}
    """

    __slots__ = ("args", "is_cooperative", "is_endless", "kwargs", "processor", "state_kind", "takes_schemas")

    processor: Callable[..., Any]

    def __init__(self, processor: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self.processor = processor
        self.args = args
        self.kwargs = kwargs
        self.is_cooperative: bool = getattr(processor, "is_cooperative", True)
        self.is_endless: bool = getattr(processor, "is_endless", False) is True
        self.takes_schemas: bool = getattr(processor, "takes_schemas", False) is True
        self.state_kind: str = getattr(processor, "state_kind", "") or _kind_without_state(processor)

    @property
    def __name__(self) -> str:
        """Name of what it makes, for drawings and messages."""
        return getattr(self.processor, "__name__", type(self.processor).__name__)

    def __call__(self) -> Any:
        return self.processor(*self.args, **self.kwargs)

    def __repr__(self) -> str:
        return f"Supply({getattr(self.processor, '__name__', self.processor)})"


def _kind_without_state(processor: object) -> str:
    """Return `NO_STATE` for a class of processors that would refuse any saved entry; else an empty text."""
    restores = getattr(processor, "restore_from_snapshot", None), getattr(processor, "restore_entries", None)
    return NO_STATE if restores == (BulkProcessor.restore_from_snapshot, BulkProcessor.restore_entries) else ""


def telling_columns(supplier: Callable[[], Processor]) -> Callable[[], Processor]:
    """Return a supplier of processors that emit a batch without rows where they have no rows, for its columns.

    Args:
        supplier: a `Supply` of processors that have a flag `tells_columns`.

    Example:
        >>> telling_columns(Supply(dict, a=1))()
        {'a': 1, 'tells_columns': True}
    """
    assert isinstance(supplier, Supply), supplier
    telling = Supply(supplier.processor, *supplier.args, **supplier.kwargs, tells_columns=True)
    telling.state_kind = supplier.state_kind
    return telling
