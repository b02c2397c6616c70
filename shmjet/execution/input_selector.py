"""What one processor takes in: which of its edges is drained next, in what order, and which marks end a batch.

Edges of one priority are consumed together, round robin, the next group when they are exhausted. A batch that was
drained is handed out in slices, then the mark behind it counts: watermarks are coalesced over all edges, and an edge
that has brought a barrier waits until it has come on every edge of the group. Must not know the processor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from shmjet._native import Coalescer
from shmjet.core import ShmjetError, Watermark, WatermarkError
from shmjet.data.marks import DONE, Barrier, Mark, watermark_of
from shmjet.execution.inbound_edge import InboundEdge

_MOVING = ("_coalescer", "_cursor", "_mark_edge", "aligned", "barrier", "mark", "received", "received_batches")
"""Fields that move to another worker as they are."""


class InputSelector:
    """The inbound edges of one tasklet, and what has been drained from them.

    Args:
        inbound: one for each ordinal.
    """

    def __init__(self, inbound: Sequence[InboundEdge]) -> None:
        self.edges = sorted(inbound, key=lambda edge: edge.ordinal)
        self.buffered = [edge for edge in inbound if edge.is_buffered]
        self.group: list[InboundEdge] = []
        """The edges that are being consumed; empty when all are exhausted."""
        self.edge: InboundEdge | None = None
        """The edge that the last batch or mark has come from, until that is complete."""
        self.mark: Watermark | Barrier | None = None
        """Comes after what is left of the batch."""
        self.barrier: Barrier | None = None
        """Has come on all edges, and is to be passed on."""
        self.aligned: dict[int, Barrier] = {}
        """By ordinal, the barriers that have come, while others have not."""
        self._coalescer = Coalescer(len(inbound), WatermarkError)
        self.received = self.received_batches = 0
        self._groups = _by_priority(inbound)
        self._cursor = 0
        self.has_items = False
        """Whether something is left of the batch that was drained last."""
        self._batch: list[Any] = []
        self._batch_pos = 0
        self._mark_edge = 0
        self._open_next_group()

    @property
    def has_input(self) -> bool:
        """Whether something has been drained that has not been dealt with: items, a mark, the end of an edge."""
        return (
            self.has_items
            or self.mark is not None
            or self.barrier is not None
            or not self.group
            or (self.edge is not None and self.edge.done)
        )

    @property
    def may_have_more(self) -> bool:
        """Whether there may be something to deal with, or to drain, that nothing else tells of."""
        if self.buffered or self.has_input:
            return True
        for edge in self.group:  # noqa: SIM110 (a generator would cost as much as all the rest)
            if edge.may_have_more:
                return True
        return False

    def soak(self) -> bool:
        """Empty the lanes of buffered edges into memory; True when anything was there."""
        found = False
        for edge in self.buffered:
            if edge.soak():
                found = True
        return found

    def drain(self, limit: int) -> bool:
        """Drain at most one edge of about `limit` items, when nothing is left; True when a lane has moved."""
        group, aligned = self.group, self.aligned
        count, moved_any = len(group), False
        for step in range(count):
            at = (self._cursor + step) % count
            edge = group[at]
            if aligned and edge.ordinal in aligned and edge.holds(aligned[edge.ordinal]):
                continue
            items, mark, moved = edge.drain(limit)
            moved_any = moved_any or moved
            if items is not None or mark is not None or edge.done:
                self.edge = edge
                self._cursor = (at + 1) % count
                self._batch = items or []
                self._batch_pos = 0
                self.has_items = bool(items)
                self.mark = None if mark is None else _checked(mark)
                self._mark_edge = edge.ordinal
                if items is not None:
                    self.received += len(items)
                    self.received_batches += 1
                    self._coalescer.observe_event(edge.ordinal)
                break
        return moved_any

    def next_slice(self, limit: int) -> list[Any]:
        """Return the next items of the batch, at most `limit`; only while it has some."""
        batch, pos = self._batch, self._batch_pos
        self._batch_pos = end = pos + limit
        if end < len(batch):
            return batch[pos:end]
        self._batch, self._batch_pos, self.has_items = [], 0, False
        return batch[pos:] if pos else batch

    def take_mark(self) -> Watermark | None:
        """Let the mark behind the batch count, if there is one; return a watermark that has come on all edges."""
        mark, self.mark = self.mark, None
        if isinstance(mark, Watermark):
            return watermark_of(self._coalescer.observe_watermark(self._mark_edge, mark.timestamp))
        if isinstance(mark, Barrier):
            edge = self.edges[self._mark_edge]
            other = next(iter(self.aligned.values()), mark)
            if other.snapshot_id != mark.snapshot_id:
                raise ShmjetError(
                    f"barriers of snapshots {other.snapshot_id} and {mark.snapshot_id} met on the inputs of a processor"
                )
            self.aligned[self._mark_edge] = mark
            if edge.holds(mark):
                edge.open(False)
            self._align()
        return None

    def end_edge(self) -> Watermark | None:
        """Note that the processor has completed `edge`; return a watermark that only this edge has held back."""
        edge, self.edge = self.edge, None
        assert edge is not None
        edge.refuse_late()
        at = self._cursor - 1  # where it was drained, unless it has moved from elsewhere
        if self.group[at] is not edge:
            at = self.group.index(edge)
        del self.group[at]
        if 0 <= at < self._cursor:
            self._cursor -= 1
        if not self.group:
            self._open_next_group()
        self._align()
        return watermark_of(self._coalescer.input_done(edge.ordinal))

    def pending_idle(self) -> Watermark | None:
        """Return `IDLE` when it has to follow the watermark that was returned last."""
        return watermark_of(self._coalescer.pending())

    def refuse_late(self) -> None:
        """Check that nothing has come on an edge since it ended; `ShmjetError` if something has."""
        for edge in self.edges:
            edge.refuse_late()

    def resume(self) -> None:
        """Go on behind a barrier that has been passed on."""
        self.barrier = None
        self.aligned.clear()
        for edge in self.group:
            edge.open(True)

    def heads(self) -> list[tuple[tuple[str, int], list[Any]]]:
        """Return what ordered edges hold at a barrier, as entries: items that have come and are not merged yet."""
        return [(("head", edge.ordinal), items) for edge in self.edges for items in edge.heads()]

    def _align(self) -> None:
        """Take the barrier once it has come on every edge that is being consumed; such an edge waits for it."""
        if self.aligned and all(edge.ordinal in self.aligned for edge in self.group):
            self.barrier = next(iter(self.aligned.values()))

    def _open_next_group(self) -> None:
        if self._groups:
            self.group = self._groups.pop(0)
            for edge in self.group:
                edge.open(True)
        self._cursor = 0
        for group in self._groups:
            for edge in group:
                edge.open(False)

    # -- moving to another worker -------------------------------------------------------------------------------

    @property
    def in_fragments(self) -> bool:
        """Whether an item has come in part on one of the edges."""
        return any(edge.in_fragments for edge in self.edges)

    def export_state(self) -> dict[str, Any]:
        """Return all that a twin on another worker needs to go on."""
        return {
            "plain": {name: getattr(self, name) for name in _MOVING},
            "batch": self._batch[self._batch_pos :],
            "edge": None if self.edge is None else self.edge.ordinal,
            "group": [edge.ordinal for edge in self.group],
            "groups": [[edge.ordinal for edge in group] for group in self._groups],
            "edges": [edge.export_state() for edge in self.edges],
        }

    def import_state(self, state: dict[str, Any]) -> None:
        """Go on where a twin on another worker stopped."""
        for edge, edge_state in zip(self.edges, state["edges"], strict=True):
            edge.import_state(edge_state)
        for name, value in state["plain"].items():
            setattr(self, name, value)
        self._batch, self._batch_pos = state["batch"], 0
        self.has_items = bool(self._batch)
        self.edge = None if state["edge"] is None else self.edges[state["edge"]]
        self.group = [self.edges[ordinal] for ordinal in state["group"]]
        self._groups = [[self.edges[ordinal] for ordinal in group] for group in state["groups"]]
        for edge in self.edges:
            barrier = self.aligned.get(edge.ordinal)
            edge.open(edge in self.group and (barrier is None or not edge.holds(barrier)))


def _checked(mark: Mark) -> Watermark | Barrier:
    assert mark is not DONE  # an edge takes it in itself
    return cast("Watermark | Barrier", mark)


def _by_priority(edges: Sequence[InboundEdge]) -> list[list[InboundEdge]]:
    """Group edges that are consumed together, the first group first."""
    groups: dict[int, list[InboundEdge]] = {}
    for edge in edges:
        groups.setdefault(edge.priority, []).append(edge)
    return [groups[priority] for priority in sorted(groups)]
