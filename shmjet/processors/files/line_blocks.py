"""The reader of the lines of one segment of a file, a piece of bounded size at a time.

The rule at the seams: a segment owns the lines that START in it. So it skips to the first line start at or after its
own beginning, and reads its last line to the end even where that lies in the next segment. Bytes are read into a
window, cut at the last newline, decoded once and split once.

Must not know: processors and outboxes.
"""

from __future__ import annotations

from shmjet.processors.files.file_blocks import Segment
from shmjet.processors.files.file_window import FileWindow

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
        self._window = FileWindow(PIECE)
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
        self._window.open(segment.path, segment.size)
        try:
            self._begin(segment)
        except BaseException:
            self.close()
            raise

    def next_lines(self) -> list[str] | None:
        """Return the next lines, without terminators, or None at the end of the segment.

        Like text mode, it takes carriage returns with and without a newline for line ends too.
        """
        piece = self.next_piece()
        if piece is None:
            return None
        with piece:
            return self._split(piece)

    def next_piece(self) -> memoryview | None:
        """Return the bytes of the next lines, terminators included, or None at the end of the segment.

        They are to be released before the next call, which writes over them.
        """
        window = self._window
        window.shrink()  # it may have grown for one long line
        while self._position < self._end:
            size, at_end = window.fill(self._position)
            buffer = window.buffer
            left = self._end - self._position
            cut = buffer.find(_NEWLINE, left - 1, size)  # the end of the last line that starts in this segment
            if cut < 0:
                cut = buffer.rfind(_NEWLINE, 0, size)
            if cut < 0 and not at_end:
                window.grow()
                continue
            used = size if cut < 0 else cut + 1
            self._position += used
            self.bytes += used
            return memoryview(buffer)[:used]
        self.close()
        return None

    @property
    def position(self) -> int:
        """Where in the file the lines returned so far end."""
        return self._position

    def report(self) -> dict[str, int]:
        """Return the counts, by name."""
        return {"files": self.files, "bytes": self.bytes, "skipped": self.skipped}

    def close(self) -> None:
        """Close the file of the current segment, if any."""
        self._position = self._end = 0
        self._window.close()

    def _begin(self, segment: Segment) -> None:
        if self._skip_binary and segment.size and self._window.is_binary(BINARY_PROBE):
            self.skipped += segment.start == 0
            return
        self.files += segment.start == 0
        self._position, self._end = segment.start, segment.end
        while self._position and self._position < self._end:
            # the first line that starts here is behind the first newline from the byte before on
            size, at_end = self._window.fill(self._position - 1)
            cut = self._window.buffer.find(_NEWLINE, 0, size)
            if cut >= 0:
                self._position += cut
                break
            if at_end:
                self._position = self._end
                break
            self._position += size

    def _split(self, piece: memoryview) -> list[str]:
        text = str(piece, self._encoding, self._errors)
        if "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.split("\n")
        if not lines[-1]:
            lines.pop()
        return lines
