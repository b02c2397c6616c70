"""Requests, replies and news between a client and its member, as msgspec structs over `Channel`.

Every request carries a number that its reply repeats; `News` comes unasked. `shmjet.cluster.member.request_handlers`
names what answers each type of request, and which requests only the coordinator can answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any

import msgspec

from shmjet.cluster.lifecycle_messages import (
    LONGEST_TOKEN,
    LastRestart,
    LastSnapshot,
    LifecycleRequest,
    RunSettings,
    SnapshotReply,
    SnapshotsReply,
    SuspensionCause,
)
from shmjet.cluster.observable_messages import ObservableRequest, Observed
from shmjet.execution.job_plan import JobPlan, JobShape
from shmjet.execution.messages import Failure, LogSubscription
from shmjet.execution.metrics import Metrics, WorkerMetrics
from shmjet.host.terminal_text import clean_line

MOST_WATCHED = 256
"""Executions that one request may ask about: each has an answer of its own."""

FILE_PIECE = 1 << 20
"""Bytes of an attached file in one message."""


class Submission(msgspec.Struct, frozen=True, array_like=True):
    """A job. `code` and `config` are cloudpickled; `attachments` maps ids to paths.

    A large code comes as a descriptor; then `code_size` is not 0 (`shmjet.ipc.inline_or_memfd`). Paths are relative to
    the folder of the job's attachments, into which `Upload` has put the files.
    """

    job_id: str
    name: str | None
    shape: JobShape
    code: bytes
    config: bytes
    attachments: dict[str, str]
    import_paths: list[bytes]
    code_size: int = 0
    named: str | None = None
    """How the member's own configuration calls it; set by the coordinator; ignored when a client sends it."""
    settings: RunSettings = RunSettings()

    @property
    def label(self) -> str:
        """How a log calls the job, in one line: a client may put line feeds into its name, and lines of its own."""
        return clean_line(self.name or self.job_id)


class Execute(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Run a job; the first time it comes with its submission, or with the name that the configuration gives it.

    A patient client waits for the end anyway: the answer comes with the first `ExecutionChanged`, after a millisecond
    at the latest. With `logs` the client is sent the log records of its processors (`Logged`); the member that it is
    connected to fills in the subscription's home.

    It may come again when an answer was lost. Then `token`, which is the same, tells whether it is being carried out
    already, and `age` says how many seconds ago it was sent first: a member that has coordinated for a shorter time
    cannot know.

    With `joins` nothing is run where a job of that name has not ended: the client joins that one.
    """

    request: int
    job_id: str
    submission: Submission | None
    patient: bool
    logs: LogSubscription | None = None
    named: str | None = None
    token: Annotated[str, msgspec.Meta(max_length=LONGEST_TOKEN)] = ""
    age: float = 0.0
    joins: bool = False


class CancelExecution(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Cancel one execution; `ExecutionChanged` tells when it has ended."""

    request: int
    execution_id: int


class GetMetrics(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Ask for an execution's metrics: on all members, or with `part` on the coordinator alone."""

    request: int
    execution_id: int
    part: bool = False


class ListJobs(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Ask for all jobs that the member knows."""

    request: int


class Describe(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Ask who the members are."""

    request: int


class DescribePartitions(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Ask which members have which partitions."""

    request: int


class AwaitBackups(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A process of the member's host: wait until all backups have the changes of an environment up to a number."""

    request: int
    environment: Annotated[int, msgspec.Meta(ge=0)]
    number: int


class StatusRequest(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Ask what all members do."""

    request: int


class DumpAll(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Ask for what an engineer wants to know of all members."""

    request: int


class Watch(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Ask to be told of executions that another client started, or this one over another connection.

    `ExecutionChanged` comes for each, at once and at every change; an execution that no member knows any more has
    failed. With `logs`, `Logged` comes as well.
    """

    request: int
    executions: Annotated[list[int], msgspec.Meta(max_length=MOST_WATCHED)]
    logs: bool = False


def watches(executions: list[int], *, logs: bool = False) -> Iterator[Callable[[int], Watch]]:
    """Yield what makes requests of their numbers: as many as are needed to ask about all these executions."""
    for at in range(0, len(executions), MOST_WATCHED):
        yield partial(Watch, executions=executions[at : at + MOST_WATCHED], logs=logs)


class Upload(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A piece of a file to attach to a job, from `offset` on, in order. `path` is relative, as in `Submission`.

    A piece of less than `FILE_PIECE` bytes is the last one; it may be empty.
    """

    request: int
    job_id: str
    path: str
    offset: int
    data: bytes


class Ping(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Ask for a sign of life."""

    request: int


class GridCall(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Do something with a map or a list; `body` is an operation of `shmjet.grid.operations`.

    `member` is the member that does it, any if it is empty.

    `store` says which store has answered last, 0 for none. When it comes `again`, because an answer was lost, it is
    refused by who has another store; and what changes something is numbered, so that it is done once.
    """

    request: int
    body: bytes
    store: int = 0
    again: bool = False
    member: str = ""


class Shutdown(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Cancel what runs and end the instance; the member closes the connection when it is done."""

    request: int


class GoOnWithout(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Have a cluster that waits for members with partitions on their disks wait no longer."""

    request: int


class GetJob(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Ask for one job's DAG, and why its newest execution failed if it did."""

    request: int
    job_id: str


class Attach(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Ask for the member's settings and its control segment, to watch it from outside."""

    request: int


class Look(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Ask which executions there are."""

    request: int


class TakeArena(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Ask for the arena of an execution, to read its counters and rings."""

    request: int
    execution_id: int


class ConnectEndpoint(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Ask for a socket that leads to the processor at an endpoint; answered when the endpoint is open."""

    request: int
    execution_id: int
    endpoint: str


class ConnectInline(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The same for programs that cannot take descriptors: from the answer on, this very connection leads there.

    The client sends nothing before the answer has come.
    """

    request: int
    execution_id: int
    endpoint: str


class TakeLine(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A member to another one: this connection is for messages between members from the answer on; see `OfferLine`."""

    request: int
    token: bytes


Request = (
    Execute
    | CancelExecution
    | GetMetrics
    | ListJobs
    | Describe
    | DescribePartitions
    | AwaitBackups
    | StatusRequest
    | DumpAll
    | GetJob
    | Shutdown
    | GoOnWithout
    | Watch
    | Upload
    | GridCall
    | Ping
    | Attach
    | Look
    | TakeArena
    | ConnectEndpoint
    | ConnectInline
    | TakeLine
    | LifecycleRequest
    | ObservableRequest
)


class Done(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The request was carried out."""

    request: int


class Executing(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The job is being executed under this number; with `job_id` it is another job, which the client has joined."""

    request: int
    execution_id: int
    job_id: str = ""


class Refused(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The request was not carried out; `error` is the name of an error class of `shmjet.data.errors`."""

    request: int
    error: str
    text: str
    result: bytes = b""
    """What an operation on a map or list has returned, encoded, if it was carried out but is not on disk."""


class MetricsReply(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The answer to `GetMetrics`."""

    request: int
    metrics: Metrics


class JobRow(msgspec.Struct, frozen=True, array_like=True):
    """One job as the member knows it."""

    job_id: str
    name: str | None
    status: str
    execution_id: int | None
    config: bytes


class JobsReply(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The answer to `ListJobs`, oldest first."""

    request: int
    jobs: list[JobRow]


class ChildPids(msgspec.Struct, frozen=True, array_like=True):
    """The processes of a member that run processors: workers, and the carriers of the jobs of the moment."""

    workers: list[int]
    carriers: list[int]


class MemberRow(msgspec.Struct, frozen=True, array_like=True):
    """One member; `workers` and `carriers` are their pids, as far as it has told them."""

    uuid: str
    address: str
    pid: int
    cores: list[int]
    workers: list[int]
    carriers: list[int]


class JobReply(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The answer to `GetJob`; `failure` comes without the exception itself, so that it need not be unpickled."""

    request: int
    shape: JobShape
    failure: Failure | None


class Attached(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The answer to `Attach`; the control segment travels with it, to be read only.

    `settings` are the member's, as it was started; no secret is among them. Times are in seconds since 1970.
    """

    request: int
    version: str
    uuid: str
    pid: int
    client_pid: int
    started_at: float
    settings: dict[str, Any]
    workers: list[int]
    control_size: int
    address: str = "local"


class ExecutionRow(msgspec.Struct, frozen=True, array_like=True):
    """One execution, as one member sees it.

    `plan` and `arena_id`: while it has an arena here. `error` is the first line of a failure. `leads`: here it is led;
    then `attempts` counts those begun so far, `guarantee` is the value of a `ProcessingGuarantee`, `cause` says why it
    is suspended, `snapshot` is its last one, `waits_for` says what its next attempt waits for, `members` are the
    addresses of the members that take part, `restart` is its last one.
    """

    id: int
    job_id: str
    job_name: str | None
    status: str
    cancelled: bool
    started_at: float
    completed_at: float | None
    error: str | None
    plan: JobPlan | None
    arena_id: int | None
    leads: bool = True
    attempts: int = 1
    guarantee: str = "none"
    cause: SuspensionCause | None = None
    snapshot: LastSnapshot | None = None
    waits_for: str = ""
    members: list[str] = []
    restart: LastRestart | None = None


class PartitionCounts(msgspec.Struct, frozen=True, array_like=True):
    """How many partitions a member has as their primary, as a backup, and how many it is getting."""

    primaries: int = 0
    backups: int = 0
    copying: int = 0


class Looked(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The answer to `Look`, oldest first; `changes` is the word of the control segment when it was given."""

    request: int
    changes: int
    executions: list[ExecutionRow]
    partitions: PartitionCounts = PartitionCounts()


class ArenaTaken(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The answer to `TakeArena`; the arena travels with it, to be read only. Size 0: it has none any more."""

    request: int
    size: int


class EndpointConnected(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The answer to `ConnectEndpoint`, with the socket; or to `ConnectInline`."""

    request: int


class MembersReply(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The answer to `Describe`: the members, the oldest first, and which of them was asked."""

    request: int
    members: list[MemberRow]
    asked: str


class PartitionsReply(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The answer to `DescribePartitions`: for each partition the members that have it, the primary first.

    They are told as their places in `members`, which are identities. `is_safe`: no backup is missing. `me` is the
    member that answers.
    """

    request: int
    members: list[str]
    replicas: list[tuple[int, ...]]
    is_safe: bool
    me: str = ""


class MemberStatus(msgspec.Struct, frozen=True, array_like=True):
    """What one member does: its workers, its processes (CPU seconds and resident bytes by pid), its executions.

    The first fields are those of `Attached`; plans of executions are left out.
    """

    uuid: str
    address: str
    pid: int
    version: str
    client_pid: int
    started_at: float
    settings: dict[str, Any]
    workers: list[WorkerMetrics]
    processes: dict[int, tuple[float, int]]
    executions: list[ExecutionRow]
    partitions: PartitionCounts = PartitionCounts()


class StatusReply(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The answer to `StatusRequest`, the oldest member first; `silent` are the addresses of members that have not
    answered.

    `coordinator` is the address of the oldest, whether it has answered or not.
    """

    request: int
    members: list[MemberStatus]
    silent: list[str]
    coordinator: str = ""


class MemberDump(msgspec.Struct, frozen=True, array_like=True):
    """What was found out about one member, as JSON; None: it has not answered."""

    address: str
    body: bytes | None


class DumpsReply(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The answer to `DumpAll`, the oldest member first."""

    request: int
    members: list[MemberDump]


class GridReply(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The answer to `GridCall`; `store` is that of who answers."""

    request: int
    body: bytes
    store: int = 0


class ExecutionChanged(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """An execution's new status (a value of `JobStatus`).

    `failure` comes with FAILED, unless it was cancelled; `cause` while it is suspended.
    """

    execution_id: int
    status: str
    cancelled: bool = False
    failure: Failure | None = None
    cause: SuspensionCause | None = None


class Logged(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Log records of an execution's processors on one member, each a `shmjet.execution.logs.SentRecord` in msgpack.

    `dropped` says how many were left out before these: there were more than the member passes on.
    """

    execution_id: int
    member: str
    records: list[bytes]
    dropped: int = 0


class CoordinatorLost(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """What the coordinator knew is gone: executions that were under way have failed, for this reason."""

    text: str


class WatchAgain(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """News of executions may have been lost between members: ask for the executions that have not ended."""


class MembersAre(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Where all members are, the oldest first: for clients that are not on this host, in case this member is lost."""

    addresses: list[str]


News = ExecutionChanged | CoordinatorLost | WatchAgain | Logged | MembersAre | Observed
"""What comes unasked."""

Reply = (
    Done
    | Executing
    | Refused
    | MetricsReply
    | JobsReply
    | MembersReply
    | PartitionsReply
    | StatusReply
    | DumpsReply
    | JobReply
    | GridReply
    | Attached
    | Looked
    | ArenaTaken
    | EndpointConnected
    | SnapshotReply
    | SnapshotsReply
    | News
)
