"""The connection of a worker to its own member, for maps, lists and observables, and what it means when there is none.

A member that leaves the cluster stops to listen before its workers end. What they need of it then does not fail the
job, which goes on elsewhere.
"""

from __future__ import annotations

import socket
from pathlib import Path

from shmjet.cluster.protocol import Reply
from shmjet.data.errors import MemberLostError, RestartableError
from shmjet.ipc import unix_sockets
from shmjet.ipc.channel import Channel


class OwnMemberLostError(MemberLostError, RestartableError):
    """The member of this worker is gone, or is being shut down; the job is restarted on the others."""


def lost() -> OwnMemberLostError:
    """Return the error of a worker whose member answers no more."""
    return OwnMemberLostError("the member of this worker is gone")


def channel_to(path: Path) -> Channel:
    """Connect to the member of this worker.

    Args:
        path: of its socket.

    Raises:
        OwnMemberLostError: it listens there no more.
        OSError: no socket can be made, or another user listens.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        unix_sockets.connect(sock, path)
    except (ConnectionError, FileNotFoundError) as error:
        sock.close()
        raise lost() from error
    except BaseException:
        sock.close()
        raise
    return Channel(sock, Reply)
