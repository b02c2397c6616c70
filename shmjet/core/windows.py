"""Windows: how events are cut by their time, and the arithmetic of frames. Pure.

A frame is the events of one slide, named by its *end*; a window is `size / slide` frames. After Jet's
`WindowDefinition` and `SlidingWindowPolicy`, with the same numbers, below zero too.
"""

from __future__ import annotations

from dataclasses import dataclass

from shmjet.core.durations import Duration, milliseconds
from shmjet.data.errors import ConfigError

LOWEST = -(1 << 63)
HIGHEST = (1 << 63) - 1
"""Frame timestamps are held within signed 64 bits."""


@dataclass(frozen=True)
class SlidingWindowPolicy:
    """Windows of equal size that begin every `slide`.

    Args:
        size: of a window, in milliseconds; a multiple of `slide`.
        slide: from the end of one window to that of the next, in milliseconds; equal to `size` for tumbling windows.
        offset: a frame ends at `offset` plus a multiple of `slide`; from 0 to `slide` - 1.

    Raises:
        ConfigError: a number is out of range, or `slide` does not divide `size`.

    Example:
        >>> policy = SlidingWindowPolicy(10_000, 1_000)
        >>> policy.higher_frame(999), policy.higher_frame(1_000), policy.floor_frame(-1)
        (1000, 2000, -1000)
    """

    size: int
    slide: int
    offset: int = 0

    def __post_init__(self) -> None:
        if self.size < 1 or self.slide < 1:
            raise ConfigError(f"a window's size and slide must be at least 1 ms, got {self.size} and {self.slide}")
        if self.size % self.slide:
            raise ConfigError(
                f"the slide must divide the size of a sliding window, got a size of {self.size} ms and a slide of "
                f"{self.slide} ms"
            )
        if not 0 <= self.offset < self.slide:
            raise ConfigError(f"the offset of windows must be from 0 to below the slide, got {self.offset}")

    @property
    def is_tumbling(self) -> bool:
        """Whether each event is in one window."""
        return self.size == self.slide

    def floor_frame(self, timestamp: int) -> int:
        """Return the last end of a frame that is not after a timestamp."""
        return max(LOWEST, timestamp - (timestamp - self.offset) % self.slide)

    def higher_frame(self, timestamp: int) -> int:
        """Return the end of the frame that an event is in: the first one after its timestamp."""
        return min(HIGHEST, timestamp - (timestamp - self.offset) % self.slide + self.slide)

    def tumbling_by_frame(self) -> SlidingWindowPolicy:
        """Return the policy whose windows are this one's frames."""
        return SlidingWindowPolicy(self.slide, self.slide, self.offset)


@dataclass(frozen=True)
class SlidingWindow:
    """Windows of equal size; made by `tumbling` and `sliding`.

    Args:
        policy: their frames.
    """

    policy: SlidingWindowPolicy

    def __repr__(self) -> str:
        size, slide = self.policy.size / 1000, self.policy.slide / 1000
        return f"tumbling({size:g})" if self.policy.is_tumbling else f"sliding({size:g}, {slide:g})"


@dataclass(frozen=True)
class SessionWindow:
    """Windows that end when nothing has come for a while; made by `session`.

    Args:
        gap: milliseconds without an event that end a session.
    """

    gap: int

    def __repr__(self) -> str:
        return f"session({self.gap / 1000:g})"


WindowDefinition = SlidingWindow | SessionWindow


def tumbling(size: Duration) -> SlidingWindow:
    """Cut a stream into windows that follow one another.

    Args:
        size: of a window, in seconds or as a `timedelta`; rounded to milliseconds.

    Raises:
        TypeError: it is not a duration. ConfigError: it is below a millisecond.

    Example:
        >>> tumbling(60)
        tumbling(60)
    """
    found = milliseconds("tumbling: size", size)
    return SlidingWindow(SlidingWindowPolicy(found, found))


def sliding(size: Duration, slide: Duration) -> SlidingWindow:
    """Cut a stream into windows that overlap.

    Args:
        size: of a window, in seconds or as a `timedelta`; rounded to milliseconds.
        slide: from one window to the next; it divides the size.

    Raises:
        TypeError: one is not a duration. ConfigError: one is below a millisecond, or the slide does not divide the
            size.

    Example:
        >>> sliding(10, 0.5)
        sliding(10, 0.5)
    """
    return SlidingWindow(
        SlidingWindowPolicy(milliseconds("sliding: size", size), milliseconds("sliding: slide", slide))
    )


def session(gap: Duration) -> SessionWindow:
    """Cut a stream, for each key, where nothing has come for a while.

    Args:
        gap: how long, in seconds or as a `timedelta`; rounded to milliseconds.

    Raises:
        TypeError: it is not a duration. ConfigError: it is below a millisecond.

    Example:
        >>> session(30)
        session(30)
    """
    return SessionWindow(milliseconds("session: gap", gap))
