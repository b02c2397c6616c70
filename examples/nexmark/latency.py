"""How late results are, by the method of Jet's NEXMark.

A result is due at a time that the query says: the end of a window, the expiry of an auction, the time of an event. A
single processor sees all of them, in queries with a result for each event through a sieve. It looks at the first
result of each new and later time and subtracts that from the wall clock, in whole milliseconds. As events are due by a
schedule, what waits in front of the source counts too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from nexmark import columns, queries
from nexmark.events import Load
from nexmark.replay import Reader
from shmjet.pipeline import StreamStage

Row = tuple[Any, ...]
CLOCK_SKEW_MS = -1

DUE = {1: 1, 2: 0, 3: 2, 4: 2, 5: 0, 6: 2, 7: 0, 8: 0, 13: 1, 18: 3}
"""Which field of a result is the time at which it is due."""

SIEVES: dict[int, Callable[[Load, Row], bool]] = {
    1: lambda load, row: row[0] % load.sieve == 0,
    2: lambda load, row: row[1] % max(1, load.sieve // 128) == 0,
    8: lambda load, row: row[1] % max(1, load.keys // 100) == 0,
    13: lambda load, row: row[0] % load.sieve == 0,
    18: lambda load, row: row[2] % load.sieve == 0,
}
"""Which results are looked at, of queries with many."""


def latencies(number: int, read: Reader, load: Load, *, in_columns: bool = False) -> StreamStage[Any]:
    """Return a query whose results are `(due, latency)`, in milliseconds.

    Args:
        number: of the query.
        read: the events, by schedule.
        load: parameters.
        in_columns: run the query on columns.
    """
    if in_columns:
        found = columns.QUERIES[number](read, load)
        if number in columns.SIEVES:
            found = found.filter(columns.SIEVES[number](load))
        found = columns.rows(number, found)
    else:
        found = queries.QUERIES[number](read, load)
        if number in SIEVES:
            sieve = SIEVES[number]
            found = found.filter(lambda row: sieve(load, row))
    due = DUE[number]
    return found.map(lambda row: row[due]).map_stateful(_nothing_yet, _late)


def _nothing_yet() -> list[int]:
    return [-1]


def _late(last: list[int], due: int) -> tuple[int, int] | None:
    if due <= last[0]:
        return None
    last[0] = due
    late = int(time.time() * 1000) - due
    if late < CLOCK_SKEW_MS:
        raise ValueError(f"a result that is due at {due} came {-late} ms early")
    return due, max(0, late)
