"""When the items of a stream by schedule are due, and which of them a processor makes. Pure: the clock comes in.

Number n is due n / rate seconds after the start, whenever it is made, as in the `EventSourceP` of Jet's NEXMark. So
what the engine costs shows as lateness. Processor g of P makes the numbers g, g + P, g + 2P, ...
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import Any, NamedTuple

from shmjet.data.errors import ConfigError

_MS = 1_000_000
_FINEST = 10**6
"""Rates are fractions whose numerator or denominator is at most that: arithmetic on int64 stays exact."""
_LOOKED_AT = 1 << 12
"""Numbers that are looked at in one call where some of them had been made."""


def checked_rate(where: str, rate: Any) -> Fraction:
    """Return a number of items a second as an exact fraction: 0.1 is a tenth.

    Args:
        where: what the message calls it.
        rate: int or float above 0.

    Raises:
        TypeError: it is not a number.
        ConfigError: it is not above 0, not finite, or too large.

    Example:
        >>> checked_rate("rate", 0.1), checked_rate("rate", 1 / 3)
        (Fraction(1, 10), Fraction(1, 3))
    """
    if isinstance(rate, bool) or not isinstance(rate, Real):
        raise TypeError(f"{where} must be a number of items a second, got {rate!r} ({type(rate).__name__})")
    given: Any = rate  # an int beyond a float can be compared with one
    if not 1e-9 <= given <= 1e9:
        raise ConfigError(f"{where} must be above 0 and at most 1,000,000,000 items a second, got {rate!r:.80}")
    value = float(rate)
    if value >= 1:
        return Fraction(value).limit_denominator(_FINEST)
    return 1 / (1 / Fraction(value)).limit_denominator(_FINEST)


@dataclass(frozen=True)
class Schedule:
    """When which number is due.

    Args:
        start: milliseconds since the epoch, of number 0.
        rate: numbers a second, in all.

    Example:
        >>> schedule = Schedule(1_000, Fraction(3))
        >>> schedule.timestamps(range(4)), schedule.count_due(1_666 * 10**6), schedule.due_ns(2)
        ([1000, 1333, 1666, 2000], 2, 1666666667)
    """

    start: int
    rate: Fraction

    def timestamp(self, number: int) -> int:
        """Return the timestamp of a number, in milliseconds since the epoch."""
        return self.start + number * 1000 * self.rate.denominator // self.rate.numerator

    def due_ns(self, number: int) -> int:
        """Return when a number may be made: nanoseconds since the epoch, not before its timestamp."""
        return self.start * _MS - (-number * 1000 * _MS * self.rate.denominator // self.rate.numerator)

    def count_due(self, now_ns: int) -> int:
        """Return how many numbers are due at a time, in nanoseconds since the epoch: all below that."""
        passed = now_ns - self.start * _MS
        if passed < 0:
            return 0
        return passed * self.rate.numerator // (1000 * _MS * self.rate.denominator) + 1

    def timestamps(self, numbers: Sequence[int]) -> list[int]:
        """Return the timestamps of numbers."""
        start, factor, rate = self.start, 1000 * self.rate.denominator, self.rate.numerator
        return [start + number * factor // rate for number in numbers]

    def timestamp_array(self, numbers: Any) -> Any:
        """Return the timestamps of a non-empty int64 array of rising numbers, as one."""
        factor, rate = 1000 * self.rate.denominator, self.rate.numerator
        first = int(numbers[0])
        whole, rest = divmod(first * factor, rate)
        return ((numbers - first) * factor + rest) // rate + (self.start + whole)


class Made(NamedTuple):
    """How far the processors of a source had come when it was saved: processor g would make `positions[g]` next."""

    positions: tuple[int, ...]

    def has(self, number: int) -> bool:
        """Say whether a number had been made."""
        return number < self.positions[number % len(self.positions)]


class NumberShare:
    """The numbers that one processor makes, in order.

    When a source goes on with another number of processors, the numbers are dealt anew, and what had been made is
    left out.

    Args:
        index, count: of the processor.

    Example:
        >>> share = NumberShare(1, 2)
        >>> list(share.take(100, most=3)), share.position
        ([1, 3, 5], 7)
        >>> other = NumberShare(0, 1)
        >>> other.restore([Made((8, 7))])
        >>> list(other.take(12, most=100))
        [7, 8, 9, 10, 11]
    """

    def __init__(self, index: int, count: int) -> None:
        self._index = index
        self._count = count
        self._made: list[Made] = []
        self.position = index
        """The number to look at next; all below that are its own have been made."""

    @property
    def made(self) -> tuple[Made, ...]:
        """What other numbers of processors had made, as far as it still counts."""
        return tuple(self._made)

    def restore(self, made: Iterable[Made]) -> None:
        """Go on behind what was made, by as many processors as there are now or by others.

        Args:
            made: of each number of processors that the source has had, the last ones first.
        """
        self._made = list(made)
        last = self._made[0].positions
        if len(last) == self._count:
            self.position = last[self._index]
            del self._made[0]
        else:
            least = min(last)
            self.position = least + (self._index - least) % self._count

    def take(self, bound: int, most: int) -> Sequence[int]:
        """Return the next numbers below a bound, at most so many, and go on behind them."""
        if self._made:
            return self._take_left(bound, most)
        numbers = range(self.position, bound, self._count)[:most]
        self.position += len(numbers) * self._count
        return numbers

    def _take_left(self, bound: int, most: int) -> list[int]:
        """Return the next numbers that had not been made."""
        candidates = range(self.position, bound, self._count)[: max(most, _LOOKED_AT)]
        behind = self.position + len(candidates) * self._count
        numbers = [number for number in candidates if not any(made.has(number) for made in self._made)]
        if len(numbers) > most:
            behind = numbers[most]
            del numbers[most:]
        self.position = behind
        self._made = [made for made in self._made if max(made.positions) > behind]
        return numbers
