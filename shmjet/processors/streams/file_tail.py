"""The lines that are appended to one file: how far it has been read, and whether it is still the same file.

A file is known by its inode, so it keeps its position when it is renamed. A file that was cut, or whose beginning is
another one, is a new file under an old inode, and is read from its beginning. Must not know: folders, events.
"""

from __future__ import annotations

import os
import zlib
from typing import NamedTuple

PIECE = 64 << 10
"""Bytes that are read at once, unless a line is longer."""
_HEAD = 256
"""Bytes of its beginning by which a file is known again."""


class SavedTail(NamedTuple):
    """How far a file has been read."""

    offset: int
    """The next line begins there."""
    head: int
    """So many bytes of its beginning were looked at,"""
    checksum: int
    """which have this checksum."""
    skips: bool
    """The rest of a line that was there at the start is still to be left out."""


class Lines(NamedTuple):
    """Whole lines of a file."""

    data: bytes
    """Each with its newline."""
    offset: int
    """Where they begin."""
    more: bool
    """There may be more behind them."""


class FileTail:
    """Reads the whole lines of a file behind a position.

    Args:
        path: of the file now.
        inode: of the file.
        saved: how far it has been read; None: it is new.
    """

    def __init__(self, path: str, inode: int, saved: SavedTail | None = None) -> None:
        self.path = path
        self._inode = inode
        self._saved = saved or SavedTail(0, 0, 0, False)
        self.header: bytes | None = None
        """The first line, when it has been asked for."""

    @classmethod
    def at_end(cls, path: str, inode: int) -> FileTail:
        """Return the tail of a file whose lines so far are left out, also an incomplete one.

        Raises:
            OSError: the file cannot be read; FileNotFoundError: it is not there.
        """
        with open(path, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            head = os.pread(file.fileno(), min(size, _HEAD), 0)
            skips = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
        return cls(path, inode, SavedTail(size, len(head), zlib.crc32(head), skips))

    @property
    def saved(self) -> SavedTail:
        """How far it has been read."""
        return self._saved

    def read(self) -> Lines:
        """Return whole lines and go on behind them; empty data where there are none now.

        Raises:
            OSError: the file cannot be read; FileNotFoundError: it is not there.
        """
        with open(self.path, "rb", buffering=0) as file:
            fd = file.fileno()
            self._require_same(fd)
            lines = self._whole_lines(fd)
            self._note_head(fd)
        if self._saved.skips and lines.data:
            self._saved = self._saved._replace(skips=False)
            rest = lines.data.partition(b"\n")[2]
            lines = Lines(rest, lines.offset + len(lines.data) - len(rest), lines.more)
        return lines

    def first_line(self, most: int = 1 << 20) -> bytes:
        """Return the first line of the file, without its end."""
        if self.header is None:
            with open(self.path, "rb", buffering=0) as file:
                self.header = os.pread(file.fileno(), most, 0).partition(b"\n")[0]
        return self.header

    def _require_same(self, fd: int) -> None:
        """Begin anew if this is another file, or was cut."""
        status = os.fstat(fd)
        if status.st_ino != self._inode:
            raise FileNotFoundError(f"{self.path} is another file now")
        saved, size = self._saved, status.st_size
        if size < saved.offset or zlib.crc32(os.pread(fd, saved.head, 0)) != saved.checksum:
            self._saved = SavedTail(0, 0, 0, False)
            self.header = None

    def _note_head(self, fd: int) -> None:
        """Note as much as there is to know the file by."""
        saved = self._saved
        if saved.head < min(_HEAD, saved.offset):
            head = os.pread(fd, min(_HEAD, saved.offset), 0)
            self._saved = saved._replace(head=len(head), checksum=zlib.crc32(head))

    def _whole_lines(self, fd: int) -> Lines:
        """Return the lines up to the last newline of a piece, and go on behind them."""
        offset, size = self._saved.offset, PIECE
        while True:
            data = os.pread(fd, size, offset)
            end = data.rfind(b"\n") + 1
            if end or len(data) < size:
                self._saved = self._saved._replace(offset=offset + end)
                return Lines(data[:end], offset, end > 0 and len(data) == size)
            size *= 2
