"""The backend of a `JetInstance`: an embedded member, which its process has started, or a remote cluster."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from shmjet.cluster.client.connection import Connection, Endpoint
from shmjet.cluster.client.direct_lines import Dial
from shmjet.cluster.client.launch import StartingMember
from shmjet.cluster.client.logs import LogReceiver
from shmjet.cluster.protocol import Ping, Shutdown
from shmjet.cluster.settings import LARGE_CODE, SOCKET_NAME
from shmjet.data.errors import MemberLostError, ShmjetError
from shmjet.host.patience import is_stopped
from shmjet.ipc import unix_sockets

if TYPE_CHECKING:
    from shmjet.cluster.client.endpoint import RemoteEndpoint

_SHUTDOWN_S = 2.0
_LEAVE_S = 3.0
_LONGEST_LEAVE_S = 75.0


class LocalEndpoint:
    """The socket of a member that this process has started.

    Args:
        path: of the socket.
        pid: of the member.
    """

    patience = None  # the socket ends with the member
    reconnect_s = 0.0

    def __init__(self, path: Path, pid: int) -> None:
        self._path = path
        self._pid = pid

    @property
    def gone(self) -> str:
        """What to say when the member is gone."""
        return f"the member of this instance (pid {self._pid}) is gone; start a new one with shmjet.new_instance()"

    @property
    def trouble(self) -> str:
        """Whether the member's process is stopped."""
        if not is_stopped(self._pid):
            return ""
        return f": it is stopped (SIGSTOP); `kill -CONT {self._pid}` lets it go on"

    def connect(self) -> tuple[socket.socket, bytes, Callable[[], None]]:
        """Connect. Raises MemberLostError when the member has ended since it said that it was up."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            unix_sockets.connect(sock, self._path)
        except OSError as error:
            sock.close()
            raise MemberLostError(f"{self.gone} ({error.strerror or error})") from None
        return sock, b"", sock.close

    def connect_again(self, stopped: Callable[[], bool]) -> None:
        """There is no other member of this instance."""


class Backend(Protocol):
    """What an instance needs to know of where it is."""

    has_own_member: bool
    """Whether a member ends with the instance."""
    is_networked: bool
    """Whether jobs may run elsewhere than on the member that this process has started."""
    most_inline: int
    """A job's code of more bytes travels as a descriptor, not in the message."""

    @property
    def endpoint(self) -> Endpoint:
        """What leads to a member."""

    @property
    def name(self) -> str:
        """How the instance is called by where it is."""

    @property
    def loss(self) -> str:
        """What to say of a job when the member is lost for good."""

    @property
    def address(self) -> str:
        """Where the member is."""

    @property
    def grid_folder(self) -> Path | None:
        """Where the maps and lists of the member can be opened directly; None where they cannot."""

    @property
    def dial(self) -> Dial | None:
        """What connects to any member by its address, as another client; None where that is not done."""

    def own_folder(self) -> Path:
        """Return the folder of the member that ends with the instance. Raises ShmjetError where there is none."""

    def check(self) -> None:
        """Raise MemberLostError if the member that ends with the instance is gone."""

    def logs(self) -> LogReceiver | None:
        """Return what takes the log records of the member's processes; None where they stay there."""

    def learn(self, addresses: Sequence[str]) -> None:
        """Take where members are."""

    def begin_end(self, connection: Connection) -> None:
        """Ask for the end of what belongs to the instance."""

    def end(self) -> None:
        """See to that end."""


class EmbeddedBackend:
    """A member that this process has started.

    Args:
        member: that comes up.
        has_network: it belongs to a cluster; then maps may lie on another member.
    """

    has_own_member = True
    most_inline = LARGE_CODE
    dial: Dial | None = None

    def __init__(self, member: StartingMember, *, has_network: bool) -> None:
        self._starting = member
        self._process = member.process
        self._has_network = self.is_networked = has_network
        self._started = member.wait()
        self._folder = Path(self._started.folder)
        self.grid_folder: Path | None = self._folder / "grid"
        self.endpoint = LocalEndpoint(self._folder / SOCKET_NAME, self._process.pid)

    @property
    def name(self) -> str:
        """The member's pid."""
        return f"the member (pid {self._process.pid})"

    @property
    def loss(self) -> str:
        """The job went with the member."""
        return f"{self.name} was lost while the job ran"

    @property
    def address(self) -> str:
        """The member's address."""
        return self._started.address

    def own_folder(self) -> Path:
        """Return the member's folder."""
        return self._folder

    def check(self) -> None:
        """Look whether the process runs."""
        if self._process.poll() is not None:
            raise MemberLostError(self.endpoint.gone)

    def logs(self) -> LogReceiver | None:
        """Take the records of all its processes."""
        return LogReceiver(self._starting.logs, self._starting.log_level)

    def learn(self, addresses: Sequence[str]) -> None:
        """Nothing to learn: when the member is gone, so is the instance."""

    def begin_end(self, connection: Connection) -> None:
        """Have the member leave and end; in a cluster that takes as long as its partitions take to other members."""
        with contextlib.suppress(MemberLostError, TimeoutError):
            ended = connection.post(Shutdown)
            deadline = time.monotonic() + _LONGEST_LEAVE_S
            while self._has_network and time.monotonic() < deadline:
                with contextlib.suppress(TimeoutError):
                    ended.result(_LEAVE_S)
                    return
                connection.post(Ping).result(_LEAVE_S)
            ended.result(_SHUTDOWN_S)

    def end(self) -> None:
        """Wait for the process."""
        try:
            self._process.wait(_SHUTDOWN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class RemoteBackend:
    """A client of a cluster: nothing ends with it.

    Args:
        endpoint: that leads to any of the members.
    """

    has_own_member = False
    is_networked = True
    most_inline = sys.maxsize  # no descriptor goes over the network
    grid_folder: Path | None = None

    def __init__(self, endpoint: RemoteEndpoint) -> None:
        self.endpoint = endpoint

    @property
    def name(self) -> str:
        """The member that it is connected to."""
        return f"the client of {self.endpoint.address}"

    @property
    def loss(self) -> str:
        """Only the cluster knows."""
        return f"{self.endpoint.gone}; the outcome of the job is not known"

    @property
    def address(self) -> str:
        """The address of the member that it is connected to."""
        return self.endpoint.address

    def logs(self) -> LogReceiver | None:
        """Nothing comes by itself: members send what is asked for with each execution."""
        return None

    @property
    def dial(self) -> Dial | None:
        """As the endpoint does."""
        return self.endpoint.dial

    def own_folder(self) -> Path:
        """There is none: an error says so."""
        raise ShmjetError("a client has no member of its own, so there is no folder to look into")

    def check(self) -> None:
        """There is none."""

    def learn(self, addresses: Sequence[str]) -> None:
        """Take where further members are, for when this one is gone."""
        self.endpoint.learn(addresses)

    def begin_end(self, connection: Connection) -> None:
        """Nothing ends."""

    def end(self) -> None:
        """Nothing ends."""
