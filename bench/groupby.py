"""Sum and count of a float64 column grouped by an int64 key: rows a second of one worker.

`groupby_1e3` and `groupby_1e6` have that many keys, evenly spread, in `rows` rows. shmjet's `Groups` takes them in
batches of 65,536 rows, as they come through lanes, and all results are read at the end. Peers get the whole columns at
once and use one thread: numpy sorts (`unique` with `return_inverse`, then `bincount` twice), polars groups its own data
frame, duckdb its own table. That their data is in their own form beforehand is to their advantage; ours is in numpy's.

Target: at least 8 times numpy at 10^3 keys and 3 times at 10^6; no slower than polars and duckdb.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from _harness import Bench, Contender, Options, Report, parse_options, rate

from shmjet.host.allocator import keep_freed_memory

KEYS = {"groupby_1e3": 1_000, "groupby_1e6": 1_000_000}
ROWS = 10_000_000
BATCH = 1 << 16


def ours(keys: Any, values: Any) -> Contender:
    """Groups over batches."""
    from shmjet.columns.aggregates import count, sum_
    from shmjet.columns.groups import Groups
    from shmjet.data.batch import Batch

    whole = Batch({"k": keys, "v": values})
    batches = [whole[start : start + BATCH] for start in range(0, ROWS, BATCH)]

    def run() -> None:
        groups = Groups(["k"], {"total": sum_("v"), "n": count()})
        for batch in batches:
            groups.add(batch)
        position, rows = 0, 0
        while position >= 0:
            results, position = groups.results(position, BATCH)
            rows += int(results["n"].sum())
        expect(rows)

    return lambda: rate(ROWS, run)


def with_numpy(keys: Any, values: Any) -> Contender:
    """Sort, then add up."""
    import numpy as np

    def run() -> None:
        unique, places = np.unique(keys, return_inverse=True)
        totals = np.bincount(places, weights=values, minlength=len(unique))
        counts = np.bincount(places, minlength=len(unique))
        assert len(totals) == len(unique)
        expect(int(counts.sum()))

    return lambda: rate(ROWS, run)


def with_polars(keys: Any, values: Any) -> Contender:
    """A data frame of its own; the number of threads was set before the import."""
    import polars

    if polars.thread_pool_size() != 1:
        raise AssertionError(f"polars should have one thread, it has {polars.thread_pool_size()}")
    frame = polars.DataFrame({"k": keys, "v": values})

    def run() -> None:
        result = frame.group_by("k").agg(total=polars.col("v").sum(), n=polars.len())
        expect(int(result["n"].sum()))

    return lambda: rate(ROWS, run)


def with_duckdb(bench: Bench, keys: Any, values: Any) -> Contender:
    """A table of its own, in memory."""
    import duckdb

    connection = bench.resources.enter_context(duckdb.connect())
    connection.execute("SET threads=1")
    connection.register("given", {"k": keys, "v": values})
    connection.execute("CREATE TABLE t AS SELECT k, v FROM given")
    connection.unregister("given")

    def run() -> None:
        result = connection.execute("SELECT k, sum(v) AS total, count(*) AS n FROM t GROUP BY k").fetchnumpy()
        expect(int(result["n"].sum()))

    return lambda: rate(ROWS, run)


def expect(rows: int) -> None:
    """Whether all rows were counted."""
    if rows != ROWS:
        raise AssertionError(f"{ROWS} rows should have been counted, {rows} were")


def group_by(options: Options, report: Report, name: str) -> None:
    """One number of keys."""
    import numpy as np

    random = np.random.default_rng(42)
    keys, values = random.integers(0, KEYS[name], ROWS), random.random(ROWS)
    with Bench(name, "rows/s") as bench:
        bench.facts = {"rows": ROWS, "target": "ratio >= 8 (1e3) and >= 3 (1e6) to numpy, >= 1 to polars and duckdb"}
        bench.ours(ours(keys, values))
        peers: dict[str, Callable[[], Contender]] = {
            "numpy": lambda: with_numpy(keys, values),
            "polars_1thread": lambda: with_polars(keys, values),
            "duckdb_1thread": lambda: with_duckdb(bench, keys, values),
        }
        for peer, make in peers.items():
            if options.wants_peer(peer):
                try:
                    bench.peer(peer, make())
                except ImportError as error:
                    bench.skip(peer, str(error))
        report.add(bench.measure(rounds=options.rounds))


def main() -> int:
    os.environ["POLARS_MAX_THREADS"] = "1"
    keep_freed_memory()  # as workers do; peers but numpy have allocators of their own that do so
    options = parse_options(__doc__, list(KEYS))
    report = Report(options)
    for name in KEYS:
        if options.wants(name):
            group_by(options, report, name)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
