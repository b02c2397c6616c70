"""The processors that add up words: those of a text column, and the counts of an earlier stage.

A first stage emits its counts before a barrier and begins anew. Sums are saved share by share, as their edge deals
them; sums that came in batches in pieces of one partition each. Must not know files.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final, cast

from shmjet.columns.words import WordCounter, WordPiece
from shmjet.core.broadcast_key import BroadcastKey
from shmjet.core.inbox import Inbox
from shmjet.core.latency_policy import policy_in
from shmjet.core.processor import ProcessorContext
from shmjet.core.state_placement import takes_place
from shmjet.data.columnar import Columnar
from shmjet.processors.columns.saving import EntrySteps, check_form, row_partitions
from shmjet.processors.general.base import BulkProcessor, require_batches

if TYPE_CHECKING:
    from shmjet.data.batch import Batch

ROWS: Final = 8192
"""Words in a piece, at most."""

_SAVED_ROWS: Final = 1 << 16
"""Words that are brought into the order of their partitions at once."""

_BATCHES: Final = -1
"""Stands for the share of words that came in batches."""


class CountColumnProcessor(BulkProcessor):
    """Counts the words of a text column, and emits the counts at the end.

    Args:
        column: its name.
        lower: fold case.
    """

    state_kind = "count_column"

    movable = False  # its table is native memory

    def __init__(self, column: str, lower: bool) -> None:
        self._column = column
        self._lower = lower
        self._is_folded = self._is_flushing = False

    def start(self, context: ProcessorContext) -> None:
        """Begin with an empty table."""
        from shmjet.columns.text import WordCounts

        self._counts = WordCounts(lower=self._lower, seed=random.getrandbits(63))

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Count the words of batches."""
        require_batches("count_words_of", items)
        for batch in items:
            self._counts.add(batch[self._column])

    def complete(self) -> bool:
        """Fold what is not ASCII, a part at a time, then emit."""
        if not self._is_folded:
            self._is_folded = self._counts.fold()
        return self._is_folded and super().complete()

    def results(self) -> Iterable[Batch]:
        """Return the counts, a batch at a time."""
        position = 0
        while position >= 0:
            batch, position = self._counts.batch(position, ROWS)
            if batch.num_rows:
                yield batch

    def save_to_snapshot(self) -> bool:
        """Emit all counts and begin anew, so that there is nothing to save."""
        if not self._is_flushing and not self._finishing:
            overdue = self.outbox.overdue
            while not self._counts.fold():
                if overdue is not None and overdue():
                    return False
            self.emission.start(self.results())
            self._is_flushing = True
        if not self.emission.flush():
            return False
        if self._is_flushing:
            self._is_flushing = False
            self.start(self.context)
        return True


class CombineWordsProcessor(BulkProcessor):
    """Adds up counts of words and emits the sums at the end. There is a table for each share of the words.

    Args:
        batches: emit batches, otherwise plain tuples.
    """

    state_kind = "word totals"

    movable = False  # its tables are native memory
    _captures = True

    def __init__(self, batches: bool) -> None:
        self._batches = batches

    def start(self, context: ProcessorContext) -> None:
        """Begin without tables."""
        self._counters: dict[int, WordCounter] = {}
        self._captured: dict[int, WordCounter] = {}
        """The tables of the last barrier, while they are saved; what comes meanwhile goes to new ones."""
        self._since: dict[int, WordCounter] = {}
        """What has come meanwhile, as far as it has not been added to the old ones yet."""
        self._added = 0
        """How far the first of these has been added."""
        self._position = 0
        self._emit = emitter(self._batches)
        self._saving: EntrySteps | None = None

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Add the counts of pieces or batches."""
        for item in items:
            if isinstance(item, Columnar):
                from shmjet.columns.text import merge_batch

                merge_batch(self._counter(_BATCHES), cast("Batch", item))
            else:
                piece = WordPiece(*item)
                self._counter(piece.share).merge(piece.words, piece.counts)

    def _counter(self, share: int) -> WordCounter:
        counter = self._counters.get(share)
        if counter is None:
            counter = self._counters[share] = WordCounter(seed=random.getrandbits(63))
        return counter

    def results(self) -> Iterator[Any]:
        """Return pieces of the sums; a table is dropped when all of it is drawn."""
        while self._counters:
            share, counter = next(iter(self._counters.items()))
            piece, following = counter.piece(self._position, ROWS)
            self._position = max(following, 0)
            if following < 0:
                del self._counters[share]
            if piece.counts:
                yield self._emit(piece)

    def complete(self) -> bool:
        """Emit the sums when what has been captured is saved."""
        return (self._finishing or (self._saving is None and not self._since)) and super().complete()

    def _capture(self) -> bool:
        if not self.emission.flush_rest():
            return False
        self._saving = EntrySteps(self.outbox, self._entries(list(self._counters.items()), self._position))
        if not self._finishing:
            self._captured, self._counters = self._counters, {}
        return True

    def save_to_snapshot(self) -> bool:
        """Save the sums that have not been emitted, then bring together what was there and what has come meanwhile."""
        if self._saving is None and not self._since and not self._capture():
            return False
        if self._saving is not None:
            if not self._saving.flush():
                return False
            self._saving = None
            if not self._finishing:
                self._since, self._counters, self._captured = self._counters, self._captured, {}
        return self._add_since()

    def _add_since(self) -> bool:
        """Add a piece of what has come since the barrier; True when nothing is left."""
        if self._since:
            share, counter = next(iter(self._since.items()))
            piece, following = counter.piece(self._added, ROWS)
            if piece.counts:
                self._counter(share).merge(piece.words, piece.counts)
            self._added = max(following, 0)
            if following < 0:
                del self._since[share]
        return not self._since

    def _entries(self, counters: list[tuple[int, WordCounter]], position: int) -> Iterator[tuple[Any, Any] | None]:
        for share, counter in counters:
            if share == _BATCHES:
                yield from self._entries_of_batches(counter, position)
            else:
                for piece in _pieces(counter, position, ROWS):
                    yield share, tuple(piece._replace(share=share))
            position = 0

    def _entries_of_batches(self, counter: WordCounter, position: int) -> Iterator[tuple[Any, Any] | None]:
        from shmjet.columns.partition_order import batch_pieces
        from shmjet.columns.text import as_batch

        index, partitions = self.context.global_index, row_partitions(self.context, ("word",), {})
        for number, piece in enumerate(_pieces(counter, position, _SAVED_ROWS)):
            if partitions is None:
                yield BroadcastKey((index, number)), as_batch(piece)
                continue
            for part in batch_pieces(as_batch(piece), partitions.of, partitions.placement.count):
                yield None if part is None else (partitions.key_of(part), (partitions.form, part))

    def restore_from_snapshot(self, inbox: Inbox) -> None:
        """Add the sums of a snapshot, for as long as a call should take."""
        deadline = monotonic_ns() + policy_in(self.context).call_ns
        while inbox:
            self._restore(*inbox.poll())
            if monotonic_ns() >= deadline:
                return

    def _restore(self, key: Any, value: Any) -> None:
        if isinstance(key, BroadcastKey):
            index, _ = cast("tuple[int, int]", key.key)
            if takes_place(self.context, index):
                self.absorb(0, [value])
        elif len(value) == 2:
            form, batch = value
            check_form(self.context, "combine_words", form, row_partitions(self.context, ("word",), {}))
            self.absorb(0, [batch])
        else:
            self.absorb(0, [value])


def _pieces(counter: WordCounter, position: int, rows: int) -> Iterator[WordPiece]:
    """Yield the counts from a position on in pieces of at most so many words, none without words."""
    while position >= 0:
        piece, position = counter.piece(position, rows)
        if piece.counts:
            yield piece


def pieces_of(counter: WordCounter, emit: Callable[[WordPiece], Any], shares: int) -> Iterator[Any]:
    """Yield all counts, `emit(piece)` for each piece of at most `ROWS` words; none for a share without words."""
    for share in range(shares):
        position = 0
        while position >= 0:
            piece, position = counter.piece(position, ROWS, share, shares)
            if piece.counts:
                yield emit(piece)


def emitter(batches: bool) -> Callable[[WordPiece], Any]:
    """Return what makes an item of a piece."""
    if not batches:
        return tuple  # exactly a tuple, which the codec of rings takes to columns
    from shmjet.columns.text import as_batch

    return as_batch
