"""Large values of messages: they travel next to the message, as the descriptor of a file in memory.

A job's code may have a hundred megabytes (a model captured by a lambda). Written once into such a file, it is the same
memory for the client, the member and every worker; through the sockets it would be copied for each of them. The file is
sealed, so that no process can change what others read.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
from collections.abc import Sequence

import msgspec

MOST_INLINE = 16 << 10
"""A tasklet's state of up to so many bytes goes in its message."""

_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class InlineOrMemfd(msgspec.Struct, frozen=True):
    """A value as it goes into a message, or as it came.

    `inline` is the value itself, unless it lies in the file `fd`; then it is empty and `size` says how long the value
    is. The descriptor is the holder's, who closes it.
    """

    inline: bytes
    size: int = 0
    fd: int = -1

    @classmethod
    def of(cls, data: bytes, most: int) -> InlineOrMemfd:
        """Return a value of more than `most` bytes in a file, another, or if no file can be made any, as it is."""
        if len(data) <= most:
            return cls(data)
        try:
            fd = os.memfd_create("shmjet-large", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        except OSError:
            return cls(data)
        try:
            with memoryview(data) as view:
                at = 0
                while at < len(data):
                    at += os.write(fd, view[at:])
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        except OSError:  # there is not so much memory; the socket may manage in pieces
            os.close(fd)
            return cls(data)
        return cls(b"", len(data), fd)

    @classmethod
    def received(cls, inline: bytes, size: int, fds: Sequence[int]) -> InlineOrMemfd:
        """Return a value that came in a message; the first of the descriptors is its own if it lies in a file."""
        return cls(inline, size, fds[0] if size else -1)

    @property
    def fds(self) -> tuple[int, ...]:
        """What has to go with the message."""
        return () if self.fd < 0 else (self.fd,)

    def view(self) -> memoryview:
        """Return the value, in place; it stays valid when the descriptor is closed."""
        if self.fd < 0:
            return memoryview(self.inline)
        return memoryview(mmap.mmap(self.fd, self.size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ))

    def close(self) -> None:
        """Close the descriptor. Only once, as every close of one."""
        if self.fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self.fd)
