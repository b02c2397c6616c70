"""Unix sockets: at paths of any length, and who is at their other end.

An address has room for 107 bytes of a path, which a temporary folder may exceed; a path through `/proc/self/fd` is
short. Names are visible to every user of a host, and what a name leads to may be another user's, so both ends ask the
kernel whose process the other one is.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

_CREDENTIALS = struct.Struct("3i")
_LONGEST = 107


def peer_user(sock: socket.socket) -> int:
    """Return the user id of the process at the other end of a connected Unix socket, when it connected or listened."""
    _, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return int(uid)


def may_ask(sock: socket.socket) -> bool:
    """Say whether a process that has connected is one of this user or of root."""
    return peer_user(sock) in (os.geteuid(), 0)


def check_listener(sock: socket.socket) -> None:
    """Check that what was connected to is a process of this user.

    Raises:
        PermissionError: it is another user's.
    """
    uid = peer_user(sock)
    if uid != os.geteuid():
        raise PermissionError(f"the process that listens there belongs to another user (uid {uid})")


def connect(sock: socket.socket, path: str | Path) -> None:
    """Connect to a process of this user.

    Raises:
        OSError: no process listens at the path, or one of another user does.
    """
    with _address(path) as address:
        sock.connect(address)
    check_listener(sock)


def bind(sock: socket.socket, path: str | Path) -> None:
    """Give a socket its path. Raises OSError when it cannot be made there."""
    with _address(path) as address:
        sock.bind(address)


@contextlib.contextmanager
def _address(path: str | Path) -> Iterator[str]:
    """Give an address for a path that is short enough; one of the abstract kind (`\\0...`) stays as it is."""
    text = os.fspath(path)
    if text.startswith("\0") or len(os.fsencode(text)) <= _LONGEST:
        yield text
        return
    folder, name = os.path.split(text)
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{name}"
    finally:
        os.close(fd)
