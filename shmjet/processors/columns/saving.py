"""Offering large state to a snapshot in steps, and the partitions of saved rows of batches.

A piece of saved rows is one entry: its key is that of one of its rows, and all its rows are of one partition, so that
the piece comes to the processor that owns them. Must not know what the rows mean.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from shmjet.core.broadcast_key import BroadcastKey
from shmjet.core.outbox import Outbox
from shmjet.core.processor import ProcessorContext
from shmjet.core.state_placement import NullKey, StatePlacement, placement_in, takes_place
from shmjet.data.errors import PartitionError, ProcessorError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from shmjet.data.batch import Batch


PIECE_BYTES: Final = 512 << 10
"""Bytes of the rows in an entry, about; one row at least."""


Entry = tuple[Any, Any]


class LastingPart(NamedTuple):
    """A part of a state to which the next snapshot refers if it is the same as in the one before.

    Args:
        token: stands for what it holds, for as long as the processor lives.
        entries: makes its entries, step by step, as for `EntrySteps`.
    """

    token: Hashable
    entries: Callable[[], Iterator[Entry | None]]


class EntrySteps:
    """Entries that are made step by step, as far as the time of a call goes.

    Args:
        outbox: where they go.
        entries: pairs of key and value, made when they are drawn, and parts; None stands for a step of work without an
            entry.

    Example:
        >>> steps = EntrySteps(outbox, iter([("key", 1), None]))       # doctest: +SKIP
        >>> steps.flush()                                              # doctest: +SKIP
        True
    """

    def __init__(self, outbox: Outbox, entries: Iterator[Entry | LastingPart | None]) -> None:
        self._outbox = outbox
        self._entries = self._single(entries)
        self._refused: Entry | None = None

    def _single(self, entries: Iterator[Entry | LastingPart | None]) -> Iterator[Entry | None]:
        """Give the entries that have to be offered."""
        for entry in entries:
            lasting = self._outbox._lasting
            if not isinstance(entry, LastingPart):
                yield entry
            elif lasting is None:
                yield from entry.entries()
            elif lasting.refer(entry.token):
                yield None
            else:
                for each in entry.entries():
                    if each is not None:
                        lasting.add_lasting(entry.token, each)
                    yield None

    def flush(self) -> bool:
        """Offer what there is time for, in `save_to_snapshot`; True when all entries are saved."""
        outbox, overdue = self._outbox, self._outbox.overdue
        if self._refused is not None:
            if not outbox.offer_to_snapshot(*self._refused):
                return False
            self._refused = None
        for entry in self._entries:
            if entry is not None and not outbox.offer_to_snapshot(*entry):
                self._refused = entry
                return False
            if overdue is not None and overdue():
                return False
        return True


class CapturedState:
    """The state of a processor on its way into a snapshot: captured at once, and saved in as many calls as it takes."""

    def __init__(self) -> None:
        self._steps: EntrySteps | None = None

    def take(self, outbox: Outbox, entries: Iterator[Entry | LastingPart | None]) -> None:
        """Take the entries of the state as it is now, in `_capture`; see `EntrySteps`."""
        self._steps = EntrySteps(outbox, entries)

    def save(self, capture: Callable[[], bool]) -> bool:
        """Save what there is time for, in `save_to_snapshot`; True when all of it is saved.

        Args:
            capture: the processor's `_capture`, which is called unless the engine has called it.
        """
        if self._steps is None and not capture():
            return False
        assert self._steps is not None
        if not self._steps.flush():
            return False
        self._steps = None
        return True


class PlacedBatches:
    """Batches without partitions, saved by place in an order that a restore keeps, whichever entry comes first.

    Args:
        context: of the processor.
    """

    def __init__(self, context: ProcessorContext) -> None:
        self._context = context
        self._next: dict[int, int] = {}
        self._early: dict[tuple[int, int], Batch] = {}

    def entries(self, batches: Iterable[Batch], lasting: Container[int] = ()) -> Iterator[Entry | LastingPart]:
        """Give the entries of batches, each of some rows of one of them.

        Args:
            batches: what is saved.
            lasting: numbers of the batches that are the same in all later snapshots, with the same ones before them.
        """
        index, number = self._context.global_index, 0
        for place, batch in enumerate(batches):
            made = [(BroadcastKey((index, number + at)), piece) for at, piece in enumerate(cut(batch))]
            number += len(made)
            if place in lasting:
                yield LastingPart(place, partial(iter, made))
            else:
                yield from made

    def restored(self, key: Any, value: Any) -> Iterator[Batch]:
        """Take an entry of any processor; give the pieces whose turn it is, if this processor takes them over."""
        index, number = key.key
        if not takes_place(self._context, index):
            return
        self._early[index, number] = value
        while (piece := self._early.pop((index, self._next.get(index, 0)), None)) is not None:
            self._next[index] = self._next.get(index, 0) + 1
            yield piece


def cut(batch: Batch) -> Iterator[Batch]:
    """Give a batch in pieces of about `PIECE_BYTES`; one without rows as it is."""
    rows = max(1, PIECE_BYTES * batch.num_rows // max(batch.nbytes, 1))
    for at in range(0, max(batch.num_rows, 1), rows):
        yield batch[at : at + rows] if batch.num_rows > rows else batch


class RowPartitions(NamedTuple):
    """How rows are dealt to partitions by some of their columns, as the vertex's edge deals them."""

    columns: tuple[str, ...]
    placement: StatePlacement

    def of(self, batch: Batch) -> npt.NDArray[np.uint32]:
        """Return the partition of each row.

        Raises:
            BatchError: a column is missing.
            PartitionError: the edge's partitioner gives something other than a partition.
        """
        import numpy as np

        from shmjet.data.column_keys import hash_rows

        count, partitioner = self.placement.count, self.placement.partitioner
        if partitioner is None:
            hashes = hash_rows(batch, self.columns)
            np.remainder(hashes, np.uint32(count), out=hashes)
            return hashes
        found = [partitioner(key, count) for key in self._keys(batch)]
        if not all(0 <= partition < count for partition in found):
            raise PartitionError(f"a partitioner returned {min(found)} to {max(found)} for {count} partitions")
        return np.array(found, np.uint32)

    def key_of(self, batch: Batch) -> Any:
        """Return the key of the first row."""
        key = next(self._keys(batch[:1]))
        return NullKey() if key is None else key

    def _keys(self, batch: Batch) -> Iterator[Any]:
        rows = batch.select(*self.columns).tuples()
        return (row[0] for row in rows) if len(self.columns) == 1 else rows

    @property
    def form(self) -> tuple[int, tuple[str, ...]]:
        """What has to be the same in a restored job, see `check_form`."""
        return self.placement.count, self.columns


def row_partitions(context: ProcessorContext, keys: Sequence[str], renamed: Mapping[str, str]) -> RowPartitions | None:
    """Return how a vertex's rows are dealt; None where their key columns do not tell.

    Args:
        context: of a processor.
        keys: the key columns of the rows.
        renamed: the names that columns of the edge have in the rows, where they are others.
    """
    placement = placement_in(context)
    if not keys or not placement.is_partitioned:
        return None
    named = placement.columns
    columns = tuple(keys) if named is None else tuple(renamed.get(name, name) for name in named)
    return RowPartitions(columns, placement) if set(columns) <= set(keys) else None


def check_form(
    context: ProcessorContext, what: str, saved: tuple[int, tuple[str, ...]], now: RowPartitions | None
) -> None:
    """Check that pieces are of the partitions that there are now.

    Args:
        context: of the processor that restores.
        what: whose state it is, for the message.
        saved: the `form` under which it was saved.
        now: how rows are dealt now.

    Raises:
        ProcessorError: rows of a piece may belong to several processors.
    """
    if context.total_parallelism == 1 or (now is not None and tuple(saved) == now.form):
        return
    count, columns = saved
    there = "no partitions by columns" if now is None else f"{now.form[0]} partitions by {list(now.columns)}"
    raise ProcessorError(
        f"vertex {context.vertex_name!r}: the state of {what} was saved for {count} partitions by {list(columns)}, and "
        f"this job has {there}; keep the partition_count and the key of the edge, or run the vertex with one processor"
    )
