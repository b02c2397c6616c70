"""The last items of one observable, with their sequences. Pure: no clients, no clock.

Items come in frames, pickled lists, which are never taken apart: when the oldest items of a frame no longer count, the
frame stays and its reader skips them.
"""

from __future__ import annotations

import msgspec

from shmjet.cluster.observable_messages import OLDEST, JobEnd, ObservedFrame

MOST_BYTES = 256 << 20
"""Bytes that an observable keeps at most, whatever its capacity; the newest frame is always kept."""
MOST_ENDS = 1024
"""Ends of jobs that it keeps at most."""
READ_BYTES = 1 << 20
"""Bytes from which on a reader is given no further frame at once,"""
READ_FRAMES = 256
"""and frames."""


class ObservableRing:
    """See the module.

    Args:
        number: tells it from an earlier one of the same name.
        capacity: items that it keeps.
        most_bytes: bytes that it keeps.
    """

    def __init__(self, number: int, capacity: int, most_bytes: int = MOST_BYTES) -> None:
        self.number = number
        self.capacity = capacity
        self.next = 0
        """The sequence of what comes next."""
        self._most_bytes = most_bytes
        self._frames: dict[int, tuple[int, ObservedFrame]] = {}  # by number, which have no gap: sequence and frame
        self._first = 0
        self._items = 0
        self._ends = 0
        self._bytes = 0

    def add_items(self, count: int, items: bytes) -> None:
        """Add a pickled list."""
        self._items += count
        self._bytes += len(items)
        self._add(ObservedFrame(count, items))

    def add_end(self, end: JobEnd) -> None:
        """Add the end of a job."""
        self._ends += 1
        self._add(ObservedFrame(1, end=end))

    def age_ends(self) -> None:
        """Take that another job begins: the ends that are kept are those of earlier ones."""
        for number, (sequence, frame) in self._frames.items() if self._ends else ():
            if frame.end is not None:
                end = msgspec.structs.replace(frame.end, is_old=True)
                self._frames[number] = sequence, ObservedFrame(1, end=end)

    def _add(self, frame: ObservedFrame) -> None:
        self._frames[self._first + len(self._frames)] = self.next, frame
        self.next += frame.count
        while len(self._frames) > 1 and self._is_useless(self._frames[self._first][1]):
            _, gone = self._frames.pop(self._first)
            self._first += 1
            self._bytes -= len(gone.items)
            if gone.end is None:
                self._items -= gone.count
            else:
                self._ends -= 1

    def _is_useless(self, oldest: ObservedFrame) -> bool:
        """Say whether the oldest frame can go."""
        over = self._items - self.capacity
        if self._bytes > self._most_bytes or self._ends > MOST_ENDS:
            return True
        return over > 0 if oldest.end is not None else over >= oldest.count

    @property
    def oldest(self) -> int:
        """The sequence of the oldest item that is kept."""
        if not self._frames:
            return self.next
        return self._frames[self._first][0] + max(0, self._items - self.capacity)

    def read(self, sequence: int) -> tuple[int, int, list[ObservedFrame]]:
        """Return what there is from a sequence on, or from the oldest item on if that is newer.

        Args:
            sequence: of the first item wanted, or `OLDEST`.

        Returns:
            the sequence of the first frame, the items of it to skip, and the frames; none when nothing new is there.
        """
        wanted = self.oldest if sequence == OLDEST else max(sequence, self.oldest)
        if wanted >= self.next:
            return self.next, 0, []
        number = self._number_of(wanted)
        start = self._frames[number][0]
        found: list[ObservedFrame] = []
        size = 0
        while number in self._frames and size < READ_BYTES and len(found) < READ_FRAMES:
            frame = self._frames[number][1]
            found.append(frame)
            size += len(frame.items)
            number += 1
        return start, wanted - start, found

    def _number_of(self, sequence: int) -> int:
        """Return the number of the frame that has a sequence."""
        low, high = self._first, self._first + len(self._frames) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self._frames[middle][0] <= sequence:
                low = middle
            else:
                high = middle - 1
        return low
