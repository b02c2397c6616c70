"""The count of the words of one segment of a file, a piece of bounded size at a time.

The rule at the seams: a segment owns the words that START in it. So it begins behind the word, or the character of
white space, that reaches into it, and reads its last word to the end even where that lies in the next segment. Bytes
are read into one buffer that is kept and counted there; a word that the buffer cuts is read again with what follows.
Mapping the file instead saves no time (the copy is a fifteenth of the work, and page faults cost as much), and a file
that is truncated meanwhile would kill the process.

Must not know: processors and outboxes.
"""

from __future__ import annotations

from shmjet._native._columns import text_resume
from shmjet.columns.words import WordCounter
from shmjet.processors.files.file_blocks import Segment
from shmjet.processors.files.file_window import FileWindow
from shmjet.processors.files.line_blocks import BINARY_PROBE

PIECE = 512 << 10
"""Bytes read at once: about a millisecond of counting, and half of a usual L2 cache."""

MARGIN = 256
"""Bytes read behind a segment for its last word; more when that is not enough."""

_LOOK_BACK = 3
"""Bytes before a place that tell whether white space ends there: no character of it has more."""


class WordReader:
    """Counts the words of segments, one after the other.

    Args:
        counter: where they are counted.
        skip_binary: leave files out that have a NUL among their first 8 KiB.
        piece: bytes read at once.

    Example:
        >>> reader = WordReader(counter)                            # doctest: +SKIP
        >>> reader.open(Segment("/etc/hosts", 0, 10, 10))           # doctest: +SKIP
        >>> while reader.next_piece(): pass                         # doctest: +SKIP
        >>> reader.close()                                          # doctest: +SKIP
    """

    def __init__(self, counter: WordCounter, skip_binary: bool = True, piece: int = PIECE) -> None:
        self._counter = counter
        self._skip_binary = skip_binary
        self._window = FileWindow(piece)
        self._position = self._end = 0
        self._margin = MARGIN
        self._inside = False
        self._counted = 0
        self.files = 0
        """Files of which this reader read the beginning."""
        self.bytes = 0
        """Bytes of the segments read so far."""
        self.skipped = 0
        """Binary files of which this reader met the beginning."""

    def count_into(self, counter: WordCounter) -> None:
        """Count with another counter from now on."""
        self._counted += self._counter.total
        self._counter = counter

    @property
    def mark(self) -> int:
        """The place in the open segment at which `open` can go on between two pieces; 0 when there is none."""
        return 2 * self._position + self._inside if self._end else 0

    def open(self, segment: Segment, mark: int = 0) -> None:
        """Begin a segment, or go on in it.

        Args:
            segment: what to read.
            mark: what the `mark` of another reader of this segment was; 0: from its beginning.

        Raises:
            OSError: when the file cannot be read; it names the path.
        """
        self.close()
        self._window.open(segment.path, segment.size)
        if self._skip_binary and segment.size and self._window.is_binary(BINARY_PROBE):
            self.skipped += segment.start == 0
            self.close()
            return
        self.files += segment.start == 0 and not mark
        self._position = mark // 2 if mark else segment.start
        self._inside = mark % 2 == 1 if mark else segment.start > 0
        self._end = segment.end
        self._margin = MARGIN

    def next_piece(self) -> bool:
        """Count the words of the next piece; False when there is none left in the segment.

        Raises:
            OSError: when the file cannot be read.
            MemoryError: when the words do not fit into memory.
        """
        if self._position >= self._end:
            self.close()
            return False
        if self._inside:
            self._leave_word()
        else:
            self._count()
        return True

    def report(self) -> dict[str, int]:
        """Return the counts, by name."""
        return {
            "files": self.files,
            "bytes": self.bytes,
            "skipped": self.skipped,
            "words": self._counted + self._counter.total,
        }

    def close(self) -> None:
        """Close the file of the current segment, if any."""
        self._position = self._end = 0
        self._window.close()

    def _leave_word(self) -> None:
        """Go to the end of the word, or of the white space, that began before this place."""
        begin = max(0, self._position - _LOOK_BACK)
        size, at_end = self._window.fill(begin)
        place = self._position - begin
        found = text_resume(self._window.buffer, 0, place, size)
        self._inside = found == size and not at_end
        # White space may begin with the last bytes of the window.
        self._advance(found - place - (_LOOK_BACK - 1 if self._inside else 0))

    def _count(self) -> None:
        window, left = self._window, self._end - self._position
        size, at_end = window.fill(self._position, left + self._margin)
        used = self._counter.add_block(window.buffer, 0, min(left, size), size, at_end)
        if used:
            window.shrink()
            self._advance(used)
        elif size < len(window.buffer):
            self._margin += len(window.buffer)
        else:
            window.grow()

    def _advance(self, used: int) -> None:
        self._position += used
        self.bytes += used - max(0, self._position - self._end)
