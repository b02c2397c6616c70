"""The snapshots of one attempt, one after the other: when each begins, and what follows.

A snapshot comes `snapshot_interval` after the end of the one before, or after the attempt has its state back, which
takes about as long as saving it took; at once when a client asks for one, or when all that is left are sinks that wait
for the last one; and not before the sources of edges of higher priority have ended, since a barrier would come twice
there. A snapshot that fails does no harm: the one before it stays valid. Of a job without a guarantee snapshots are
taken for clients only.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from shmjet.cluster.jobs.lineage import Lineage
from shmjet.cluster.jobs.phase import Phase
from shmjet.cluster.jobs.snapshot import PERIODIC, Place, SnapshotRequest
from shmjet.cluster.jobs.snapshot_taking import (
    Clock,
    SnapshotSource,
    SnapshotTaking,
    SnapshotUser,
    Timer,
    all_places,
)
from shmjet.cluster.membership.peer_messages import (
    AskOpenSources,
    PartAtEnd,
    PartOpenSources,
    PartReady,
    PartResolved,
    PartSaved,
)
from shmjet.core import ShmjetError
from shmjet.execution.failure import member_failed
from shmjet.execution.job_plan import JobShape
from shmjet.execution.messages import Failure, SavedProcessor
from shmjet.ipc.rate_limited_log import RateLimitedLog

OPEN_SOURCES_S = 0.02
"""How long after an answer members are asked again whether sources of edges of higher priority have ended."""
LAST_TRIES = 5
"""How often the last snapshot of a job is tried before the job fails."""
AGAIN_S = 0.1
"""How long after its first failure it is tried again; twice as long after each further one."""

_LEAST_RATE = 64 << 20
"""Bytes of state that are had back in a second at least, as far as the first snapshot of an attempt waits for that."""

STOPPED = "the job has ended, or is being stopped"
"""What went wrong with a snapshot for which there is no attempt any more."""

FAILURES_AT_ONCE = 3
"""Failed snapshots that the log names one after the other; after that one every `FAILURES_EVERY_S` seconds."""
FAILURES_EVERY_S = 60.0

logger = logging.getLogger("shmjet.member")

Done = Callable[[str | None], None]
"""Called when a snapshot that was asked for is over, with what went wrong."""


class AttemptSnapshots:
    """See the module.

    Args:
        source: whose snapshots.
        lineage: to which they belong.
        send: tells a member something.
        fail: stops the attempt with an error.
        on_terminal: called when a terminal snapshot has become valid, before anything ends.
        clock: calls functions later; the running event loop by default.
    """

    def __init__(
        self,
        source: SnapshotSource,
        lineage: Lineage,
        *,
        send: Callable[[str, object], None],
        fail: Callable[[Failure], None],
        on_terminal: Callable[[], None],
        clock: Clock | None = None,
    ) -> None:
        self._source = source
        self._lineage = lineage
        self._send = send
        self._fail = fail
        self._on_terminal = on_terminal
        self._clock: Clock = clock or asyncio.get_running_loop()
        self._interval = lineage.settings.snapshot_interval
        self._parallelism: dict[str, list[int]] = {}
        self._finished: dict[Place, SavedProcessor] = {}
        """The processors that had ended before the last valid snapshot: they belong to every later one."""
        self._at_end: set[Place] = set()
        """Sinks that wait for the last snapshot."""
        self._released: set[Place] = set()
        """Sinks that need not wait any more."""
        edges = source.shape.edges
        self._sinks = {edge.destination for edge in edges} - {edge.source for edge in edges}
        self._early = early_vertices(source.shape)
        self._open: dict[str, list[int]] | None = None
        """What members have answered about sources of edges of higher priority; None when they are not asked."""
        self._wanted: deque[tuple[SnapshotRequest, Done]] = deque()
        self._taking: SnapshotTaking | None = None
        self._done: Done = _unheard
        self._is_due = False
        self._timer: Timer | None = None
        self._failed_at_end = 0
        self._hangs = ""
        """Why a snapshot of a job without a guarantee does not come to an end; empty while none hangs."""
        self._log = RateLimitedLog(logger, burst=FAILURES_AT_ONCE, per_s=1 / FAILURES_EVERY_S)
        self._is_running = self._has_stopped = False

    @property
    def postponed_for(self) -> list[str]:
        """The vertices for whose end a snapshot waits: sources of edges of higher priority."""
        open_now = {v for vertices in (self._open or {}).values() for v in vertices}
        return [self._source.shape.vertices[v].name for v in sorted(open_now)]

    # -- beginning and end --------------------------------------------------------------------------------------

    def follow(self, phase: Phase) -> None:
        """Take how far the attempt is: snapshots are taken while it runs."""
        if phase is Phase.RUNNING:
            if not self._is_running and not self._has_stopped:
                self._start()
        elif phase is not Phase.PREPARING and not self._has_stopped:
            self._stop(STOPPED)

    def _start(self) -> None:
        self._is_running = True
        last = self._lineage.last
        self._wait(self._interval + (0.0 if last is None else min(last.seconds, last.size / _LEAST_RATE)))
        self._consider()

    def take(self, request: SnapshotRequest, done: Done) -> None:
        """Take a snapshot as soon as that is possible.

        Args:
            request: what kind of snapshot.
            done: called when it is over, with what went wrong.
        """
        if self._has_stopped:
            done(STOPPED)
        elif self._hangs:
            done(self._hangs)
        else:
            self._wanted.append((request, done))
            self._consider()

    def _stop(self, why: str) -> None:
        """Take no more; tell all clients that wait for a snapshot why it will not come."""
        self._is_running, self._has_stopped = False, True
        self._end_timer()
        taking, self._taking = self._taking, None
        if taking is not None:
            taking.stop()
            self._tell_done(None if taking.is_valid else why)
        while self._wanted:
            self._wanted.popleft()[1](why)

    # -- reports ------------------------------------------------------------------------------------------------

    def report(self, member: str, message: Any) -> None:
        """Take what a participant says."""
        match message:
            case PartReady():
                self._parallelism[member] = message.processors
            case PartSaved():
                self._saved(member, message)
            case PartResolved():
                if self._taking is not None and self._taking.id == message.snapshot_id:
                    self._taking.resolved(member, message.processors)
            case PartAtEnd():
                self._at_end.update((member, v, p) for v, p in message.processors)
                self._consider()
            case PartOpenSources():
                self._heard_open(member, message.vertices)

    def _saved(self, member: str, message: PartSaved) -> None:
        if self._taking is not None and self._taking.id == message.snapshot_id:
            self._taking.saved(member, message.processors, message.error)

    # -- when the next one begins -------------------------------------------------------------------------------

    def _wait(self, seconds: float) -> None:
        """Have the next snapshot taken after some time, if the job has a guarantee."""
        self._end_timer()
        if self._lineage.takes_snapshots:
            self._timer = self._clock.call_later(seconds, self._time_is_up)

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_is_up(self) -> None:
        self._timer = None
        self._is_due = True
        self._consider()

    def _consider(self) -> None:
        """Begin a snapshot if one is wanted and none is being taken."""
        if not self._is_running or self._taking is not None or self._open is not None:
            return
        if self._wanted or self._is_due or (self._only_sinks_wait and not self._failed_at_end):
            self._end_timer()
            if self._early:
                self._ask_open()
            else:
                self._begin()

    @property
    def _only_sinks_wait(self) -> bool:
        """Whether all tasklets have ended but sinks that wait for the last snapshot."""
        ended = self._at_end | self._released | self._finished.keys()
        return bool(self._at_end) and all(
            place in ended for place in all_places(self._source.members, self._parallelism) if place[1] in self._sinks
        )

    def _ask_open(self) -> None:
        self._timer = None
        self._open = {}
        for member in self._source.members:
            self._send(member, AskOpenSources(self._source.attempt, self._early))

    def _heard_open(self, member: str, vertices: list[int]) -> None:
        if self._open is None or not self._is_running:
            return
        self._open[member] = vertices
        if len(self._open) < len(self._source.members):
            return
        if any(self._open.values()):
            self._timer = self._clock.call_later(OPEN_SOURCES_S, self._ask_open)
        else:
            self._open, self._early = None, []
            self._begin()

    # -- one after the other ------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._is_due = False
        request, self._done = self._wanted.popleft() if self._wanted else (PERIODIC, _unheard)
        waiting = self._at_end - self._finished.keys()
        user = SnapshotUser(
            send=self._send,
            on_valid=lambda ended: self._valid(request, ended),
            on_over=lambda error: self._over(request, waiting, error),
            on_late=self._late,
        )
        self._taking = SnapshotTaking(
            self._source, self._lineage, request, self._parallelism, self._finished, user, self._clock
        )
        self._taking.begin()

    def _valid(self, request: SnapshotRequest, ended: Mapping[Place, SavedProcessor]) -> None:
        if request.prepares:
            self._finished.update(ended)
        if request.terminal:
            self._on_terminal()

    def _over(self, request: SnapshotRequest, waiting: set[Place], error: str | None) -> None:
        """Go on after a snapshot.

        Args:
            request: what kind it was.
            waiting: the sinks that waited for it.
            error: why it has failed.
        """
        taking, self._taking = self._taking, None
        assert taking is not None
        self._hangs = ""
        self._wait(self._interval)
        if error is None:
            if request.prepares:
                self._failed_at_end = 0
                self._released |= waiting
                self._at_end -= waiting
        else:
            text = f"snapshot {taking.id} of job {self._source.name} has failed: {error}"
            if self._only_sinks_wait:
                self._last_has_failed(text)
            elif request.terminal and request.name is None:  # what is asked for is done all the same
                logger.warning("%s; the job stops without it, and goes on from the one before it", text)
            elif self._lineage.takes_snapshots:
                self._log.warning("%s; the next one begins in %g s", text, self._interval)
        self._tell_done(error)
        self._consider()

    def _late(self, failure: Failure) -> None:
        """Stop the attempt, which goes on from the snapshot before; one without a guarantee would begin anew."""
        if self._lineage.takes_snapshots:
            self._fail(failure)
            return
        self._hangs = failure.text
        self._tell_done(self._hangs)
        while self._wanted:
            self._wanted.popleft()[1](self._hangs)

    def _last_has_failed(self, text: str) -> None:
        """Try the last snapshot again, some times: without it the job cannot complete."""
        self._failed_at_end += 1
        if self._failed_at_end < LAST_TRIES:
            again = AGAIN_S * 2 ** (self._failed_at_end - 1)
            logger.warning("%s; it is the last one of the job, and is tried again in %g s", text, again)
            self._wait(again)
        else:
            text = f"{text}; it was the last one of the job, without which the job cannot complete"
            self._fail(member_failed(ShmjetError(text)))

    def _tell_done(self, error: str | None) -> None:
        done, self._done = self._done, _unheard
        done(error)


def early_vertices(shape: JobShape) -> list[int]:
    """Return the vertices that have to end before a barrier may be sent.

    They are all in front of an inbound edge that is drained before another one of the same vertex.

    Args:
        shape: of a DAG, its vertices in topological order.
    """
    early = set()
    for edge in shape.edges:
        if any(other.destination == edge.destination and other.priority > edge.priority for other in shape.edges):
            early.add(edge.source)
    for v in reversed(range(len(shape.vertices))):
        if v in early:
            early.update(edge.source for edge in shape.edges if edge.destination == v)
    return sorted(early)


def _unheard(error: str | None) -> None:
    """Stand for what is called at the end of a snapshot for which no client waits."""
