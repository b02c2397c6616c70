"""Whether a first stage is worth its work: it is where rows share keys, and not where nearly every row has its own.

The first of two stages keeps a table, so that only one row for each key and processor moves. Where keys do not repeat
that table makes nothing fewer, and to fill it is wasted work; then rows are passed on as they are, and the last stage
alone keeps a table. Must not know what the tables hold.
"""

from __future__ import annotations

from typing import Final

MEASURED_ROWS: Final = 1 << 17
"""Rows that are grouped before it is decided, at most. Of 10^6 keys that come equally often, one row in sixteen has a
key that was there before. Then it saves a quarter to pass rows on if a processor gets one or two of each key, and costs
a few percent if it gets ten."""

PASSED: Final = 4
"""How many times as many rows are passed on before it is looked at again."""

_FEW: Final = 10
"""One row of so many has a key that was there before, at most, where rows are passed on."""

_EARLY: Final = 4
"""The first decision may fall after a quarter of these rows, where a quarter as many of them, too, may have a key that
was there before: so it is with keys that come equally often."""


class Reduction:
    """Looks at how many groups the rows of a first stage have made.

    Grouping rows that become no fewer is wasted work, so the first look ends as soon as it is clear. Keys may come in
    turn, each once before the first comes again. So each further look takes twice as many rows as the last.

    Args:
        measured_rows: rows that are grouped before the first decision, at most.

    Example:
        >>> reduction = Reduction(measured_rows=100)
        >>> reduction.grouped(24, 24), reduction.grouped(1, 25), reduction.is_poor
        (False, True, True)
        >>> reduction.passed(400)
        >>> reduction.is_poor, reduction.grouped(199, 199), reduction.grouped(1, 150), reduction.is_poor
        (False, False, False, False)
    """

    def __init__(self, measured_rows: int) -> None:
        self._measured = measured_rows
        self._least = max(1, measured_rows // _EARLY)
        self._rows = 0
        self._left = 0

    @property
    def undecided_rows(self) -> int:
        """How many more rows are to be grouped before anything can be decided; 0 where any number is welcome."""
        return 0 if self.is_poor else max(0, self._least - self._rows)

    @property
    def is_poor(self) -> bool:
        """Whether rows are to be passed on."""
        return self._left > 0

    def grouped(self, rows: int, groups: int) -> bool:
        """Note that rows have been grouped.

        Args:
            rows: so many more.
            groups: that the table has now, or distinct values of groups where it has more of these.

        Returns:
            True when the table is to be emitted, and rows to be passed on from now on.
        """
        self._rows += rows
        seen, measured = self._rows, self._measured
        if seen < self._least or (seen - groups) * _FEW * measured > seen * min(seen, measured):
            return False
        self._left = PASSED * max(seen, measured)
        self._measured = self._least = 2 * measured
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
