"""Batches to and from polars by Arrow's capsules, of ten times as many rows: what is not copied takes no longer.

Each figure is the time of one exchange of ROWS rows; its peer is the same exchange of a tenth of them. A ratio near 1
says that the time does not depend on the rows, one near 0.1 that each value is touched. "shares memory" compares the
addresses of the values on both sides: numbers are the same memory both ways. Text of polars is views of 16 bytes, and
that of a batch offsets, so one side writes the text of the other anew.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from _harness import Bench, Options, PeerSkipped, elapsed, installed, measure_each

from shmjet import Batch, Text

ROWS = 10_000_000
TENTH = "a tenth of the rows"
TARGET = "numbers: shares memory, ratio >= 0.5"


def rows_of(options: Options) -> int:
    """Rows of the larger exchange."""
    return ROWS // 10 if options.quick else ROWS


def numbers(rows: int) -> Batch:
    """Return a batch of a column of ints and one of floats."""
    return Batch({"n": np.arange(rows), "x": np.arange(rows) * 0.5})


def text(rows: int) -> Batch:
    """Return a batch of a column of text, some of it longer than polars keeps within a view."""
    words = Text.of(["a", "some", "words", "of", "different lengths"])
    return Batch({"s": words.take(np.arange(rows) % len(words))})


def to_polars(batch: Batch) -> Any:
    """Return a batch as a DataFrame of polars."""
    import polars

    return polars.DataFrame(batch)


def addresses(table: Any) -> list[int] | None:
    """Return where the numbers of a batch or a DataFrame begin; None where they are text."""
    columns = table.parts()[0].values() if isinstance(table, Batch) else table.get_columns()
    found = []
    for column in columns:
        values = column if isinstance(table, Batch) else _array(column)
        if not isinstance(values, np.ndarray):
            return None
        found.append(int(values.__array_interface__["data"][0]))
    return found


def _array(series: Any) -> Any:
    import polars

    return None if series.dtype == polars.String else series.to_numpy(allow_copy=False)


def exchange(make: Callable[[int], Batch], to: bool) -> Callable[[Bench, Options], None]:
    """Return what adds the contenders of one direction.

    Args:
        make: the batch of so many rows.
        to: to polars, else from it.
    """

    def prepare(bench: Bench, options: Options) -> None:
        if not installed("polars"):
            raise PeerSkipped("polars is not installed")
        rows = rows_of(options)
        run: Callable[[Any], Any] = to_polars if to else Batch.from_arrow
        many, few = (make(count) if to else to_polars(make(count)) for count in (rows, rows // 10))
        made = run(many)
        given, taken = addresses(many), addresses(made)
        bench.facts |= {"rows": rows, "shares memory": given is not None and given == taken}
        bench.ours(lambda: 1e6 * elapsed(lambda: run(many)))
        bench.peer(TENTH, lambda: 1e6 * elapsed(lambda: run(few)))

    return prepare


BENCHES = {
    "arrow_numbers_to_polars": ("us", exchange(numbers, True)),
    "arrow_numbers_from_polars": ("us", exchange(numbers, False)),
    "arrow_text_to_polars": ("us", exchange(text, True)),
    "arrow_text_from_polars": ("us", exchange(text, False)),
}

if __name__ == "__main__":
    sys.exit(measure_each(__doc__, BENCHES))
