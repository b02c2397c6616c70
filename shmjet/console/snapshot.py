"""What the page shows, as plain data: the JSON of `/api/state` and of each event. Times are seconds since 1970."""

from __future__ import annotations

import msgspec

from shmjet.console.history import Series
from shmjet.console.layers import Place
from shmjet.observe.flow import EdgeFlow, VertexFlow


class WorkerCard(msgspec.Struct, frozen=True):
    """One worker: `busy` is the share of the last second that it did not sleep, `cpu` that of a core that it used."""

    index: int
    pid: int | None
    core: int | None
    busy: float
    cpu: float
    memory: int
    tasklets: int


class MemberCard(msgspec.Struct, frozen=True):
    """One member; `cpu` (in cores) and `memory` are those of all its processes. `program` is what started it.

    `address` is "local" for one without a network. `primaries`, `backups` and `copying` count its partitions.
    """

    id: str
    address: str
    pid: int
    cluster: str
    program: str
    started_at: float
    ended: bool
    silent: bool
    cpu: float
    memory: int
    workers: list[WorkerCard]
    history: Series
    executions: int
    failed: int
    primaries: int
    backups: int
    copying: int


class JobCard(msgspec.Struct, frozen=True):
    """One job in the list; `rate`: items that its sources emit in a second; later its busiest edge.
    `attempts`: of its newest execution.

    `status` is one of Jet's, or "cancelling", "cancelled", "lost"; `execution` counts those of its member.
    """

    id: str
    member: str
    name: str
    status: str
    execution: int
    executions: int
    started_at: float
    completed_at: float | None
    rate: float
    attempts: int = 1


class SnapshotCard(msgspec.Struct, frozen=True):
    """The last snapshot of a job; `seconds` from the order to its end, `size` in bytes."""

    id: int
    started_at: float
    seconds: float
    size: int
    keys: int


class SuspensionCard(msgspec.Struct, frozen=True):
    """Why a job is suspended: a user asked for it, or there was an error, whose text ends with the user's traceback."""

    requested_by_user: bool
    error: str | None


class RestartCard(msgspec.Struct, frozen=True):
    """The last restart of a job: why, and how many seconds it took until it ran again; None while it does not."""

    cause: str
    seconds: float | None


class VertexCard(msgspec.Struct, frozen=True):
    """A vertex: what it does, which share of the time it waits for room behind it, and where it lies in the picture.

    `state_keys` and `state_bytes`: what the last snapshot holds of it.
    """

    flow: VertexFlow
    waiting: float
    place: Place
    state_keys: int = 0
    state_bytes: int = 0


class EdgeCard(msgspec.Struct, frozen=True):
    """An edge: what it does, how full it is, how it sends, and through which bends it passes."""

    flow: EdgeFlow
    fill: float
    is_full: bool
    routing: str
    distributed: bool
    bends: list[Place]


class FailureCard(msgspec.Struct, frozen=True):
    """Why a job failed; `text` ends with the traceback of the user's own code.

    `worker` is -1 where it was none's, `member` an address, empty for one without a network.
    """

    error: str
    vertex: str | None
    processor: int
    worker: int
    member: str
    text: str


class JobDetail(msgspec.Struct, frozen=True):
    """The job that is looked at.

    `averaged`: rates and shares are those of the whole execution, which has ended; `members`: how many take part;
    `bottleneck`: the vertex that the others wait for, or that fills its workers; `is_read`: the sources have emitted
    all that they have, and the job goes on; `share` and `eta`: how much of the sources' work is done, 0 to 1,
    and the seconds left, if known; `guarantee`: the value of a `ProcessingGuarantee`; `suspension`: while it is
    suspended; `time`: a line for each vertex of a job with event time, on how far it is and what holds it there;
    `waits_for`: what the next attempt of a job waits for that does not run.
    """

    card: JobCard
    vertices: list[VertexCard]
    edges: list[EdgeCard]
    layers: int
    breadth: float
    source_rate: float
    sink_rate: float
    bottleneck: str | None
    averaged: bool
    members: int
    is_read: bool
    share: float | None
    eta: float | None
    failure: FailureCard | None
    history: Series
    guarantee: str = "none"
    snapshot: SnapshotCard | None = None
    suspension: SuspensionCard | None = None
    time: list[str] = []
    waits_for: str = ""
    restart: RestartCard | None = None


class Snapshot(msgspec.Struct, frozen=True):
    """Everything at one moment; `selected` is the job asked for, else the newest that runs, else the newest."""

    time: float
    version: str
    changes: bool
    members: list[MemberCard]
    jobs: list[JobCard]
    selected: JobDetail | None
