"""One job as the console follows it: its DAG, what flows through it, and minutes of its rates.

Knows no member and no clock: readings come in, a `JobDetail` comes out.
"""

from __future__ import annotations

from shmjet.cluster.lifecycle_messages import VertexState
from shmjet.cluster.protocol import ExecutionRow, JobReply
from shmjet.console.history import History
from shmjet.console.layers import arrange
from shmjet.console.snapshot import (
    EdgeCard,
    FailureCard,
    JobCard,
    JobDetail,
    RestartCard,
    SnapshotCard,
    SuspensionCard,
    VertexCard,
)
from shmjet.core import JobStatus
from shmjet.execution.failure import failure_text
from shmjet.execution.job_plan import EdgePlan, JobShape
from shmjet.execution.messages import Failure
from shmjet.execution.metrics import NO_METRICS, Metrics
from shmjet.observe.event_time import explain_time
from shmjet.observe.flow import EdgeFlow, Flow, FlowMeter, VertexFlow

SETTLED_S = 0.5
"""Rates of a shorter time, from the start of an execution on, are left out of the history: they would tower over it."""

_NO_STATE = VertexState(0, 0)
_NO_FLOW = Flow(0.0, (), (), (), None)


class JobTrack:
    """Follows one job over all its executions.

    Args:
        member: id of the member that runs it.
        row: its newest execution.
        executions: how many there are.
    """

    def __init__(self, member: str, row: ExecutionRow, executions: int) -> None:
        self.member = member
        self.row = row
        self.metrics = NO_METRICS
        """The last reading of the newest execution, as far as it runs on the member."""
        self._executions = executions
        self._meter = FlowMeter()
        self._flow = _NO_FLOW
        self._time = explain_time(NO_METRICS)
        self._history = History(("in", "out"))
        self._shape: JobShape | None = None
        self._arrangement = arrange(0, [])
        self._failure: Failure | None = None
        self._explained = 0
        self._lost_at: float | None = None
        self._is_final = False
        self._member_count = 1

    @property
    def is_running(self) -> bool:
        """Whether its newest execution has not ended."""
        return self._lost_at is None and not JobStatus(self.row.status).is_terminal

    @property
    def is_followed(self) -> bool:
        """Whether each look reads its metrics: while it runs, and then once more for how it ended."""
        return self.is_running or (self.metrics is not NO_METRICS and not self._is_final)

    @property
    def is_described(self) -> bool:
        """Whether its DAG is known and, once it has ended, why it failed."""
        return self._shape is not None and (self.is_running or self._explained == self.row.id)

    @property
    def is_final(self) -> bool:
        """Whether the last reading is of the end of its newest execution."""
        return self._is_final

    @property
    def name(self) -> str:
        """Its name, else its id."""
        return self.row.job_name or self.row.job_id

    def follow(self, row: ExecutionRow, executions: int) -> None:
        """Take what the member says now; what was read of an earlier execution no longer counts."""
        if (row.id, row.attempts) != (self.row.id, self.row.attempts):
            self.metrics, self._meter, self._flow = NO_METRICS, FlowMeter(), _NO_FLOW
            self._failure, self._is_final, self._time = None, False, explain_time(NO_METRICS)
        self.row, self._executions = row, executions

    def lose(self, now: float) -> None:
        """Note that its member is gone; a job that ran was lost with it."""
        if self.is_running:
            self._lost_at = now

    def describe(self, reply: JobReply) -> None:
        """Take the DAG, and why the newest execution failed, if it did."""
        self._shape = reply.shape
        edges = [(edge.source, edge.destination) for edge in reply.shape.edges]
        self._arrangement = arrange(len(reply.shape.vertices), edges)
        if not self.is_running:  # else the member knows more than it said when it was looked at
            self._failure, self._explained = reply.failure, self.row.id

    def read(self, metrics: Metrics, now: float, part: Metrics | None = None) -> None:
        """Take a reading of the newest execution.

        Args:
            metrics: of all members that take part.
            now: seconds since 1970.
            part: what the track's own member does of it; None: all.
        """
        self._is_final = metrics.execution_completion_time is not None or not self.is_running
        if not metrics.vertices:
            return
        self.metrics = metrics if part is None else part
        self._time = explain_time(metrics, now=now)
        self._member_count = len({p.member for vertex in metrics.vertices.values() for p in vertex.processors})
        if self._is_final:  # what it did on the whole says more than its last second
            self._flow = FlowMeter().take(metrics, now)
        else:
            self._flow = self._meter.take(metrics, now)
            if self._flow.seconds < SETTLED_S:
                return
            self._history.add(now, *self._ends())

    def _ends(self) -> tuple[float, float]:
        """Return how many items all sources emit and all sinks receive in a second."""
        fed = {edge.destination for edge in self._flow.edges}
        feeding = {edge.source for edge in self._flow.edges}
        return (
            sum(vertex.emitted_rate for vertex in self._flow.vertices if vertex.name not in fed),
            sum(vertex.received_rate for vertex in self._flow.vertices if vertex.name not in feeding),
        )

    def card(self) -> JobCard:
        """Return its line in the list."""
        row = self.row
        return JobCard(
            row.job_id,
            self.member,
            self.name,
            self._status(),
            row.id & 0xFFFFFFFF,
            self._executions,
            row.started_at,
            row.completed_at if self._lost_at is None else self._lost_at,
            self._flow.rate if self.is_running and self.row.cause is None else 0.0,
            row.attempts,
        )

    def detail(self) -> JobDetail:
        """Return all that is known of it."""
        shape = self._shape if self._shape is not None else JobShape([], [])
        flow, arrangement = self._flow, self._arrangement
        vertices = flow.vertices or tuple(_still_vertex(vertex.name) for vertex in shape.vertices)
        edges = flow.edges or tuple(_still_edge(shape, edge) for edge in shape.edges)
        waiting = {
            vertex.name: max((e.waiting for e in edges if e.source == vertex.name), default=0.0) for vertex in vertices
        }
        source_rate, sink_rate = self._ends()
        last, cause, restart = self.row.snapshot, self.row.cause, self.row.restart
        states = {} if last is None else last.vertices
        return JobDetail(
            self.card(),
            [
                VertexCard(vertex, waiting[vertex.name], place, state.keys, state.size)
                for vertex, place in zip(vertices, arrangement.vertices, strict=False)
                for state in [states.get(vertex.name, _NO_STATE)]
            ],
            [
                EdgeCard(edge, edge.fill, edge.is_full, plan.routing, plan.distributed, bends)
                for edge, plan, bends in zip(edges, shape.edges, arrangement.bends, strict=False)
            ],
            arrangement.layers,
            arrangement.breadth,
            source_rate,
            sink_rate,
            None if self._is_final else flow.slowest,
            self._is_final,
            self._member_count,
            flow.is_read,
            flow.share,
            flow.eta,
            self._failure_card(),
            self._history.series(),
            self.row.guarantee,
            None if last is None else SnapshotCard(last.id, last.started_at, last.seconds, last.size, last.keys),
            None if cause is None or not self.is_running else SuspensionCard(cause.requested_by_user, cause.error),
            [] if self._is_final else self._time.lines(),
            self.row.waits_for,
            None if restart is None else RestartCard(restart.cause, restart.seconds),
        )

    def _status(self) -> str:
        if self._lost_at is not None:
            return "lost"
        if self.row.cancelled:
            return "cancelling" if self.is_running else "cancelled"
        return self.row.status

    def _failure_card(self) -> FailureCard | None:
        failure = self._failure
        if failure is None:
            return None
        text = failure_text(failure, repr(self.row.job_name) if self.row.job_name else self.row.job_id)
        return FailureCard(
            failure.type_name, failure.vertex, failure.processor_index, failure.worker, failure.member, text
        )


def _still_vertex(name: str) -> VertexFlow:
    """Return a vertex that is being started, or of which nothing was left to read."""
    return VertexFlow(name, 0, 0, 0, 0.0, 0.0, 0.0, 0.0, False)


def _still_edge(shape: JobShape, edge: EdgePlan) -> EdgeFlow:
    source, destination = shape.vertices[edge.source].name, shape.vertices[edge.destination].name
    return EdgeFlow(source, edge.source_ordinal, destination, edge.destination_ordinal, 0, 0.0, 0, 0, 0.0)
