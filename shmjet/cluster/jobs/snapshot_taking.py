"""The taking of one snapshot: carries out what `SnapshotProgress` decides, writes the manifest, keeps the bounds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from shmjet.cluster.jobs.lineage import Lineage
from shmjet.cluster.jobs.snapshot import Place, SnapshotPhase, SnapshotProgress, SnapshotRequest
from shmjet.cluster.jobs.unexpected import unexpected
from shmjet.execution.failure import member_failed
from shmjet.execution.job_plan import JobShape
from shmjet.execution.messages import Failure, SavedProcessor
from shmjet.snapshots.manifest import Manifest, ProcessorRecord, SavedVertex

PHASE_S = 60.0
"""How long a phase may take, if the interval between snapshots is not longer."""


class Timer(Protocol):
    """What a clock gives for a call that is still to come."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """What calls functions later: an event loop, or a test."""

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer: ...


class SnapshotSource(msgspec.Struct, frozen=True, kw_only=True):
    """Whose snapshots are taken.

    Args:
        attempt: its number.
        job_id, job_name: of the job.
        shape: of its DAG.
        members: that take part, in the order of their processors' global indexes.
        partition_count: of the job.
    """

    attempt: int
    job_id: str
    job_name: str | None
    shape: JobShape
    members: Sequence[str]
    partition_count: int

    @property
    def name(self) -> str:
        """How the job is called in messages."""
        return repr(self.job_name) if self.job_name else self.job_id


class SnapshotUser(msgspec.Struct, frozen=True, kw_only=True):
    """What the taking of a snapshot calls.

    Args:
        send: tells a member something.
        on_valid: called when it has become valid, before any member hears of it, with the processors that have ended.
        on_over: called when it is over, with what went wrong.
        on_late: called with an error when a phase takes too long.
    """

    send: Callable[[str, object], None]
    on_valid: Callable[[Mapping[Place, SavedProcessor]], None]
    on_over: Callable[[str | None], None]
    on_late: Callable[[Failure], None]


class SnapshotTaking:
    """See the module.

    Args:
        source: whose snapshot.
        lineage: to which it belongs.
        request: what kind of snapshot it is.
        parallelism: how many processors of each vertex there are on each member.
        finished: what the processors that have ended have saved last.
        user: what it calls.
        clock: calls functions later.
    """

    def __init__(
        self,
        source: SnapshotSource,
        lineage: Lineage,
        request: SnapshotRequest,
        parallelism: Mapping[str, Sequence[int]],
        finished: Mapping[Place, SavedProcessor],
        user: SnapshotUser,
        clock: Clock,
    ) -> None:
        self.request = request
        self._source = source
        self._lineage = lineage
        self._parallelism = parallelism
        self._user = user
        self._clock = clock
        self._started_at = time.time()
        self._phase_s = max(PHASE_S, lineage.settings.snapshot_interval)
        places = all_places(source.members, parallelism)
        number = lineage.next_number()
        self._progress = SnapshotProgress(source.attempt, number, request, lineage.name, places, finished)
        self._bound: Timer | None = None
        self._bounded: SnapshotPhase | None = None
        self._writing: asyncio.Future[None] | None = None
        self._copying: asyncio.Future[str | None] | None = None
        self._is_over = False

    @property
    def id(self) -> int:
        """Its number in the lineage."""
        return self._progress.id

    @property
    def is_valid(self) -> bool:
        """Whether attempts may go on from it, or it is exported."""
        return self._progress.is_valid

    def begin(self) -> None:
        """Tell the members."""
        self._carry_out()

    def stop(self) -> None:
        """Wait for nothing any more: the attempt has ended."""
        self._is_over = True
        self._end_bound()
        if self._copying is not None:
            self._copying.cancel()  # what it has made somewhere, the next attempt forgets

    # -- reports ------------------------------------------------------------------------------------------------

    def saved(self, member: str, processors: Iterable[SavedProcessor], error: str | None = None) -> None:
        """See `SnapshotProgress.saved`."""
        self._progress.saved(member, processors, error)
        self._carry_out()

    def resolved(self, member: str, processors: Iterable[tuple[int, int]]) -> None:
        """See `SnapshotProgress.resolved`."""
        self._progress.resolved(member, processors)
        self._carry_out()

    # -- carrying out -------------------------------------------------------------------------------------------

    def _carry_out(self) -> None:
        progress = self._progress
        if self._is_over:
            return
        if progress.phase is SnapshotPhase.WRITING and self._writing is None:
            self._write()
        if progress.phase is not self._bounded:
            self._set_bound()
        for member, order in progress.take_orders():
            self._user.send(member, order)
        if progress.phase is SnapshotPhase.OVER and not self._is_over:
            self.stop()
            if not progress.is_valid or not self.request.prepares:
                self._lineage.failed(self.id)
            self._user.on_over(progress.error)

    def _write(self) -> None:
        manifest, most = self._manifest(), self._lineage.settings.max_state_bytes
        if most is not None and manifest.size > most:
            self._progress.written(f"it has {manifest.size} bytes, and JobConfig.max_state_bytes is {most}")
        elif self._lineage.is_shared:
            self._writing = self._lineage.writes(self._watched(self._write_everywhere(manifest)))
        elif self._lineage.writes_to_disk:
            self._writing = self._lineage.writes(self._watched(self._write_to_disk(manifest)))
        else:
            self._written(manifest, self._error_of_writing(manifest))

    async def _watched(self, writing: Awaitable[None]) -> None:
        """Wait for a snapshot to be written, and go on, but not where an error leaves open whether it counts."""
        try:
            await writing
            self._carry_out()
        except Exception as error:
            self._user.on_late(unexpected(error, f"while snapshot {self.id} of job {self._source.name} was written"))

    async def _write_to_disk(self, manifest: Manifest) -> None:
        error = await asyncio.to_thread(self._error_of_writing, manifest)
        self._written(manifest, error)

    async def _write_everywhere(self, manifest: Manifest) -> None:
        """Have it on all other members first, so that every member that hears of phase two has it."""
        lineage, request = self._lineage, self.request
        holders = {
            piece.file: [place[0]] for place, record in self._progress.records.items() for piece in record.pieces
        }
        self._copying = asyncio.ensure_future(
            lineage.copy(manifest, holders, request.name, prepared=request.prepares, least_s=self._phase_s)
        )
        await asyncio.wait({self._copying})
        if self._is_over or self._copying.cancelled():
            return
        if (refusal := self._copying.exception()) is not None:
            error: str | None = f"not all members have it: {refusal}"
        else:
            version = self._copying.result()
            error = await asyncio.to_thread(self._error_of_writing, manifest, version)
            if version is not None and request.name is not None and error is None:
                lineage.exported_everywhere(request.name, version)
        self._written(manifest, error)

    def _error_of_writing(self, manifest: Manifest, version: str | None = None) -> str | None:
        try:
            self._lineage.write(manifest, self.request.name, prepared=self.request.prepares, version=version)
        except OSError as error:
            return f"its manifest cannot be written: {error}"
        return None

    def _written(self, manifest: Manifest, error: str | None) -> None:
        if error is None:
            if self.request.prepares:
                self._lineage.succeeded(manifest, self._started_at)
            self._user.on_valid({place: saved for place, saved in self._progress.records.items() if saved.finished})
        self._progress.written(error)

    def _manifest(self) -> Manifest:
        vertices = []
        for v, vertex in enumerate(self._source.shape.vertices):
            records = [
                ProcessorRecord(self._global_index(place), record.finished, record.pieces, record.tells_rest)
                for place, record in self._progress.records.items()
                if record.vertex == v
            ]
            records.sort(key=lambda record: record.processor)
            count = self._source.partition_count
            vertices.append(SavedVertex(vertex.name, len(records), count, records, vertex.state_kind))
        return Manifest(
            self._lineage.name,
            self.id,
            self._source.job_id,
            self._source.job_name,
            self._started_at,
            self.request.terminal,
            vertices,
            self.request.token,
        )

    def _global_index(self, place: Place) -> int:
        member, vertex, processor = place
        members = self._source.members
        return processor + sum(self._parallelism[other][vertex] for other in members[: members.index(member)])

    # -- bounds -------------------------------------------------------------------------------------------------

    def _set_bound(self) -> None:
        self._end_bound()
        self._bounded = self._progress.phase
        if self._bounded in (SnapshotPhase.SAVING, SnapshotPhase.RESOLVING):
            self._bound = self._clock.call_later(self._phase_s, self._too_late)

    def _end_bound(self) -> None:
        if self._bound is not None:
            self._bound.cancel()
            self._bound = None

    def _too_late(self) -> None:
        self._bound = None
        progress = self._progress
        phase = "phase one (save)" if progress.phase is SnapshotPhase.SAVING else "phase two (resolve)"
        place, more = progress.awaited[0], len(progress.awaited) - 1
        vertex = self._source.shape.vertices[place[1]].name
        text = (
            f"{phase} of snapshot {self.id} has not ended within {self._phase_s:g} s; it waits for vertex {vertex!r}, "
            f"processor {self._global_index(place)}{f', and for {more} more' if more else ''}"
        )
        late = member_failed(TimeoutError(text))
        self._user.on_late(msgspec.structs.replace(late, vertex=vertex, restartable=True))


def all_places(members: Sequence[str], parallelism: Mapping[str, Sequence[int]]) -> list[Place]:
    """Return all processors of an attempt.

    Args:
        members: that take part.
        parallelism: how many processors of each vertex there are on each of them.
    """
    return [
        (member, vertex, processor)
        for member in members
        for vertex, count in enumerate(parallelism[member])
        for processor in range(count)
    ]
