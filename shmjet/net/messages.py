"""What a member and its link process say to each other, as msgspec structs over `shmjet.ipc.channel.Channel`.

The link owns every socket of its member. What members tell each other goes through it as bytes that it does not look
into (`Send`, `Received`); the frames of distributed edges it moves itself between rings and connections, once the
member has opened an execution (`OpenExecution`). Order of messages from the member: `Setup` first, then any; `Stop`
last, or just the end of the socket.
"""

from __future__ import annotations

import msgspec

from shmjet.execution.job_plan import JobPlan


class Secret(msgspec.Struct, frozen=True, array_like=True):
    """A secret in a message; it shows in no repr and no log."""

    value: bytes

    def __repr__(self) -> str:
        return "Secret(***)"


class TlsFiles(msgspec.Struct, frozen=True, array_like=True):
    """Settings of TLS, as paths of PEM files.

    Args:
        certificate: this member's certificate, with the chain behind it; None for a client that shows none.
        key: its key; None when it is in the same file.
        authority: whose certificates are trusted; None: the system's.
        mutual: peers and clients have to show a certificate, too.
        check_hostname: the listener's certificate must be for the host name dialled.
    """

    certificate: str | None = None
    key: str | None = None
    authority: str | None = None
    mutual: bool = False
    check_hostname: bool = True


class Limits(msgspec.Struct, frozen=True, array_like=True):
    """What an unproved connection may cost, and how long a member waits.

    Args:
        unproved: connections at once whose other end has proved nothing yet; for one more, one of the address that has
            the most is sent away.
        handshake_ns: nanoseconds that one has from connecting to its proof.
        connect_ns: nanoseconds that connecting to an address may take.
        message_bytes: bytes of one message between members (`Send`) at most.
    """

    unproved: int = 64
    handshake_ns: int = 5_000_000_000
    connect_ns: int = 5_000_000_000
    message_bytes: int = 1 << 30


# -- member to link -----------------------------------------------------------------------------------------------


class Setup(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """First message: who this member is.

    Args:
        uuid: this member's, 32 hexadecimal digits.
        cluster: name of the cluster; others are refused.
        secret: what every member and client has to know.
        member_secret: what members have to know as well; empty: nothing more.
        tls: None for connections in the clear.
        flow_period_ns: nanoseconds between flow-control packets to each peer.
        doorbell_size: bytes of the control segment, whose descriptor comes with this message and then that of the
            link's eventfd; 0 for a member without workers (no descriptors then).
        doorbell_offset: where the link's control block lies in it.
        folder: of the member, where the link writes its Python stacks when it is asked to; empty: nowhere.
    """

    uuid: str
    cluster: str
    secret: Secret
    tls: TlsFiles | None = None
    limits: Limits = Limits()
    flow_period_ns: int = 100_000_000
    doorbell_size: int = 0
    doorbell_offset: int = 0
    folder: str = ""
    member_secret: Secret = Secret(b"")


class Listen(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Open a port; answered by `Listening` or `ListenFailed`.

    `address` is "host:port", port 0 for any. `advertised` is where others reach it, with port 0 for the bound
    port; None: the address that was bound.
    """

    address: str
    advertised: str | None = None


class Connect(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Connect to a member; answered by `PeerUp` (also when the connection is there already) or `ConnectFailed`."""

    address: str


class Disconnect(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Close the connection to a peer, once what was sent to it has left; `PeerDown` follows. It may come back."""

    peer: str


class Fence(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Close the connection to a peer at once and refuse this uuid for good: nothing that it sends is accepted."""

    peer: str


class Send(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Send bytes to a peer's member. In order among themselves; lost when there is no such peer.

    What `may_wait` goes after the data of edges, and in an order of its own.
    """

    peer: str
    payload: bytes
    may_wait: bool = False


class SetHeartbeat(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Send a heartbeat to every peer each `interval_ns`, as long as `Alive` came within the last `patience_ns`.

    0 switches them off, as they are at first. `Heard` is reported at most once per interval and peer.
    """

    interval_ns: int
    patience_ns: int


class Alive(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The member's own sign of life: its link must not speak for a member that is stopped or stuck."""


class OpenExecution(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Carry the distributed edges of an execution; the arena's descriptor comes with it. Answered by `ExecutionOpened`.

    To be sent before any member starts the execution, and after the arena was formatted.

    Args:
        execution: the cluster-wide id, 1 to 2**63 - 1.
        plan: this member's; its slot names the peers.
        arena_size, arena_reserved: as in `Deploy`.
        flow_control: False lets senders run ahead without a window (for measuring).
    """

    execution: int
    plan: JobPlan
    arena_size: int
    arena_reserved: int
    flow_control: bool = True


class CloseExecution(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Let go of an execution and its arena, whatever is still in its rings. Answered by `ExecutionClosed`.

    After a good end: when the tasklets on *all* members have ended, as the link is not asked whether all has left.
    """

    execution: int


class RefuseClients(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Tell clients that this member is busy: clients from these sources (`shmjet.net.admission`), or all clients.

    Each such order takes the place of the one before.
    """

    all_sources: bool
    sources: tuple[str, ...] = ()


class GetStats(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Answered by `Stats`."""

    request: int


class Stop(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Close everything and exit."""


Order = (
    Setup
    | Listen
    | Connect
    | Disconnect
    | Fence
    | Send
    | SetHeartbeat
    | Alive
    | OpenExecution
    | CloseExecution
    | RefuseClients
    | GetStats
    | Stop
)
"""What the link receives."""


# -- link to member -----------------------------------------------------------------------------------------------


class Listening(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The port is open; `address` is what others are told."""

    address: str


class ListenFailed(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The port cannot be opened."""

    address: str
    reason: str


class ConnectFailed(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """There is no connection to an address.

    `kind`: "unreachable" (nothing listens, or no answer in time), "authentication" (one of the two secrets, or a
    certificate, is wrong), "cluster" (another cluster's member), "version", "self" (this member's own address),
    "fenced" (it has fenced this member), "protocol" (it is not a member), "tls" (it takes TLS
    only, and this one has none).
    """

    address: str
    kind: str
    reason: str


class PeerUp(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A peer is connected and has proved that it knows the secret.

    `address` is what the peer advertises, `dialed` what this member dialled, None when the peer did.
    """

    peer: str
    address: str
    dialed: str | None


class PeerDown(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The connection to a peer has ended; nothing that was sent to it is known to have arrived."""

    peer: str
    reason: str


class Received(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """What a peer's member has sent with `Send`."""

    peer: str
    payload: bytes


class Heard(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A peer has given a sign of life, at this time of CLOCK_MONOTONIC."""

    peer: str
    at_ns: int


class Accepted(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A client has proved that it knows the secret; the descriptor of a stream socket to it comes with this message.

    `leftover` is what it has sent behind its proof and the link has read already. With TLS the socket is one end of a
    pair whose other end the link relays.
    """

    address: str
    leftover: bytes
    tls: bool


class ExecutionOpened(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The link carries the execution's edges, or cannot, for this reason."""

    execution: int
    error: str | None = None


class ExecutionClosed(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The link has let go of the arena; the arena may be used again."""

    execution: int


class PeerStats(msgspec.Struct, frozen=True, array_like=True):
    """Bytes on the connection to one peer, headers included, and bytes that wait to be sent."""

    peer: str
    bytes_out: int
    bytes_in: int
    queued: int


class EdgeStats(msgspec.Struct, frozen=True, array_like=True):
    """One distributed edge: what went to and came from all peers; `waiting` bytes have come and found no room yet.

    `edge` is its index in the plan.
    """

    execution: int
    edge: int
    items_out: int
    items_in: int
    bytes_out: int
    bytes_in: int
    waiting: int


class Stats(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The answer to `GetStats`."""

    request: int
    peers: list[PeerStats]
    edges: list[EdgeStats]


Event = (
    Listening
    | ListenFailed
    | ConnectFailed
    | PeerUp
    | PeerDown
    | Received
    | Heard
    | Accepted
    | ExecutionOpened
    | ExecutionClosed
    | Stats
)
"""What the member receives."""
