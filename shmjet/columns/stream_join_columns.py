"""By which columns two streams are joined. Must not import numpy, because a plan needs none."""

from __future__ import annotations

from typing import Literal, NamedTuple

How = Literal["inner", "left", "right", "outer"]
"""Which rows come out without a match."""


class JoinColumns(NamedTuple):
    """By which columns streams are joined.

    Args:
        left_keys, right_keys: names of the key columns, equally many; results have them under the left names.
        left_time, right_time: names of the columns with the timestamps; the left one has the later time in results.
        suffix: appended to the name of a column on the right that the left side has, too; None: that is an error.
        left_out: columns on the right that results do not have.
        sought: columns that later stages read: of a side that has had no batch yet they are null.
    """

    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    left_time: str
    right_time: str
    suffix: str | None = None
    left_out: frozenset[str] = frozenset()
    sought: frozenset[str] = frozenset()

    @property
    def keys(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The key columns of each side."""
        return self.left_keys, self.right_keys

    @property
    def times(self) -> tuple[str, str]:
        """The columns with the timestamps of each side."""
        return self.left_time, self.right_time
