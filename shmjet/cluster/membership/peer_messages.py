"""Messages between members: about executions, and for clients whose member does not coordinate.

Typed messages of msgspec, in bytes that the link carries. What is pickled in them (code, configs, exceptions) stays
opaque here; it is unpickled in workers and clients only. A message that comes from none of the view's members is
dropped before it is looked at, and one about an execution is taken from its coordinator only.
"""

from __future__ import annotations

import msgspec

from shmjet.cluster.membership.run_messages import AskStoredRuns, RunMessage, StoredRunsAre
from shmjet.cluster.membership.views import MembershipMessage
from shmjet.cluster.protocol import Submission
from shmjet.execution.job_plan import MemberSlot
from shmjet.execution.messages import Failure, LogSubscription, Probed, SavedProcessor
from shmjet.execution.metrics import Metrics


class ProbePart(msgspec.Struct, frozen=True):
    """Coordinator to its own member: ask a worker about the suppliers. It stays in the process.

    `others` are the addresses of the other members that take part, `owners` the places of the partitions' owners.
    """

    execution: int
    run: int
    submission: Submission
    others: list[str]
    logs: LogSubscription | None
    owners: list[int]


class PartProbed(msgspec.Struct, frozen=True):
    """Member to the coordinator in it: what a worker has found out."""

    execution: int
    probed: Probed


class PreparePart(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Coordinator to member: make your part of an attempt of a run. `execution` is the attempt's number.

    `epoch` is that of the view whose members take part; a member that is in another view refuses. `snapshots` is the
    lineage, empty for a job without one, `restored` the number of the snapshot in it to restore, -1 for none; `files`
    are the chunk files that this member lacks for that, with the members that have each.
    """

    execution: int
    epoch: int
    submission: Submission
    probed: Probed
    slot: MemberSlot
    logs: LogSubscription | None = None
    run: int = 0
    restored: int = -1
    snapshots: str = ""
    files: dict[str, list[str]] = {}


class StartPart(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Coordinator to member: all are ready."""

    execution: int


class CancelPart(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Coordinator to member: stop; `is_lossy` if that is because a process is lost."""

    execution: int
    is_lossy: bool = False


class CommitPart(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Coordinator to member: all have ended well everywhere; commit what you have to."""

    execution: int


class FinishPart(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Coordinator to member: all have ended; close suppliers, with this error if there was one, and let go.

    `is_followed`: by another attempt, for which services stay open.
    """

    execution: int
    error: str | None
    is_followed: bool = False


class SavePart(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Coordinator to member: begin phase one of a snapshot of a lineage; the other fields are those of `Save`."""

    execution: int
    snapshot_id: int
    terminal: bool
    prepares: bool
    lineage: str


class ResolvePart(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Coordinator to member: begin phase two of a snapshot; `success` says whether attempts go on from it."""

    execution: int
    snapshot_id: int
    success: bool


class PartReady(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to coordinator: all is ready here; `processors` is how many each vertex has on this member."""

    execution: int
    processors: list[int] = []


class PartFailed(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to coordinator: it has failed here, and is being stopped here."""

    execution: int
    failure: Failure


class PartEnded(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to coordinator: no tasklet is left here; `commits`: something here waits for `CommitPart`."""

    execution: int
    commits: bool = False


class PartCommitted(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to coordinator: what had to be committed here is committed."""

    execution: int


class PartSaved(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to coordinator: these processors have saved their state, or have ended; the fields are as in `Saved`."""

    execution: int
    snapshot_id: int
    processors: list[SavedProcessor]
    error: str | None = None


class PartResolved(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to coordinator: these processors, as (vertex, processor), have done phase two of a snapshot."""

    execution: int
    snapshot_id: int
    processors: list[tuple[int, int]]


class PartAtEnd(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to coordinator: these sinks, as (vertex, processor), have all input and wait for the last snapshot."""

    execution: int
    processors: list[tuple[int, int]]


class AskOpenSources(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Coordinator to member: which of these vertices have processors that have not ended?

    A snapshot is postponed until those in front of edges of higher priority have.
    """

    execution: int
    vertices: list[int]


class PartOpenSources(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to coordinator: these."""

    execution: int
    vertices: list[int]


class PartFinished(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to coordinator: nothing is left here; these were the metrics."""

    execution: int
    metrics: Metrics


class AskMetrics(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Coordinator to member: how far is your part?"""

    request: int
    execution: int


class PartMetrics(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to coordinator: so far."""

    request: int
    metrics: Metrics
    execution: int


class PartLogs(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to coordinator: what processors here have logged, for the client that has the job executed (`Logged`)."""

    execution: int
    records: list[bytes]
    dropped: int


class PutFile(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Coordinator to member: a piece of a file attached to a job, from `offset` on; they come in order."""

    job: str
    path: str
    offset: int
    data: bytes


class Forward(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to coordinator: a client of mine asks; `body` is its request.

    `is_here`: the client is a process of the member's host and user, such as one of its workers.
    """

    client: int
    body: bytes
    is_here: bool


class Backward(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Coordinator to member: for your client; `body` is the reply to `request`, or news of an execution (0).

    What `may_drop` is not sent to a client that does not read what it was sent before.
    """

    client: int
    body: bytes
    request: int
    may_drop: bool = False


class Bounced(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to member: I do not coordinate, and have not done what that client of yours has asked."""

    client: int
    request: int


class ClientGone(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to coordinator: that client of mine is gone."""

    client: int


class AskReport(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to member: tell me about yourself. `kind`: "workers", "status" or "dump"
    (`shmjet.cluster.member.cluster_status`).
    """

    request: int
    kind: str


class Report(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to member: the answer. `ChildPids` or a `MemberStatus`, in msgpack, or a dump, in JSON."""

    request: int
    body: bytes


class CopyPartitions(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Keeper to keeper: take copies of partitions: the beginning of some, pieces, terms, changes, and the end.

    `pieces` is a list of `shmjet.grid.partition_copy.Piece`, or empty; `end` has the lineages of partitions that are
    complete, with the terms of their primary, and the numbers in its logs of changes; see `shmjet.grid.replica`.
    `sent` is a list of `shmjet.grid.replica.Sent`, what changed meanwhile, or empty; `moment` is that of the sender's
    clock.
    `after` is the number of the message that has to be taken right before; 0: none has.
    """

    epoch: int
    number: int
    begin: list[int]
    pieces: bytes = b""
    end: dict[int, int] = {}
    terms: dict[int, tuple[int, int]] = {}
    numbers: list[int] = []
    sent: bytes = b""
    moment: int = 0
    after: int = 0


class CopiedPartitions(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The answer to `CopyPartitions`; `error` is empty when it has been done."""

    number: int
    error: str


class ShipChanges(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Replicator to replicator: take changes of partitions of which you are a backup, or what they need first.

    `piece` is a `shmjet.grid.partition_copy.Piece`, or empty. `sent` is a list of `shmjet.grid.replica.Sent`, or empty;
    then `moment` is that of the sender's clock, and `backed_up` says for each environment which changes all have.
    """

    epoch: int
    number: int
    piece: bytes = b""
    moment: int = 0
    backed_up: list[int] = []
    sent: bytes = b""


class AgreeOnTails(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Replicator to replicator: I am the new primary of partitions, and you are a backup of them.

    `positions` says what I have, `tails` what I remember of the last primary; see `shmjet.grid.replica`.
    """

    epoch: int
    number: int
    partitions: list[int]
    positions: list[tuple[int, int, tuple[tuple[int, int], int]]]
    tails: bytes


class AskFile(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to member: give me what a file of your snapshots has from an offset on.

    `is_here`: I am on your host, and want to know where the file is.
    """

    number: int
    folder: str
    file: str
    offset: int
    is_here: bool = False


class FilePiece(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The answer: some bytes, and how many the file has; or its path; or why there is none."""

    number: int
    data: bytes
    size: int
    path: str = ""
    error: str = ""


class KeepSnapshot(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Coordinator to member: fetch the manifest of a snapshot from me, and these chunk files from their holders.

    `counts`: it is valid then, under its number, in the lineage that `folder` is. `export` and `version`: it is
    exported under this name. If neither, `folder` is that of an exported snapshot.
    """

    number: int
    folder: str
    manifest: str
    snapshot: int
    files: dict[str, list[str]]
    counts: bool
    export: str = ""
    version: str = ""


class SnapshotKept(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The answer to `KeepSnapshot`; `error` is empty when it has been done."""

    number: int
    error: str


class SyncMaps(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Coordinator to member: bring all changes of maps and lists to disk, and answer with `SnapshotKept`."""

    number: int


class AskSnapshots(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Coordinator to member: which files have you in this folder of snapshots?

    `begun_from` is empty, or the folder of the exported snapshot that is number 0 of the lineage that `folder` is.
    """

    number: int
    folder: str
    begun_from: str = ""


class SnapshotFiles(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The answer to `AskSnapshots`."""

    number: int
    names: list[str]


class ForgetSnapshots(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Coordinator to member: forget a snapshot of a lineage, or all of it (`snapshot` is -1).

    Of an exported one, `folder` has all versions, and `but` stays, or is empty.
    """

    folder: str
    snapshot: int = -1
    but: str = ""


class CompareSums(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Comparer to comparer: say which maps and lists differ of a partition of which you are a backup.

    For each environment `ends` has the number of the last record of the log about the partition, and of the last one of
    all, behind which it was summed; `sums` has the fields of `shmjet.grid.partition_sums.Sum`.
    """

    epoch: int
    number: int
    partition: int
    term: tuple[int, int]
    ends: list[tuple[int, int]]
    sums: list[tuple[int, str, int, int]]


class OfferLine(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """I am about to connect to you for changes, and show this token; empty: please do so yourself.

    As the first message on such a connection it says that the member that has made it is ready. `for_copies`: the
    connection is for copies of partitions, from the member that makes it.
    """

    token: bytes
    for_copies: bool = False


class ChangesTaken(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The answer to these: `error` is empty when it has been done, `tails` is what you lack, or what differs."""

    number: int
    error: str
    tails: bytes = b""


ExecutionMessage = (
    PreparePart
    | StartPart
    | CancelPart
    | CommitPart
    | FinishPart
    | SavePart
    | ResolvePart
    | AskOpenSources
    | PartReady
    | PartFailed
    | PartEnded
    | PartCommitted
    | PartSaved
    | PartResolved
    | PartAtEnd
    | PartOpenSources
    | PartFinished
    | AskMetrics
    | PartMetrics
    | PartLogs
    | PutFile
)
SnapshotMessage = (
    AskFile | FilePiece | KeepSnapshot | SnapshotKept | SyncMaps | AskSnapshots | SnapshotFiles | ForgetSnapshots
)
KeeperMessage = CopyPartitions | CopiedPartitions | ShipChanges | AgreeOnTails | CompareSums | OfferLine | ChangesTaken
RelayMessage = Forward | Backward | Bounced | ClientGone | AskReport | Report
PeerMessage = (
    MembershipMessage
    | ExecutionMessage
    | RunMessage
    | AskStoredRuns
    | StoredRunsAre
    | RelayMessage
    | KeeperMessage
    | SnapshotMessage
)
