"""The bases of the sinks of maps and lists: gather items, and write them together; now, or when a snapshot is valid.

A *write-ahead* sink keeps what came since the last snapshot, saves it with the next one, and writes it when that is
valid. Each piece has a mark, which is written in the same transaction, so a piece that is written again after a restart
changes nothing. Must not know: how maps and lists are stored.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from time import monotonic
from typing import Any, Final

from shmjet.core.broadcast_key import BroadcastKey
from shmjet.core.inbox import Inbox
from shmjet.core.job import ProcessingGuarantee
from shmjet.core.latency_policy import policy_in
from shmjet.core.processor import ProcessorContext
from shmjet.data.errors import ProcessorError
from shmjet.processors.general.base import BulkProcessor

PIECE: Final = 1024
"""Items that are written in one transaction, and saved in one entry of a snapshot."""


def grid_of(context: ProcessorContext) -> Any:
    """Return the maps and lists of where a processor runs. Raises ProcessorError when there are none."""
    if context.grid is None:
        raise ProcessorError(f"vertex {context.vertex_name!r}: there are no maps and lists where it runs")
    return context.grid


class WriteProcessor(BulkProcessor):
    """Gathers items and writes them together: as many, and as soon, as the job's latency policy says.

    A write costs a third of a millisecond however few items it has.
    """

    def __init__(self) -> None:
        self._buffer: list[Any] = []
        self._due = 0.0
        self.next_call = math.inf

    def write(self, items: list[Any]) -> None:
        """Write a list."""
        raise ProcessorError(f"{type(self).__name__} must override write(items)")

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Gather items up to one batch, and write it when it is full."""
        buffer, policy = self._buffer, policy_in(self.context)
        if not buffer:
            self._due = monotonic() + policy.write_delay_ns / 1e9
        buffer += inbox.take(policy.write_items - len(buffer))
        if len(buffer) >= policy.write_items:
            self._flush()
        self.next_call = None if inbox else self._delay()

    def try_process(self) -> bool:
        """Write what has waited long enough."""
        if self._buffer and monotonic() >= self._due:
            self._flush()
        self.next_call = self._delay()
        return True

    def _delay(self) -> float:
        """Return the seconds until what is in the buffer has waited long enough."""
        return max(self._due - monotonic(), 0.0) if self._buffer else math.inf

    def save_to_snapshot(self) -> bool:
        """Write what came before the barrier."""
        self._flush()
        return True

    def finish(self) -> bool:
        """Write the rest."""
        self._flush()
        return True

    def _flush(self) -> None:
        if self._buffer:
            items, self._buffer = self._buffer, []
            self.write(items)


class WriteAheadProcessor(WriteProcessor):
    """Under EXACTLY_ONCE writes what a snapshot has when that is valid; otherwise as `WriteProcessor`.

    What one processor has saved is written by one processor after a restore, whole and in its order. Then a new marker
    is chosen, so that what is written afterwards has nothing to do with other jobs that go on from the same snapshot.
    """

    entries_at_once = 4
    """Each is a piece."""

    def start(self, context: ProcessorContext) -> None:
        """Choose a marker."""
        self._is_ahead = context.processing_guarantee is ProcessingGuarantee.EXACTLY_ONCE
        self._marker = os.urandom(16)
        self._number = 0
        self._waiting: list[Any] = []
        """What is not written yet, the saved items first."""
        self._saved: int | None = None
        """How many of them belong to the snapshot that is being taken."""
        self._written = 0
        """How many of these are written."""
        self._restored: dict[tuple[int, int], Any] = {}

    def write_once(self, items: list[Any], marker: bytes, mark: int) -> None:
        """Write a list of at most `PIECE` items unless that is done.

        Args:
            items: the same for the same marker and mark.
            marker: of the processor that saved them.
            mark: rises from piece to piece.
        """
        raise ProcessorError(f"{type(self).__name__} must override write_once(items, marker, mark)")

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Keep items for the next snapshot, or write them."""
        if not self._is_ahead:
            return super().process(ordinal, inbox)
        self._waiting += inbox.take()
        return None

    def save_to_snapshot(self) -> bool:
        """Save what is not written yet, or write it."""
        return BulkProcessor.save_to_snapshot(self) if self._is_ahead else super().save_to_snapshot()

    def saved_entries(self) -> Iterator[tuple[Any, Any]]:
        """Return what is not written yet, in pieces."""
        self._number += 1
        self._saved, self._written = len(self._waiting), 0
        for at in range(0, self._saved, PIECE):
            piece = tuple(self._waiting[at : min(at + PIECE, self._saved)])
            yield BroadcastKey((self.context.global_index, at // PIECE)), (self._marker, self._number, piece)

    def snapshot_commit_finish(self, success: bool) -> bool:
        """Write what the snapshot has, a piece a call; without success it belongs to the next snapshot."""
        if not self._is_ahead or self._saved is None:
            return True
        if success and self._written < self._saved:
            end = min(self._written + PIECE, self._saved)
            self.write_once(self._waiting[self._written : end], self._marker, _mark(self._number, self._written))
            self._written = end
            if end < self._saved:
                self.next_call = 0.0
                return False
        if success:
            del self._waiting[: self._saved]
        self._saved, self._written, self.next_call = None, 0, math.inf
        return True

    def restore_from_snapshot(self, inbox: Inbox) -> None:
        """Take what the processors have saved whose indexes are dealt to this one."""
        index, count = self.context.global_index, self.context.total_parallelism
        for key, value in inbox.take():
            if key.key[0] % count == index:
                self._restored[key.key] = value

    def finish_snapshot_restore(self) -> bool:
        """Write what has been saved, unless that is done, a piece a call."""
        if not self._restored:
            return True
        unit, piece = min(self._restored)
        marker, number, items = self._restored.pop((unit, piece))
        self.write_once(list(items), marker, _mark(number, piece * PIECE))
        self.next_call = 0.0 if self._restored else math.inf
        return not self._restored

    def finish(self) -> bool:
        """Write the rest. The last snapshot of the job has come before, so there is none when it was taken."""
        if not self._is_ahead:
            return super().finish()
        for at in range(0, len(self._waiting), PIECE):
            self.write_once(self._waiting[at : at + PIECE], self._marker, _mark(self._number + 1, at))
        self._waiting = []
        return True


def _mark(number: int, at: int) -> int:
    """Return the mark of a piece of a processor's snapshot; marks rise with snapshots and with pieces."""
    return (number << 32) + at // PIECE + 1
