"""The last minutes of a few numbers, for the small charts. Knows no clock: times come in with the values."""

from __future__ import annotations

from collections import deque

import msgspec


class Series(msgspec.Struct, frozen=True):
    """Values over time: seconds since 1970, and for each name as many values."""

    times: list[float]
    values: dict[str, list[float]]


class History:
    """Keeps what was added within the last `seconds`.

    Args:
        names: of the values, in the order in which `add` takes them.
        seconds: how far back it reaches.
        most: entries, so that the memory is bounded whatever the clock does.
    """

    def __init__(self, names: tuple[str, ...], seconds: float = 300.0, most: int = 600) -> None:
        self._names = names
        self._seconds = seconds
        self._entries: deque[tuple[float, tuple[float, ...]]] = deque(maxlen=most)

    def add(self, time: float, *values: float) -> None:
        """Add one value for each name, and forget what is too old."""
        assert len(values) == len(self._names)
        self._entries.append((time, values))
        while self._entries[0][0] < time - self._seconds:
            self._entries.popleft()

    def series(self) -> Series:
        """Return what is kept."""
        columns = (
            zip(*(values for _, values in self._entries), strict=True) if self._entries else [()] * len(self._names)
        )
        return Series(
            [round(time, 2) for time, _ in self._entries],
            {name: [_short(value) for value in column] for name, column in zip(self._names, columns, strict=True)},
        )


def _short(value: float) -> float:
    """Round to what a chart can show; the numbers travel each second."""
    return float(f"{value:.4g}")
