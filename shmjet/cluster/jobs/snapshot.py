"""The state machine of one snapshot, as the coordinator drives it: reports of members go in, orders come out.

Phase one: every processor on every member saves its state and passes the barrier on. Then the manifest is written, if
nothing went wrong. Phase two: every processor that has saved is told whether the snapshot is valid. A processor that
has ended belongs to every snapshot with what it saved last. No clock and no I/O in here.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping

import msgspec

from shmjet.cluster.membership.peer_messages import ResolvePart, SavePart
from shmjet.execution.messages import SavedProcessor

Place = tuple[str, int, int]
"""A processor: the identity of its member, its vertex, and its number there."""
Order = SavePart | ResolvePart


class SnapshotRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What kind of snapshot is wanted.

    Args:
        terminal: every tasklet ends when it has been resolved.
        name: under which it is exported; None when it is not.
        token: of the request for that.
    """

    terminal: bool = False
    name: str | None = None
    token: str = ""

    @property
    def prepares(self) -> bool:
        """Whether sinks prepare what they have written, and commit it in phase two."""
        return self.terminal or self.name is None


PERIODIC = SnapshotRequest()


class SnapshotPhase(enum.Enum):
    """Each follows the one before."""

    SAVING = enum.auto()
    """Processors save their state."""
    WRITING = enum.auto()
    """All have saved; the manifest is to be written, and `written` to be called."""
    RESOLVING = enum.auto()
    """Processors are told whether it is valid."""
    OVER = enum.auto()


class SnapshotProgress:
    """One snapshot.

    Args:
        attempt: whose processors save.
        snapshot_id: its number in the lineage.
        request: what kind of snapshot it is.
        lineage: to which it belongs.
        places: all processors of the attempt.
        finished: what the processors that have ended have saved last.
    """

    def __init__(
        self,
        attempt: int,
        snapshot_id: int,
        request: SnapshotRequest,
        lineage: str,
        places: Collection[Place],
        finished: Mapping[Place, SavedProcessor],
    ) -> None:
        self.id = snapshot_id
        self.request = request
        self.phase = SnapshotPhase.SAVING
        self.error: str | None = None
        """Why it cannot become valid; None as long as it can."""
        self._attempt = attempt
        self._records: dict[Place, SavedProcessor] = dict(finished)
        self._live: set[Place] = set()
        """The processors that have saved for this snapshot and have not done phase two."""
        self._awaited = set(places) - self._records.keys()
        self._members = list(dict.fromkeys(member for member, _, _ in places))
        save = SavePart(attempt, snapshot_id, request.terminal, request.prepares, lineage)
        self._orders: list[tuple[str, Order]] = [(member, save) for member in self._members]
        self._check_saved()

    def take_orders(self) -> list[tuple[str, Order]]:
        """Return what members are to be told, in this order, and forget it."""
        orders, self._orders = self._orders, []
        return orders

    @property
    def is_valid(self) -> bool:
        """Whether its manifest is written."""
        return self.error is None and self.phase in (SnapshotPhase.RESOLVING, SnapshotPhase.OVER)

    @property
    def records(self) -> Mapping[Place, SavedProcessor]:
        """What each processor has saved; complete from WRITING on."""
        return self._records

    @property
    def awaited(self) -> list[Place]:
        """The processors that have not done what the present phase asks of them."""
        match self.phase:
            case SnapshotPhase.SAVING:
                return sorted(self._awaited)
            case SnapshotPhase.RESOLVING:
                return sorted(self._live)
        return []

    # -- reports ------------------------------------------------------------------------------------------------

    def saved(self, member: str, processors: Iterable[SavedProcessor], error: str | None = None) -> None:
        """Take what processors have saved for this snapshot, or that they had ended before it.

        Args:
            member: where they are.
            processors: what each has saved.
            error: why the snapshot cannot become valid.
        """
        if self.phase is SnapshotPhase.SAVING and error is not None and self.error is None:
            self.error = error
        for record in processors:
            place = member, record.vertex, record.processor
            if place in self._awaited:
                self._awaited.discard(place)
                self._records[place] = record
                if not record.finished:
                    self._live.add(place)
            elif record.finished:  # it had saved, and has ended since
                self._live.discard(place)
        self._check_saved()
        self._check_over()

    def written(self, error: str | None = None) -> None:
        """Take that the manifest is written, or why it could not be."""
        if self.phase is SnapshotPhase.WRITING:
            self.error = error
            self._resolve()

    def resolved(self, member: str, processors: Iterable[tuple[int, int]]) -> None:
        """Take that processors have done phase two.

        Args:
            member: where they are.
            processors: vertex and number of each.
        """
        if self.phase is SnapshotPhase.RESOLVING:
            self._live.difference_update((member, vertex, processor) for vertex, processor in processors)
            self._check_over()

    # -- transitions --------------------------------------------------------------------------------------------

    def _check_saved(self) -> None:
        if self.phase is not SnapshotPhase.SAVING or self._awaited:
            return
        if self.error is None:
            self.phase = SnapshotPhase.WRITING
        else:
            self._resolve()

    def _resolve(self) -> None:
        self.phase = SnapshotPhase.RESOLVING
        counts = self.error is None and self.request.prepares  # else an older one is what attempts go on from
        order = ResolvePart(self._attempt, self.id, counts)
        self._orders += [(member, order) for member in self._members]
        self._check_over()

    def _check_over(self) -> None:
        if self.phase is SnapshotPhase.RESOLVING and not self._live:
            self.phase = SnapshotPhase.OVER
