"""Interface for monitoring a member, local or remote."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from shmjet.cluster.protocol import Attached, ExecutionRow, JobReply, PartitionCounts
from shmjet.execution.metrics import Metrics, WorkerMetrics

ANSWER_S = 10.0
"""How long a member may take to answer."""


class MonitoredMember(Protocol):
    """One member: on this host (`shmjet.cluster.monitor.local`), or over the network (`shmjet.cluster.monitor.remote`).

    Everything may raise MemberLostError: the member is gone, or does not answer.
    """

    @property
    def about(self) -> Attached:
        """Who it is."""

    @property
    def pid(self) -> int:
        """Its process id."""

    @property
    def name(self) -> str:
        """Its cluster's name."""

    @property
    def is_here(self) -> bool:
        """Whether it is on this host, so that its pids mean something here."""

    @property
    def cores(self) -> list[int | None]:
        """The core of each worker, None for a worker that is not pinned."""

    def ask(self, make: Callable[[int], Any], timeout: float | None = None) -> Any:
        """Send a request that any client may send, and return its reply.

        Args:
            make: makes the request from its number.
            timeout: seconds; None for `ANSWER_S`.

        Raises:
            ShmjetError: it is refused.
        """

    def executions(self) -> list[ExecutionRow]:
        """Return all executions that it remembers, the oldest first."""

    def partitions(self) -> PartitionCounts:
        """Return how many partitions it has."""

    def running(self) -> list[ExecutionRow]:
        """Return the executions that have not ended."""

    def metrics(self, execution: ExecutionRow) -> Metrics:
        """Return what this member's part of an execution has done so far."""

    def whole(self, execution: ExecutionRow) -> Metrics:
        """Return what an execution has done so far, on all members that take part."""

    def job(self, job_id: str) -> JobReply:
        """Return a job's DAG, and why its newest execution failed if it did."""

    def cancel(self, execution: ExecutionRow) -> None:
        """Ask for the end of an execution."""

    def workers(self) -> list[WorkerMetrics]:
        """Return what each worker has done since the member started."""

    def usage(self) -> dict[int, tuple[float, int]]:
        """Return CPU seconds so far and resident bytes of the member and its workers, by pid."""

    def dump(self) -> dict[str, Any]:
        """Return everything that an engineer wants to know of it (`shmjet.cluster.monitor.dump`)."""

    def is_alive(self) -> bool:
        """Say whether it has not ended."""

    def close(self) -> None:
        """Let go of it; it does not notice."""
