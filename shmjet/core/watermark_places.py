"""Where watermarks lie among the events of one source partition. Pure arithmetic on timestamps.

`Rise` says how the watermark of a source comes about while one of its partitions gives events and the others stand
still. Of a list it finds the few places at which the watermark passes a multiple of the stride; the items between them
cost nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from shmjet._native import ascends
from shmjet.core.windows import LOWEST

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Stamps: TypeAlias = "list[int] | npt.NDArray[np.int64]"
"""Timestamps of items, or of the rows of a batch."""

Places: TypeAlias = list[tuple[int, int]]
"""(index, watermark): the watermark comes before the event of that index. Both rise."""


_SHORT = 64
"""Items up to which lists are faster than arrays."""


def rounded_down(timestamp: int, stride: int) -> int:
    """Return the last multiple of the stride that is not above a timestamp; `LOWEST` below 64 bits."""
    return max(LOWEST, timestamp - timestamp % stride)


class Rise(NamedTuple):
    """The watermark of a source while one partition gives events."""

    last: int
    """The last watermark sent; `LOWEST` before the first."""
    own: int
    """The watermark of the partition before these events."""
    others: int
    """The least watermark of the other active partitions."""
    lag: int
    """Behind the highest timestamp."""
    stride: int
    """Of the watermarks."""

    def end(self, highest: int) -> int:
        """Return the watermark behind events of which `highest` is the highest timestamp."""
        return rounded_down(min(self.others, max(self.own, highest - self.lag)), self.stride)

    def places(self, stamps: Stamps) -> Places:
        """Return where watermarks lie among events: each before the first event that is far enough.

        None is above the timestamp of the event behind it. What was due before the events, but is above them, comes
        piece by piece.
        """
        running = highest_so_far(stamps)
        found: Places = []
        last, at, lag, stride = self.last, 0, self.lag, self.stride
        if rounded_down(min(self.others, self.own), stride) > last:
            at, last = self._due_before(stamps, running, found)
        while at < len(stamps):
            goal = last - last % stride + stride
            if goal > self.others:
                break
            at = bisect_left(running, goal + lag, at)
            if at < len(stamps):
                reached = rounded_down(min(self.others, int(running[at]) - lag), stride)
                if reached > last:
                    last = reached
                    found.append((at, reached))
                at += 1
        return found

    def _due_before(self, stamps: Stamps, running: Stamps, found: Places) -> tuple[int, int]:
        """Place a watermark that was due before the events, as high as each of them allows.

        Returns:
            the first event before which nothing is held back any more, and the last watermark.
        """
        last = self.last
        for at, stamp in enumerate(stamps):
            due = self.end(int(running[at]))
            allowed = min(due, rounded_down(int(stamp), self.stride))
            if allowed > last:
                last = allowed
                found.append((at, last))
            if last >= due:
                return at + 1, last
        return len(stamps), last

    def cuts(self, stamps: npt.NDArray[np.int64]) -> Places:
        """Return where rows have to be cut so that those are late that would be late one by one, and no others.

        Watermarks are only placed before rows that are below them, so rows in order are not cut.
        """
        import numpy as np  # which a job without batches does not wait for

        rows, earlier = stamps[1:], stamps[:-1]
        if bool((rows >= earlier).all()):
            return []
        running = np.maximum.accumulate(earlier)
        most = np.minimum(running, np.minimum(np.maximum(running - self.lag, self.own), self.others))
        behind = np.flatnonzero(rows < most)  # no watermark is above any other row
        before = most[behind]
        before = np.where(before >= LOWEST + self.stride, before - before % self.stride, before)
        found: Places = []
        last = self.last
        for place in np.flatnonzero((rows[behind] < before) & (before > last)).tolist():
            mark = int(before[place])
            if mark > last:
                last = mark
                found.append((int(behind[place]) + 1, mark))
        return found


def highest_so_far(stamps: Stamps) -> Stamps:
    """Return the running maximum of timestamps; the same sequence where they are in order.

    Example:
        >>> highest_so_far([3, 1, 4])
        [3, 3, 4]
    """
    if isinstance(stamps, list):
        if ascends(stamps):
            return stamps
        if len(stamps) <= _SHORT:
            return list(accumulate(stamps, max))
    import numpy as np

    running: npt.NDArray[np.int64] = np.maximum.accumulate(stamps)
    return running
