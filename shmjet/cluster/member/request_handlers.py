"""The requests that a member answers: the handler of each type, and which member and which clients it is for.

To see what a member does for a request of `shmjet.cluster.protocol`, look its type up in `request_handlers`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from shmjet.cluster.jobs.job_requests import JobRequests
from shmjet.cluster.jobs.lifecycle_requests import LifecycleRequests
from shmjet.cluster.jobs.registry import ParticipantRegistry
from shmjet.cluster.jobs.snapshot_requests import SnapshotRequests
from shmjet.cluster.jobs.submissions import Submissions
from shmjet.cluster.lifecycle_messages import (
    DestroySnapshot,
    ExportSnapshot,
    ListSnapshots,
    RestartExecution,
    ResumeExecution,
    SuspendExecution,
)
from shmjet.cluster.member.cluster_status import ClusterStatus
from shmjet.cluster.member.grid_requests import GridRequests
from shmjet.cluster.member.monitor_requests import MonitorRequests
from shmjet.cluster.member.observables import Observables
from shmjet.cluster.member.partitions import Partitions
from shmjet.cluster.observable_messages import (
    ConfigureObservable,
    DestroyObservable,
    LeaveObservable,
    ReadObservable,
    WriteObservable,
)
from shmjet.cluster.protocol import (
    Attach,
    AwaitBackups,
    CancelExecution,
    ConnectEndpoint,
    ConnectInline,
    Describe,
    DescribePartitions,
    Done,
    DumpAll,
    Execute,
    GetJob,
    GetMetrics,
    GoOnWithout,
    GridCall,
    ListJobs,
    Look,
    Ping,
    Shutdown,
    StatusRequest,
    TakeArena,
    TakeLine,
    Upload,
    Watch,
)
from shmjet.cluster.requests.attachments import Attachments
from shmjet.cluster.requests.client_connections import Client


class Scope(enum.Enum):
    """The member that answers a request, and the clients that it answers."""

    COORDINATOR = enum.auto()
    """The coordinator answers any client; the other members forward the request to it."""
    MEMBER = enum.auto()
    """The member that the client is connected to answers any client."""
    HOST = enum.auto()
    """The member that the client is connected to answers processes of its own host and user, because descriptors or
    the connection itself change hands."""


class RequestHandler(msgspec.Struct, frozen=True):
    """What answers the requests of one type.

    Args:
        scope: the member that answers, and the clients that it answers.
        answer: called with the client and the request; sends the answer, now or later.
        takes_fds: `answer` is also called with the descriptors of the request, and removes the ones it keeps.
    """

    scope: Scope
    answer: Callable[..., None]
    takes_fds: bool = False

    def __call__(self, client: Client, request: Any, fds: list[int]) -> None:
        """Have a request answered."""
        if self.takes_fds:
            self.answer(client, request, fds)
        else:
            self.answer(client, request)


def request_handlers(
    submissions: Submissions,
    jobs: JobRequests,
    lifecycle: LifecycleRequests,
    snapshots: SnapshotRequests,
    participants: ParticipantRegistry,
    attachments: Attachments,
    grid: GridRequests,
    observables: Observables,
    partitions: Partitions,
    cluster_status: ClusterStatus,
    monitor: MonitorRequests,
    *,
    attach: Callable[..., None],
    take_line: Callable[..., None],
    shut_down: Callable[..., None],
    go_on_without: Callable[..., None],
) -> Mapping[type, RequestHandler]:
    """Return the handler of each type of request.

    Args:
        submissions: begins runs of jobs.
        jobs: answers questions about the jobs that this member knows as coordinator.
        lifecycle: stops their runs and lets them go on.
        snapshots: the exported ones.
        participants: this member's parts in attempts.
        attachments: the files attached to jobs.
        grid: the maps and lists.
        observables: those of the cluster.
        partitions: where they lie.
        cluster_status: the reports about all members.
        monitor: serves the processes that monitor this member.
        attach: begins the monitoring of this member by a client.
        take_line: takes the connection of another member for messages between members.
        shut_down: ends this member.
        go_on_without: has the cluster wait no longer for members with partitions on their disks.
    """
    coordinator, member, host = Scope.COORDINATOR, Scope.MEMBER, Scope.HOST
    return {
        Execute: RequestHandler(coordinator, submissions.execute, takes_fds=True),
        CancelExecution: RequestHandler(coordinator, jobs.cancel),
        GetMetrics: RequestHandler(coordinator, jobs.report_metrics),
        ListJobs: RequestHandler(coordinator, jobs.list_jobs),
        GetJob: RequestHandler(coordinator, jobs.describe_job),
        Watch: RequestHandler(coordinator, jobs.watch),
        SuspendExecution: RequestHandler(coordinator, lifecycle.suspend),
        ResumeExecution: RequestHandler(coordinator, lifecycle.resume),
        RestartExecution: RequestHandler(coordinator, lifecycle.restart),
        ExportSnapshot: RequestHandler(coordinator, snapshots.export),
        ListSnapshots: RequestHandler(coordinator, snapshots.list_snapshots),
        DestroySnapshot: RequestHandler(coordinator, snapshots.destroy_snapshot),
        Upload: RequestHandler(coordinator, attachments.upload),
        GridCall: RequestHandler(member, grid.perform),
        WriteObservable: RequestHandler(coordinator, observables.write),
        ReadObservable: RequestHandler(coordinator, observables.read),
        LeaveObservable: RequestHandler(coordinator, observables.leave),
        ConfigureObservable: RequestHandler(coordinator, observables.configure),
        DestroyObservable: RequestHandler(coordinator, observables.destroy),
        Describe: RequestHandler(member, cluster_status.describe_members),
        AwaitBackups: RequestHandler(host, grid.await_backups),
        DescribePartitions: RequestHandler(member, partitions.describe),
        StatusRequest: RequestHandler(member, cluster_status.report_status),
        DumpAll: RequestHandler(member, cluster_status.dump),
        Ping: RequestHandler(member, _pong),
        TakeLine: RequestHandler(member, take_line),
        Shutdown: RequestHandler(member, shut_down),
        GoOnWithout: RequestHandler(coordinator, go_on_without),
        Attach: RequestHandler(host, attach),
        Look: RequestHandler(host, monitor.list_executions),
        TakeArena: RequestHandler(host, monitor.send_arena),
        ConnectEndpoint: RequestHandler(host, participants.connect_endpoint),
        ConnectInline: RequestHandler(host, participants.connect_endpoint),
    }


def _pong(client: Client, request: Ping) -> None:
    client.send(Done(request.request))
