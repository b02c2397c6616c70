"""Coalescing of watermarks: what one consumer may tell its successors after hearing several inputs.

The rules are those of Jet's `WatermarkCoalescer`. Pure state: no clock, no lanes; the engine keeps one per edge over
its lanes and one per processor over its edges.
"""

from __future__ import annotations

from shmjet.data.errors import WatermarkError
from shmjet.data.marks import IDLE, Watermark

_LOWEST = -(1 << 63) - 1
_DONE = 1 << 63


class WatermarkCoalescer:
    """Keeps the watermark of each input and gives out the lowest one when it rises.

    An input is *idle* from an `IDLE` mark until its next event or watermark, and does not hold the others back
    meanwhile. When the last active input goes idle, first the highest watermark seen is given out, if that is news,
    and then `IDLE`, once; since a method returns one mark, the second has to be asked for with `pending`.

    Args:
        input_count: number of inputs, numbered from 0.

    Example:
        >>> coalescer = WatermarkCoalescer(2)
        >>> coalescer.observe_watermark(0, Watermark(5))
        >>> coalescer.observe_watermark(1, Watermark(3))
        Watermark(timestamp=3)
        >>> coalescer.input_done(1)
        Watermark(timestamp=5)
    """

    __slots__ = ("_active", "_all_idle", "_holding", "_idle", "_idle_pending", "_last", "_live", "_top", "_values")

    def __init__(self, input_count: int) -> None:
        self._values = [_LOWEST] * input_count
        self._idle = [False] * input_count
        self._live = self._active = self._holding = input_count
        """Inputs that have not ended; those of them that are not idle; and those of these that hold the others back, as
        their watermark is not above the last one given out."""
        self._last = _LOWEST
        self._top = _LOWEST
        self._all_idle = False
        self._idle_pending = False

    @property
    def coalesced(self) -> Watermark | None:
        """The last watermark given out, `IDLE` aside; None before the first."""
        return None if self._last == _LOWEST else Watermark(self._last)

    @property
    def top_observed(self) -> Watermark | None:
        """The highest watermark seen on any input; None before the first."""
        return None if self._top == _LOWEST else Watermark(self._top)

    def observe_event(self, index: int) -> None:
        """Note that an item came on input `index`, which is thereby active. O(1).

        Raises:
            WatermarkError: the input has ended.
        """
        if self._values[index] == _DONE:
            raise WatermarkError(f"input {index} has ended, yet an item came on it")
        if self._all_idle or self._idle[index]:
            self._set(index, self._values[index], idle=False)
            self._all_idle = False
            self._idle_pending = False

    def observe_watermark(self, index: int, watermark: Watermark) -> Watermark | None:
        """Note a watermark that came on input `index`. O(1), and O(inputs) when one is returned.

        Returns:
            the watermark to pass on, or None.

        Raises:
            WatermarkError: it is not higher than the last one of that input, or the input has ended.
        """
        timestamp = watermark.timestamp
        previous = self._values[index]
        if previous == _DONE:
            raise WatermarkError(f"input {index} has ended, yet {watermark!r} came on it")
        if timestamp == IDLE.timestamp:
            self._set(index, previous, idle=True)
        else:
            if timestamp <= previous:
                raise WatermarkError(f"watermarks must rise: input {index} brought {timestamp} after {previous}")
            self.observe_event(index)
            self._set(index, timestamp, idle=False)
            self._top = max(self._top, timestamp)
        return self._check()

    def input_done(self, index: int) -> Watermark | None:
        """Note that input `index` has ended; it delays no watermark from now on. O(1), and O(inputs) as above.

        Returns:
            the watermark to pass on, or None; always None when this was the last input.

        Raises:
            WatermarkError: the input had ended before.
        """
        if self._values[index] == _DONE:
            raise WatermarkError(f"input {index} has ended, yet its end came once more")
        self._set(index, _DONE, idle=False)
        return self._check()

    def pending(self) -> Watermark | None:
        """Return `IDLE` when it has to follow the watermark given out just before, else None. O(1)."""
        if not self._idle_pending:
            return None
        self._idle_pending = False
        self._all_idle = True
        return IDLE

    def _set(self, index: int, value: int, *, idle: bool) -> None:
        """Change what is known of an input, and how many there are of each kind."""
        before, was_idle = self._values[index], self._idle[index]
        self._values[index], self._idle[index] = value, idle
        self._live += (value != _DONE) - (before != _DONE)
        self._active += (value != _DONE and not idle) - (before != _DONE and not was_idle)
        self._holding += (value <= self._last and not idle) - (before <= self._last and not was_idle)

    def _check(self) -> Watermark | None:
        if self._all_idle or self._idle_pending or self._live == 0:
            return None
        if self._active == 0:
            if self._top > self._last:
                self._last = self._top
                self._idle_pending = True
                return Watermark(self._top)
            self._all_idle = True
            return IDLE
        if self._holding:
            return None
        active = [value for value, idle in zip(self._values, self._idle, strict=True) if not idle]
        lowest = self._last = min(active)  # that of an input that has ended is above all
        self._holding = active.count(lowest)
        return Watermark(lowest)
