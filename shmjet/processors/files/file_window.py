"""A window on a file: one buffer that is kept, filled from any offset.

Fresh pages for every read cost more than the read, so the buffer stays, and grows only while one line or record is
longer than it. Must not know: what is in the file.
"""

from __future__ import annotations

import errno
import os
import sys

PIECE = 256 << 10
"""Bytes read at once for columns: about a millisecond of parsing."""


class FileWindow:
    """Reads one file after the other into `buffer`.

    Args:
        piece: bytes of the buffer, as long as that is enough.

    Example:
        >>> window = FileWindow()
        >>> window.open("/etc/hosts"); size, at_end = window.fill(0)   # doctest: +SKIP
        >>> window.close()
    """

    def __init__(self, piece: int = PIECE) -> None:
        self._piece = piece
        self._fd = -1
        self._path = ""
        self._size = 0
        self.buffer = bytearray(piece)
        """The bytes last read; what lies behind the size that `fill` returned has no meaning."""

    def open(self, path: str, size: int) -> None:
        """Open a file, and close the one before. Raises OSError, which names the path.

        Args:
            path: of the file.
            size: bytes that it had when the job began. It may have grown since, but not become shorter.
        """
        self.close()
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._path, self._size = path, size

    def fill(self, offset: int, most: int = sys.maxsize) -> tuple[int, bool]:
        """Fill the buffer from a file offset; return how many bytes, and whether the file is known to end with them.

        Args:
            offset: in bytes from the beginning of the file.
            most: bytes to read, at most.

        Raises:
            OSError: the file has become shorter, so that what it held is lost; or it cannot be read.
        """
        size, room = 0, min(len(self.buffer), most)
        with memoryview(self.buffer) as view:
            while size < room:
                read = os.preadv(self._fd, [view[size:]], offset + size)
                if not read:
                    if offset + size < self._size:
                        raise self._too_short(offset + size)
                    return size, True
                size += read
        return size, False

    def _too_short(self, end: int) -> OSError:
        what = f"the file had {self._size} bytes when the job began and ends after {end} now; read files that stay"
        return OSError(errno.EIO, what, self._path)

    def grow(self) -> None:
        """Double the buffer; its content is lost."""
        self.buffer = bytearray(2 * len(self.buffer))

    def shrink(self) -> None:
        """Give the buffer its usual size again, if it had grown; its content is lost then."""
        if len(self.buffer) > self._piece:
            self.buffer = bytearray(self._piece)

    def is_binary(self, probe: int) -> bool:
        """Whether there is a NUL byte among the first `probe` bytes of the file."""
        with memoryview(self.buffer) as view:
            read = os.preadv(self._fd, [view[:probe]], 0)
        return self.buffer.find(0, 0, read) >= 0

    def close(self) -> None:
        """Close the file, if one is open."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
