"""Expressions: a filter and three expressions over numbers, and functions of text, in rows per second on one core.

`numbers`: two conditions choose 45 % of the rows of an int64 and two float64 columns, and three expressions with a
common part are computed of them. `numbers_all` lets 99 % through. `contains_10` and `contains_100` look for a text in
values of about so many characters, `pattern_100` for a regular expression. Batches of 65,536 rows, one after the other,
as they come through a job.

Peers: `polars` (lazy, one thread) over the same rows in one frame, and `numpy` written plainly: columns[mask], then the
formulas; for text, `str` in a list. Targets: numbers 0.8 times polars and 3 times numpy; text 1 time polars.
"""

from __future__ import annotations

import os

os.environ["POLARS_MAX_THREADS"] = "1"  # before polars is imported

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from _harness import Bench, Report, parse_options, rate

from shmjet import Batch, Text, column
from shmjet.columns.expressions import Projection, Selection
from shmjet.host.allocator import keep_freed_memory

ROWS = 65_536
NUMBERS = {"numbers": (0.5, 0.1), "numbers_all": (0.995, 0.005)}
TEXTS = {"contains_10": (10, "q7", True), "contains_100": (100, "q7", True), "pattern_100": (100, "q7.*[0-9]z", False)}
NET = column("price") * (1 - column("discount"))
OUTPUTS = {"net": NET, "gross": NET * 1.2, "units": column("count") * 3 + 1}


def numbers(batches: list[Batch], share: float, floor: float) -> Callable[[], int]:
    """Return the run of ours."""
    selection = Selection((column("count") < int(share * 1000)) & (column("discount") > floor))
    projection = Projection(OUTPUTS, keep=False)
    return lambda: sum(projection.apply(selection.apply(batch)).num_rows for batch in batches)


def numbers_by_numpy(columns: dict[str, Any], share: float, floor: float) -> int:
    """Write the same with numpy."""
    mask = (columns["count"] < int(share * 1000)) & (columns["discount"] > floor)
    price, discount, count = columns["price"][mask], columns["discount"][mask], columns["count"][mask]
    results = price * (1 - discount), price * (1 - discount) * 1.2, count * 3 + 1
    return len(results[0])


def numbers_by_polars(frame: Any, share: float, floor: float) -> int:
    """Write the same with polars."""
    import polars as pl

    net = pl.col("price") * (1 - pl.col("discount"))
    chosen = frame.lazy().filter((pl.col("count") < int(share * 1000)) & (pl.col("discount") > floor))
    result = chosen.select(net=net, gross=net * 1.2, units=pl.col("count") * 3 + 1).collect()
    return int(result.height)


def texts(rows: int, length: int) -> list[str]:
    """Return random values of about so many characters."""
    random = np.random.default_rng(1)
    letters = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz 0123456789", np.uint8)
    lengths = random.integers(length // 2, length * 3 // 2 + 1, rows)
    data = letters[random.integers(0, len(letters), int(lengths.sum()))].tobytes().decode()
    ends = np.cumsum(lengths).tolist()
    return [data[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]


def checked(run: Callable[[], int], rows: int, expected: int) -> float:
    """Rows per second of a run that gives a number which is known."""

    def once() -> None:
        found = run()
        if found != expected:
            raise AssertionError(f"expected {expected} rows, got {found}")

    return rate(rows, once)


def bench_numbers(options: Any, report: Report, name: str, rows: int) -> None:
    """Measure a filter and three expressions."""
    random = np.random.default_rng(1)
    columns = {"count": random.integers(0, 1000, rows), "price": random.random(rows), "discount": random.random(rows)}
    batches = [Batch({n: c[at : at + ROWS] for n, c in columns.items()}) for at in range(0, rows, ROWS)]
    share, floor = NUMBERS[name]
    expected = numbers_by_numpy(columns, share, floor)
    with Bench(name, "rows/s") as bench:
        bench.facts["target"] = "ratio >= 0.8 to polars, 3 to numpy"
        bench.ours(partial(checked, numbers(batches, share, floor), rows, expected))
        if options.wants_peer("polars"):

            def polars() -> float:
                import polars as pl

                frame = pl.DataFrame(columns)
                return checked(lambda: numbers_by_polars(frame, share, floor), rows, expected)

            bench.peer("polars", polars, needs="polars")
        if options.wants_peer("numpy"):
            bench.peer("numpy", partial(checked, lambda: numbers_by_numpy(columns, share, floor), rows, expected))
        report.add(bench.measure(rounds=options.rounds))


def bench_text(options: Any, report: Report, name: str, rows: int) -> None:
    """Measure a search in text."""
    length, pattern, literal = TEXTS[name]
    values = texts(rows, length)
    batches = [Batch({"text": Text.of(values[at : at + ROWS])}) for at in range(0, rows, ROWS)]
    selection = Selection(column("text").str.contains(pattern, literal=literal))

    def ours() -> int:
        return sum(int(np.count_nonzero(selection.mask(batch))) for batch in batches)

    expected = ours()
    with Bench(name, "rows/s") as bench:
        bench.facts["target"] = "ratio >= 1 to polars"
        bench.ours(partial(checked, ours, rows, expected))
        if options.wants_peer("polars"):

            def polars() -> float:
                import polars as pl

                series = pl.Series("text", values)
                return checked(lambda: int(series.str.contains(pattern, literal=literal).sum()), rows, expected)

            bench.peer("polars", polars, needs="polars")
        if options.wants_peer("str") and literal:
            bench.peer("str", partial(checked, lambda: sum(pattern in value for value in values), rows, expected))
        report.add(bench.measure(rounds=options.rounds))


def main() -> int:
    keep_freed_memory()  # as workers do; peers but numpy have allocators of their own that do so
    options = parse_options(__doc__, benches=[*NUMBERS, *TEXTS])
    report = Report(options)
    for name in NUMBERS:
        if options.wants(name):
            bench_numbers(options, report, name, 4_000_000 if options.quick else 100_000_000)
    for name in TEXTS:
        if options.wants(name):
            bench_text(options, report, name, 400_000 if options.quick else 10_000_000)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
