"""Where the semantics of shmjet's columns are not those of polars or DuckDB: the one place that says so.

The cases of the oracle ask the references for what shmjet promises, and take from here what they have to ask otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

NAN_MATCHES_NOTHING: Final = True
"""docs/columns.md, *Which keys are equal*: in a join NaN equals nothing. Both references join NaN with NaN."""

NAN_IS_LAST: Final = True
"""docs/limits.md, *NaN is one key*: NaN comes last in both directions. Both references have it first where a column
descends."""

COMPARES_AS_IEEE: Final = True
"""docs/columns.md, *Nulls*: NaN compares as IEEE 754 has it. In both references it equals itself and is greater than
all numbers."""

NUMBERS_ARE_EXACT: Final = True
"""docs/columns.md, *Which keys are equal*: 2**53 + 1 and 2.0**53 differ. DuckDB rounds the integer for the comparison,
polars refuses it."""

NULL_KEYS_OF_ITEMS_MATCH: Final = True
"""docs/pipelines.md, *Several streams*: items are joined by keys that are equal in Python, and None is one. In SQL null
equals nothing, and so it does where columns are joined."""

NO_ROWS_NO_TOTAL: Final = True
"""docs/columns.md, *Two stages*: `group_by().agg(...)` gives nothing when no row came in; SQL gives a row."""

SUMS_ARE_CHECKED: Final = True
"""docs/columns.md, *Batches of different dtypes*: a sum that leaves int64 (or uint64 of uint64) is an error. DuckDB has
128 bits, polars wraps."""


@dataclass(frozen=True)
class Expected:
    """What a reference makes of a case.

    Args:
        rows: tuples of values that equal themselves (`awkward.plain`); in order where the case has one.
        error: a part of the error's text that is due instead; empty: none is due.
    """

    rows: Sequence[tuple[Any, ...]] = ()
    error: str = ""
