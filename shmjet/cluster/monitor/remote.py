"""Monitoring of a cluster over the network, by any of its members: all of them, and all their workers.

A member is asked for a status of all, at most a few times a second, whatever is looked at meanwhile; then it and each
of the others sends one message. What an execution does comes from its coordinator, which asks the members in turn. May
be used from several threads.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

from shmjet.cluster.client.connection import Connection
from shmjet.cluster.client.endpoint import RemoteEndpoint
from shmjet.cluster.merged_metrics import part_of
from shmjet.cluster.monitor import base
from shmjet.cluster.protocol import (
    Attached,
    CancelExecution,
    DumpAll,
    ExecutionRow,
    GetJob,
    GetMetrics,
    JobReply,
    MemberStatus,
    PartitionCounts,
    StatusReply,
    StatusRequest,
)
from shmjet.core import JobStatus, MemberLostError, ShmjetError
from shmjet.execution.metrics import Metrics, WorkerMetrics

FRESH_S = 0.25
"""A status is good for so long, in seconds: all that is asked within that time is of the same moment."""
_DUMP_S = 60.0


class RemoteMonitor:
    """A cluster, seen from anywhere. Close it.

    Args:
        endpoint: that leads to its members.

    Raises:
        AuthenticationError: a member does not accept the secret.
        MemberLostError: no member can be reached.
    """

    def __init__(self, endpoint: RemoteEndpoint) -> None:
        self._endpoint = endpoint
        self._connection = Connection(endpoint, lambda _: None, lambda: None, lambda: None)
        self._closed = False
        self._lock = threading.Lock()
        self._taken_at = float("-inf")
        self._status = StatusReply(0, [], [])

    @property
    def address(self) -> str:
        """The member that is asked."""
        return self._endpoint.address

    def members(self) -> list[RemoteMember]:
        """Return all members that answer, the oldest first."""
        return [RemoteMember(self, status) for status in self.status().members]

    def status(self) -> StatusReply:
        """Return what all members do, as of a moment ago at most.

        Raises:
            MemberLostError: no member can be reached any more.
        """
        with self._lock:
            if time.monotonic() - self._taken_at > FRESH_S:
                self._status = self.ask(StatusRequest)
                self._taken_at = time.monotonic()
                self._endpoint.learn([member.address for member in self._status.members])
            return self._status

    def dumps(self) -> dict[str, dict[str, Any]]:
        """Return what is known of each member, by address."""
        found = {}
        for dump in self.ask(DumpAll, _DUMP_S).members:
            known = json.loads(dump.body) if dump.body else {"gone": "it has not answered in time"}
            found[dump.address] = {"address": dump.address, **known}
        return found

    def ask(self, make: Callable[[int], Any], timeout: float | None = None) -> Any:
        """Send a request and return the reply.

        Raises:
            MemberLostError: no member answers.
        """
        try:
            return self._connection.ask(make, base.ANSWER_S if timeout is None else timeout)
        except TimeoutError:
            raise MemberLostError(f"the member at {self.address} does not answer") from None
        except ShmjetError as error:
            if self._closed and not isinstance(error, MemberLostError):  # by another thread, while this one asked
                raise MemberLostError("this monitor of the cluster has been closed") from None
            raise

    def close(self) -> None:
        """Let go; the cluster does not notice."""
        self._closed = True
        self._connection.close()


class RemoteMember:
    """One member of a cluster that is seen over the network; see `shmjet.cluster.monitor.base.MonitoredMember`.

    Args:
        cluster: its cluster.
        status: what was told of it first.
    """

    is_here = False

    def __init__(self, cluster: RemoteMonitor, status: MemberStatus) -> None:
        self._cluster = cluster
        self._first = status
        self.about = Attached(
            0,
            status.version,
            status.uuid,
            status.pid,
            status.client_pid,
            status.started_at,
            status.settings,
            [worker.pid for worker in status.workers if worker.pid is not None],
            0,
            status.address,
        )

    @property
    def pid(self) -> int:
        """Its process id, on its host."""
        return self._first.pid

    @property
    def name(self) -> str:
        """Its cluster's name."""
        return str(self._first.settings["cluster_name"])

    @property
    def cores(self) -> list[int | None]:
        """The core of each worker, None for a worker that is not pinned."""
        return [worker.core for worker in self._first.workers]

    def _now(self) -> MemberStatus:
        """Return what it does now.

        Raises:
            MemberLostError: it is not a member any more, or does not answer.
        """
        found = self._cluster.status()
        for status in found.members:
            if status.uuid == self._first.uuid:
                return status
        address = self._first.address
        what = "does not answer" if address in found.silent else "is gone"
        raise MemberLostError(f"the member at {address} {what}")

    def executions(self) -> list[ExecutionRow]:
        """Return all executions that it remembers, the oldest first."""
        return self._now().executions

    def partitions(self) -> PartitionCounts:
        """Return how many partitions it has."""
        return self._now().partitions

    def running(self) -> list[ExecutionRow]:
        """Return the executions that have not ended."""
        return [row for row in self.executions() if not JobStatus(row.status).is_terminal]

    def metrics(self, execution: ExecutionRow) -> Metrics:
        """Return what its part of an execution has done so far; of edges, unless it leads, only what went over them."""
        return part_of(self.whole(execution), self._first.address, leads=execution.leads)

    def whole(self, execution: ExecutionRow) -> Metrics:
        """Return what an execution has done so far, on all members."""
        metrics: Metrics = self._cluster.ask(lambda number: GetMetrics(number, execution.id)).metrics
        return metrics

    def job(self, job_id: str) -> JobReply:
        """Return a job's DAG, and why its newest execution failed if it did."""
        reply: JobReply = self._cluster.ask(lambda number: GetJob(number, job_id))
        return reply

    def ask(self, make: Callable[[int], Any], timeout: float | None = None) -> Any:
        """Send a request that any client may send, and return its reply."""
        return self._cluster.ask(make, timeout)

    def cancel(self, execution: ExecutionRow) -> None:
        """Ask for the end of an execution."""
        self._cluster.ask(lambda number: CancelExecution(number, execution.id))

    def workers(self) -> list[WorkerMetrics]:
        """Return what each worker has done since the member started."""
        return self._now().workers

    def usage(self) -> dict[int, tuple[float, int]]:
        """Return CPU seconds so far and resident bytes of the member and its workers, by pid."""
        return self._now().processes

    def dump(self) -> dict[str, Any]:
        """Return everything that an engineer wants to know of it."""
        return self._cluster.dumps()[self._first.address]

    def is_alive(self) -> bool:
        """Say whether it is still a member, as far as the answering members know."""
        found = self._cluster.status()
        known = {status.uuid for status in found.members}
        return self._first.uuid in known or self._first.address in found.silent

    def close(self) -> None:
        """Nothing is kept for one member."""

    def __repr__(self) -> str:
        return f"<RemoteMember {self._first.address} {self.name!r}>"
