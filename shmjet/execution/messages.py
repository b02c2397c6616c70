"""What a member and its child processes say to each other, as msgspec structs over `Channel`.

A job travels as a `JobPlan` (`job_plan.py`). User code travels next to it as an opaque cloudpickle and is unpickled in
workers only, never in the member.
"""

from __future__ import annotations

import msgspec

from shmjet.execution.job_plan import JobPlan, JobShape
from shmjet.snapshots.manifest import Piece


class LogSubscription(msgspec.Struct, frozen=True, array_like=True):
    """A client's wish for the log records of an execution, from these levels on, of shmjet's loggers and of all others.

    `home` is the member whose processes it hears by itself, because it has started them; empty: none.
    """

    level: int
    root_level: int
    home: str = ""


class Deploy(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to worker or carrier: make your processors of this execution and call their `init`.

    The arena's descriptor travels with the message when `arena_attached` is false, behind it that of the code when
    `code_size` is not 0 (`InlineOrMemfd`).
    `suppliers` holds, per vertex with a meta-supplier, the cloudpickled supplier that it gave for this member.
    `manifest` is the path of the snapshot to restore, empty for none.
    """

    execution_id: int
    job_id: str
    job_name: str | None
    code: bytes
    plan: JobPlan
    arena_id: int
    arena_size: int
    arena_reserved: int
    arena_attached: bool
    config: bytes
    suppliers: dict[int, bytes]
    attachments: dict[str, str]
    import_paths: list[bytes]
    code_size: int = 0
    logs: LogSubscription | None = None
    manifest: str = ""


class Probe(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to one worker: run the meta-suppliers, and say which vertices have non-cooperative processors.

    The descriptor of the code travels with it when `code_size` is not 0 (`InlineOrMemfd`).
    `other_addresses` are those of the other members that take part; `member_address` is the first's, which asks.
    `owners` are the places of the partitions' owners.
    """

    execution_id: int
    shape: JobShape
    code: bytes
    config: bytes
    job_id: str
    job_name: str | None
    default_parallelism: int
    partition_count: int
    member_address: str
    meta: list[int]
    unknown: list[int]
    import_paths: list[bytes]
    code_size: int = 0
    other_addresses: list[str] = []
    logs: LogSubscription | None = None
    attachments: dict[str, str] = {}
    owners: list[int] = []


class Start(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to worker: every processor everywhere is ready, run; unless you have found that yourself already."""

    execution_id: int


class Cancel(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to worker: stop the tasklets of this execution and close its processors.

    `is_lossy`: because a process is lost, so that services stay open until `Finish` says whether an attempt follows.
    """

    execution_id: int
    is_lossy: bool = False


class Commit(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to child: all tasklets everywhere have ended well, call `commit` of the (meta-)suppliers that have one."""

    execution_id: int


class Finish(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to worker: the execution has ended everywhere; close its suppliers and let go of its arena.

    Not sent to a worker that had nothing left to do for it when it ended. `is_followed`: by another attempt, for which
    services stay open.
    """

    execution_id: int
    error: str | None
    is_followed: bool = False


class Stop(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to worker: close everything and exit."""


class Forget(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to worker: unmap this arena, it will not be used again."""

    arena_id: int


class Adopt(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to worker: go on with this tasklet, which another worker has given away.

    `state` and `size` are a `InlineOrMemfd`; the descriptors of native tables follow its own.
    """

    execution_id: int
    vertex: int
    processor: int
    state: bytes
    size: int
    tables: int


class Save(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to process: save the state of this execution's processors, phase one of a snapshot.

    Args:
        snapshot_id: of the snapshot, growing from 1 within a lineage.
        terminal: every tasklet ends when the snapshot has been resolved.
        prepares: whether `snapshot_commit_prepare` and `_finish` are called; not for an export that leaves the job
            running.
        folder: where chunk files are made.
    """

    execution_id: int
    snapshot_id: int
    terminal: bool
    prepares: bool
    folder: str


class Resolve(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to process: phase two of a snapshot; `success` says whether it is valid."""

    execution_id: int
    snapshot_id: int
    success: bool


class EndpointConnection(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to worker: a program outside wants to talk to the processor at this endpoint; its socket comes along."""

    execution_id: int
    endpoint: str


Command = (
    Deploy | Probe | Start | Cancel | Commit | Finish | Stop | Forget | Adopt | Save | Resolve | EndpointConnection
)


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """One frame of a traceback."""

    file: str
    line: int
    function: str
    source: str


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """Why an execution failed, in a form that always travels.

    `exception` is the pickled exception, or None when it could not be pickled (or not read back). `member` is the
    address of where it happened, empty for a member without a network. `restartable`: the job may be restarted.
    `attempts`: how many attempts in a row had failed when the run was given up, 0 if that was not why.
    """

    kind: str
    vertex: str | None
    processor_index: int
    worker: int
    pid: int
    type_name: str
    text: str
    frames: list[Frame]
    exception: bytes | None
    signal: int = 0
    vertices: list[str] = []
    member: str = ""
    restartable: bool = False
    attempts: int = 0


class Hello(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Child to member: I am up."""

    pid: int


class Probed(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Worker to member: the answer to `Probe`.

    `suppliers` are those of the asking member, `others` those of each of `Probe.other_addresses`. `commits` says that a
    meta-supplier has something to do once all has ended well.
    """

    execution_id: int
    suppliers: dict[int, bytes]
    non_cooperative: list[int]
    commits: bool = False
    others: list[dict[int, bytes]] = []


class Ready(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Child to member: all my processors of this execution are initialised.

    A child that can start at once says so half a millisecond later, if it has not ended by then.
    """

    execution_id: int


class Failed(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Child to member: something of this execution failed here; my part of it has been stopped."""

    execution_id: int
    failure: Failure


class Ended(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Child to member: none of this execution's tasklets is left here, every processor is closed.

    `adopted` counts the tasklets that it has adopted so far: with more under way to it, it has not ended. `finished`
    says that it has let go of the arena already, because nothing can come any more that it would be needed for;
    `has_views` is then as in `Finished`. `commits` says that suppliers here have something to commit.
    """

    execution_id: int
    adopted: int
    finished: bool
    has_views: bool
    commits: bool = False


class Committed(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Child to member: what it had to commit is committed."""

    execution_id: int


class SavedProcessor(msgspec.Struct, frozen=True, array_like=True):
    """What one processor of this member has saved; `finished` when it has ended before the snapshot.

    `tells_rest` as of `ProcessorRecord`.
    """

    vertex: int
    processor: int
    finished: bool
    pieces: list[Piece]
    tells_rest: bool = True


class Saved(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Child to member: these processors have saved their state for a snapshot and passed the barrier on.

    A finished processor is reported with each snapshot until one with it is valid, exports aside. `error` says why this
    snapshot cannot become valid, as when the disk is full; the barrier has been passed on nevertheless.
    """

    execution_id: int
    snapshot_id: int
    processors: list[SavedProcessor]
    error: str | None = None


class Resolved(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Child to member: these processors, as (vertex, processor), have done phase two of a snapshot."""

    execution_id: int
    snapshot_id: int
    processors: list[tuple[int, int]]


class AtEnd(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Child to member: these sinks, as (vertex, processor), have all their input and wait for the last snapshot."""

    execution_id: int
    processors: list[tuple[int, int]]


class HandOver(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Worker to member: pass this tasklet on to worker `to`; the fields are those of `Adopt`."""

    execution_id: int
    to: int
    vertex: int
    processor: int
    state: bytes
    size: int
    tables: int


class Finished(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Child to member: suppliers are closed and the arena is let go, but for views of batches in it if `has_views`."""

    execution_id: int
    has_views: bool


class Broken(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Child to member: my last words. I cannot go on, for this reason, and exit."""

    text: str


class EndpointOpened(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Child to member: a processor here takes connections at this endpoint."""

    execution_id: int
    endpoint: str


Report = (
    Hello
    | Broken
    | Probed
    | Ready
    | Failed
    | Ended
    | Committed
    | Finished
    | Saved
    | Resolved
    | AtEnd
    | HandOver
    | EndpointOpened
)


class Fork(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to fork server: fork a child; its channel and the control segment travel as descriptors."""

    token: int
    index: int
    core: int | None
    control_size: int
    settings: bytes
    arena_size: int
    doorbell_offset: int


class Forked(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Fork server to member: the child's pid."""

    token: int
    pid: int


class Exited(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Fork server to member: a child was reaped; `status` as `os.waitstatus_to_exitcode` gives it."""

    pid: int
    status: int


class WorkerSettings(msgspec.Struct, frozen=True):
    """What a child needs to know once.

    `steal_margin`: how many tasklets more than its own another worker must have for it to take one; None: never.
    `is_networked`: maps and lists lie on other members, too.
    """

    folder: str
    worker_count: int
    member_address: str
    idle_min_ns: int
    idle_max_ns: int
    spin: bool
    partition_count: int
    steal_margin: int | None
    is_networked: bool = False
