"""A connection from a program to one processor of a running execution, through the member's socket.

For programs that are not clients, such as Spark's Python workers: it needs no thread and not the rest of this package.
"""

from __future__ import annotations

import os
import socket

from shmjet.cluster.protocol import ConnectEndpoint, Refused, Reply
from shmjet.data import errors
from shmjet.data.errors import MemberLostError, ShmjetError
from shmjet.ipc import unix_sockets
from shmjet.ipc.channel import Channel, ChannelClosed


def connect_endpoint(member_socket: str, execution_id: int, endpoint: str) -> socket.socket:
    """Return a connected socket whose other end is the processor's at an endpoint; waits until it is open.

    Args:
        member_socket: path of the member's socket (`SOCKET_NAME` in its folder).
        execution_id: of the execution that runs.
        endpoint: as the processor named it (`ProcessorContext.open_endpoint`).

    Raises:
        MemberLostError: no member listens at the path, or it ended before it answered.
        ShmjetError: the execution has ended.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        unix_sockets.connect(sock, member_socket)
    except OSError as error:
        sock.close()
        raise MemberLostError(f"no member listens at {member_socket}: {error}") from error
    channel = Channel(sock, Reply)
    try:
        channel.send(ConnectEndpoint(1, execution_id, endpoint))
        reply, fds = channel.receive()
    except ChannelClosed as error:
        raise MemberLostError(f"the member at {member_socket} was lost before it answered") from error
    finally:
        channel.close()
    if isinstance(reply, Refused):
        kind = getattr(errors, reply.error, ShmjetError)
        raise kind(reply.text)
    os.set_inheritable(fds[0], False)
    return socket.socket(fileno=fds[0])
