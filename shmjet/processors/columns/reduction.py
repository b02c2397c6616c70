"""Whether a first stage is worth its work: it is where rows share keys, and not where nearly every row has its own.

The first of two stages keeps a table, so that only one row for each key and processor moves. Where keys do not repeat
that table makes nothing fewer, and to fill it is wasted work; then rows are passed on as they are, and the last stage
alone keeps a table. Must not know what the tables hold.
"""

from __future__ import annotations

from typing import Final

MEASURED_ROWS: Final = 1 << 17
"""Rows that are grouped before it is decided. Of 10^6 keys that come equally often, one row in sixteen has a key that
was there before. Then it saves a quarter to pass rows on if a processor gets one or two of each key, and costs a few
percent if it gets ten."""

PASSED: Final = 4
"""How many times as many rows are passed on before it is looked at again."""

_FEW: Final = 10
"""One row of so many has a key that was there before, at most, where rows are passed on."""


class Reduction:
    """Looks at how many groups the rows of a first stage have made.

    Keys may come in turn, each once before the first comes again. So each look takes twice as many rows as the last.

    Args:
        measured_rows: rows that are grouped before the first decision.

    Example:
        >>> reduction = Reduction(measured_rows=100)
        >>> reduction.grouped(99, 99), reduction.grouped(1, 100), reduction.is_poor
        (False, True, True)
        >>> reduction.passed(400)
        >>> reduction.is_poor, reduction.grouped(199, 199), reduction.grouped(1, 150), reduction.is_poor
        (False, False, False, False)
    """

    def __init__(self, measured_rows: int) -> None:
        self._measured = measured_rows
        self._rows = 0
        self._left = 0

    @property
    def is_poor(self) -> bool:
        """Whether rows are to be passed on."""
        return self._left > 0

    def grouped(self, rows: int, groups: int) -> bool:
        """Note that rows have been grouped.

        Args:
            rows: so many more.
            groups: that the table has now.

        Returns:
            True when the table is to be emitted, and rows to be passed on from now on.
        """
        self._rows += rows
        if self._rows < self._measured or (self._rows - groups) * _FEW > self._rows:
            return False
        self._left, self._measured = PASSED * self._rows, 2 * self._measured
        return True

    def passed(self, rows: int) -> None:
        """Note that rows have been passed on."""
        self._left -= rows

    def refused(self) -> None:
        """Note that rows are not passed on after all, because they are too large."""
        self._left = 0

    def emptied(self) -> None:
        """Note that the table is empty again."""
        self._rows = 0
