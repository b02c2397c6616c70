"""Reading the lines of one segment of a file, a piece of bounded size at a time.

The rule at the seams: a segment owns the lines that START in it. So it skips to the first line start at or after its
own beginning, and reads its last line to the end even where that lies in the next segment. Bytes are read into one
buffer that is kept (fresh pages for every read cost more than the read), cut at the last newline, decoded once and
split once.

Must not know: processors and outboxes.
"""

from __future__ import annotations

import os

from shmjet.processors.file_blocks import Segment

PIECE = 128 << 10
"""Bytes read at once: small enough for the L2 cache and for a cooperative call, large enough for one decode."""

BINARY_PROBE = 8 << 10
"""A NUL byte within so many bytes from the beginning makes a file binary."""

_NEWLINE = 10


def check_encoding(encoding: str) -> str:
    """Return `encoding` when lines can be cut in it at newline bytes.

    Raises:
        ValueError: for one like UTF-16, where a newline is not one byte of its own.
        LookupError: for an unknown one.

    Example:
        >>> check_encoding("latin-1")
        'latin-1'
    """
    if "\n".encode(encoding) != b"\n" or "a".encode(encoding) != b"a":
        raise ValueError(f"encoding {encoding!r} cannot be split at newline bytes; convert the files, or map raw bytes")
    return encoding


class LineReader:
    """Reads segments, one after the other, into lists of lines.

    Args:
        encoding: of the text; one in which a newline is one byte.
        errors: as for `bytes.decode`.
        skip_binary: leave files out that have a NUL among their first 8 KiB.

    Example:
        >>> reader = LineReader()
        >>> reader.open(Segment("/etc/hosts", 0, 10, 10))      # doctest: +SKIP
        >>> while (lines := reader.next_lines()) is not None:  # doctest: +SKIP
        ...     print(lines)
        >>> reader.close()
    """

    def __init__(self, encoding: str = "utf-8", errors: str = "replace", skip_binary: bool = True) -> None:
        self._encoding = encoding
        self._errors = errors
        self._skip_binary = skip_binary
        self._buffer = bytearray(PIECE)
        self._fd = -1
        self._position = 0
        self._end = 0
        self.files = 0
        """Files of which this reader read the beginning."""
        self.bytes = 0
        """Bytes of the lines returned so far, newlines included."""
        self.skipped = 0
        """Binary files of which this reader met the beginning."""

    def open(self, segment: Segment) -> None:
        """Begin a segment.

        Raises:
            OSError: when the file cannot be read; it names the path.
        """
        self.close()
        self._fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._begin(segment)
        except BaseException:
            self.close()
            raise

    def next_lines(self) -> list[str] | None:
        """Return the next lines, without terminators, or None at the end of the segment.

        Like text mode, it takes carriage returns with and without a newline for line ends too.
        """
        if self._position >= self._end:
            self.close()
            return None
        size, at_end = self._fill(self._position)
        buffer = self._buffer
        left = self._end - self._position
        cut = buffer.find(_NEWLINE, left - 1, size)  # the end of the last line that starts in this segment
        if cut < 0:
            cut = buffer.rfind(_NEWLINE, 0, size)
        if cut < 0:
            if not at_end:
                self._buffer = bytearray(2 * size)
                return self.next_lines()
            cut = size - 1
        used = cut + 1
        if used == 0:  # the file is shorter than it was
            self.close()
            return None
        self._position += used
        self.bytes += used
        lines = self._split(used)
        if size > PIECE:  # the buffer had grown for one long line
            self._buffer = bytearray(PIECE)
        return lines

    def close(self) -> None:
        """Close the file of the current segment, if any."""
        self._position = self._end = 0
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _begin(self, segment: Segment) -> None:
        if self._is_binary(segment.size):
            self.skipped += segment.start == 0
            return
        self.files += segment.start == 0
        self._position, self._end = segment.start, segment.end
        while self._position and self._position < self._end:
            # the first line that starts here is behind the first newline from the byte before on
            size, at_end = self._fill(self._position - 1)
            cut = self._buffer.find(_NEWLINE, 0, size)
            if cut >= 0:
                self._position += cut
                break
            if at_end:
                self._position = self._end
                break
            self._position += size

    def _is_binary(self, size: int) -> bool:
        if not self._skip_binary or not size:
            return False
        read = os.preadv(self._fd, [memoryview(self._buffer)[:BINARY_PROBE]], 0)
        return self._buffer.find(0, 0, read) >= 0

    def _fill(self, offset: int) -> tuple[int, bool]:
        """Fill the buffer from a file offset; return how many bytes, and whether the file ends with them."""
        size, room = 0, len(self._buffer)
        with memoryview(self._buffer) as view:
            while size < room:
                read = os.preadv(self._fd, [view[size:]], offset + size)
                if not read:
                    return size, True
                size += read
        return size, False

    def _split(self, used: int) -> list[str]:
        with memoryview(self._buffer) as view:
            text = str(view[:used], self._encoding, self._errors)
        if self._buffer.find(b"\r", 0, used) >= 0:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.split("\n")
        if not lines[-1]:
            lines.pop()
        return lines
