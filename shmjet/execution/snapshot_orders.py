"""The snapshots of one execution as one process sees them: the newest orders, and what its processors have to report.

An order belongs to the process, not to a tasklet: a tasklet compares the order's number with its own, so a tasklet from
another worker finds what it has missed. A processor that has ended is remembered here, with its last entries, until a
snapshot with them is valid. Must not know tasklets.
"""

from __future__ import annotations

from shmjet._native import Codec
from shmjet.execution.lasting_pieces import LastingPieces
from shmjet.execution.messages import AtEnd, Resolve, Resolved, Save, Saved, SavedProcessor
from shmjet.execution.snapshot_writer import ProcessorEntries, SnapshotWriter
from shmjet.execution.state_partitions import StatePartitions
from shmjet.snapshots.chunk import Entry
from shmjet.snapshots.manifest import Piece

Place = tuple[int, int]
"""A processor: index of its vertex in the plan, and its own."""


class SnapshotOrders:
    """What a process has been told of snapshots of one execution, and what it will answer.

    Args:
        execution_id: of the execution.
        process: names this process among those of all members.
        codec: of this process.
    """

    def __init__(self, execution_id: int, process: str, codec: Codec) -> None:
        self.save: Save | None = None
        """The newest order of phase one."""
        self.resolve: Resolve | None = None
        """The newest order of phase two."""
        self._execution_id = execution_id
        self._process = process
        self._codec = codec
        self._writer: SnapshotWriter | None = None
        self._ended: dict[Place, tuple[StatePartitions, list[Entry], bool]] = {}
        self._told: set[Place] = set()
        self._saved: list[SavedProcessor] = []
        self._resolved: list[Place] = []
        self._at_end: list[Place] = []

    # -- orders -------------------------------------------------------------------------------------------------

    def begin(self, save: Save) -> None:
        """Begin phase one of a snapshot; ended processors that belong to no valid snapshot yet are reported."""
        if self.save is not None and save.snapshot_id <= self.save.snapshot_id:
            return
        self.close()
        self.save = save
        self._told.clear()
        name = f"{save.snapshot_id}-{self._execution_id}-{self._process}.chunk"
        self._writer = SnapshotWriter(save.folder, name, self._codec)
        for place in list(self._ended):
            self._report_ended(place)

    def finish(self, resolve: Resolve) -> None:
        """Begin phase two of a snapshot; ended processors belong to a valid one for good, unless it was an export."""
        if not self.saves or self.save is None or self.save.snapshot_id != resolve.snapshot_id:
            return
        self.resolve = resolve
        self.close()
        if resolve.success and self.save.prepares:
            for place in self._told:
                del self._ended[place]
        self._told.clear()

    @property
    def saves(self) -> bool:
        """Whether phase one of the newest snapshot has begun, and phase two has not."""
        save, resolve = self.save, self.resolve
        return save is not None and (resolve is None or resolve.snapshot_id < save.snapshot_id)

    # -- what tasklets say --------------------------------------------------------------------------------------

    def entries_of(self, place: Place, partitions: StatePartitions, before: LastingPieces) -> ProcessorEntries:
        """Return what takes the entries of one processor to the snapshot that is being saved.

        Args:
            place: of the processor.
            partitions: of its vertex.
            before: what it may refer to.
        """
        assert self._writer is not None
        return ProcessorEntries(self._writer, partitions, place[1], before)

    def refuse(self, why: str) -> None:
        """Note why the snapshot that is being saved cannot become valid."""
        assert self._writer is not None
        self._writer.error = self._writer.error or why

    def saved(self, place: Place, pieces: list[Piece]) -> None:
        """Note that a processor has saved its state and passed the barrier on."""
        self._saved.append(SavedProcessor(*place, False, pieces))

    def resolved(self, place: Place) -> None:
        """Note that a processor has done phase two."""
        self._resolved.append(place)

    def at_end(self, place: Place) -> None:
        """Note that a sink has all its input."""
        self._at_end.append(place)

    def ended(
        self, place: Place, saved_id: int, partitions: StatePartitions, entries: list[Entry], *, tells_rest: bool
    ) -> None:
        """Note that a processor has ended.

        Args:
            place: of the processor.
            saved_id: the last snapshot to which it has reported.
            partitions: of its vertex.
            entries: its final state.
            tells_rest: whether these tell other processors what is left to do in its place.
        """
        self._ended[place] = partitions, entries, tells_rest
        if self.save is not None and self.saves and saved_id < self.save.snapshot_id:
            self._report_ended(place)

    def _report_ended(self, place: Place) -> None:
        partitions, entries, tells_rest = self._ended[place]
        assert self._writer is not None
        state = ProcessorEntries(self._writer, partitions, place[1])
        state.add(list(entries))
        state.flush(lambda: False)
        self._saved.append(SavedProcessor(*place, True, state.pieces, tells_rest))
        self._told.add(place)

    # -- reports ------------------------------------------------------------------------------------------------

    def take_reports(self) -> list[Saved | Resolved | AtEnd]:
        """Return what is to be told to the member since this was last asked."""
        reports: list[Saved | Resolved | AtEnd] = []
        if self._saved:
            assert self.save is not None
            error = None if self._writer is None else self._writer.error
            reports.append(Saved(self._execution_id, self.save.snapshot_id, self._saved, error))
            self._saved = []
        if self._resolved:
            assert self.resolve is not None
            reports.append(Resolved(self._execution_id, self.resolve.snapshot_id, self._resolved))
            self._resolved = []
        if self._at_end:
            reports.append(AtEnd(self._execution_id, self._at_end))
            self._at_end = []
        return reports

    def close(self) -> None:
        """Close the chunk file; idempotent."""
        if self._writer is not None:
            self._writer.close()
