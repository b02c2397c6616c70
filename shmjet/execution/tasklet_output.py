"""What one tasklet emits, on its way from the outbox to the lanes: its outbound ordinals, flushed between callbacks.

Nothing here knows states or when a processor is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shmjet._native import RingProducer
from shmjet.core import Outbox
from shmjet.data.marks import Mark
from shmjet.execution.counters import ProcessorCounters
from shmjet.execution.outbound_edge import Outbound
from shmjet.ring.lane import LaneWriter


class TaskletOutput:
    """The outbound ordinals of one tasklet.

    Args:
        outbox: of the processor.
        edges: its outbound ordinals in order.
        counters: where it is noted how long they wait for room.
        clock: nanoseconds, monotonic.
    """

    def __init__(
        self, outbox: Outbox, edges: Sequence[Outbound], counters: ProcessorCounters, clock: Callable[[], int]
    ) -> None:
        self.edges = list(edges)
        self.unflushed = False
        """Whether something may be left to hand over before the next callback."""
        self._outbox = outbox
        self._counters = counters
        self._clock = clock

    def flush(self) -> tuple[bool, bool]:
        """Hand over the outbox.

        Returns:
            whether all of it has left, and whether anything was moved.
        """
        buckets = self._outbox.buckets
        complete, moved = True, False
        for ordinal, out in enumerate(self.edges):
            bucket = buckets[ordinal]
            if bucket:
                out.add(bucket, self._outbox._is_plain(bucket))
                buckets[ordinal] = []
                moved = True
            before = 0 if moved else out.moved
            if not out.flush():
                complete = False
                if not out.is_waiting:
                    out.is_waiting = True
                    self._counters.note_waiting(ordinal, self._clock())
            elif out.is_waiting:
                out.is_waiting = False
                self._counters.note_room(ordinal, self._clock())
            moved = moved or out.moved != before
        self.unflushed = not complete
        return complete, moved

    def flush_buffered(self) -> bool:
        """Hand over the rows of batches that routers keep back, as far as lanes have room; True if any was moved."""
        moved = False
        for out in self.edges if not self.unflushed else ():
            if out.has_buffered_rows:
                before = out.moved
                out.flush_buffered()
                moved = moved or out.moved != before
        return moved

    @property
    def may_have_left(self) -> bool:
        """Whether something is left that has to be handed over."""
        return self.unflushed or self.has_buffered_rows

    @property
    def has_buffered_rows(self) -> bool:
        """Whether routers keep rows of batches back."""
        for out in self.edges:  # noqa: SIM110 (a generator costs three times as much, at each call of a tasklet)
            if out.has_buffered_rows:
                return True
        return False

    def emit_mark(self, mark: Mark) -> None:
        """Queue a mark on every ordinal, after all that the processor has emitted."""
        buckets = self._outbox.buckets
        for ordinal, out in enumerate(self.edges):
            if buckets[ordinal]:
                out.add(buckets[ordinal])
                buckets[ordinal] = []
            out.add_mark(mark)
        self.unflushed = True

    @property
    def producers(self) -> list[RingProducer]:
        """The writing ends of all ring lanes, to be polled for room."""
        return [producer for out in self.edges for producer in out.producers]

    def export_state(self) -> list[Any]:
        """Return what a twin on another worker needs to go on; only while nothing is left in here."""
        return [out.export_state() for out in self.edges]

    def import_state(self, state: list[Any]) -> None:
        """Go on where a twin on another worker stopped."""
        for out, out_state in zip(self.edges, state, strict=True):
            out.import_state(out_state)

    def relink(self, ordinal: int, old: LaneWriter, new: LaneWriter) -> None:
        """Go on with another lane to a consumer that moves away."""
        self.edges[ordinal].replace(old, new)
