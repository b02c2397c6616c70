"""Counts by key in sliding windows on columns, replayed from memory, compared with polars and duckdb.

`sliding_columns`: 10,000 keys, windows of ten seconds that slide by one, 100 seconds of rows in the order of their
time; target: 2 times the rows a second of polars' `group_by_dynamic` and of duckdb. `tumbling_columns`: windows of a
second.

shmjet runs a job, from a source that replays batches as a stream with watermarks to a sink that drops the results; its
results are counted in a first run. polars runs `group_by_dynamic` with `group_by="k"` on a DataFrame that is in order;
`polars, by frame` and duckdb count by key and second, and add up the counts of each window. All have the same windows.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _harness import Bench, Contender, Options, PeerSkipped, elapsed, measure_each
from _tables import mapped

import shmjet
from shmjet import Pipeline, column, sinks, sliding, sources
from shmjet.columns import count
from shmjet.data.batch import Batch

ROWS, QUICK_ROWS = 8_000_000, 2_000_000
KEYS, SPAN_MS, SLIDE_MS = 10_000, 100_000, 1_000
BATCH_ROWS = 65_536
SOON_S = 600
SIZES = {"sliding_columns": 10_000, "tumbling_columns": 1_000}

Files = tuple[str, str]


def write(folder: Path, rows: int) -> Files:
    """Write the keys and the timestamps; return the paths."""
    random = np.random.default_rng(20_26)
    columns = random.integers(0, KEYS, rows), np.sort(random.integers(0, SPAN_MS, rows))
    files = str(folder / "k.npy"), str(folder / "ts.npy")
    for path, values in zip(files, columns, strict=True):
        np.save(path, values)
    return files


def replayed(files: Files, index: int, total: int) -> Iterator[Batch]:
    """Give every so many-th batch, in order."""
    key, stamps = mapped(files)
    for at in range(index * BATCH_ROWS, len(key), total * BATCH_ROWS):
        yield Batch({"k": key[at : at + BATCH_ROWS], "ts": stamps[at : at + BATCH_ROWS]})


def fill(batches: Iterator[Batch], buffer: Any) -> None:
    """Give the next batch."""
    batch = next(batches, None)
    if batch is None:
        buffer.close()
    else:
        buffer.add(batch)


def pipeline(files: Files, size_ms: int, parts: int, sink: Any) -> Pipeline:
    """The job."""
    source = (
        sources.builder("rows", lambda context: replayed(files, context.global_index, context.total_parallelism))
        .fill_buffer_fn(fill)
        .distributed(parts)
        .stream()
    )
    p = Pipeline()
    stage = p.read_from(source).with_timestamps(column("ts"))
    stage.window(sliding(size_ms / 1000, SLIDE_MS / 1000)).group_by("k").agg(n=count()).write_to(sink)
    return p


def check(rows: int, size_ms: int, total: int) -> None:
    """Raise when not every row was counted in every window that it is in."""
    if total != rows * (size_ms // SLIDE_MS):
        raise AssertionError(f"{total} rows were counted, not {rows * (size_ms // SLIDE_MS)}")


def polars(files: Files, size_ms: int, workers: int, by_frame: bool) -> Contender:
    """polars on a DataFrame in memory, in one query or by way of the counts of each second."""
    os.environ["POLARS_MAX_THREADS"] = str(workers)  # read when it is imported
    import polars as pl

    if pl.thread_pool_size() != workers:
        raise PeerSkipped(f"polars has {pl.thread_pool_size()} threads, not {workers}")
    key, stamps = mapped(files)
    frame = pl.DataFrame({"k": np.array(key), "ts": np.array(stamps)}).with_columns(pl.col("ts").set_sorted())
    every, period, before = f"{SLIDE_MS}i", f"{size_ms}i", f"{SLIDE_MS - size_ms}i"
    plan = frame.lazy().group_by_dynamic("ts", every=every, period=period, offset=before, group_by="k").agg(n=pl.len())
    if by_frame:
        frames = frame.lazy().group_by("k", f=pl.col("ts") // SLIDE_MS).agg(n=pl.len())
        starts = pl.int_ranges(pl.col("f") - size_ms // SLIDE_MS + 1, pl.col("f") + 1)
        plan = frames.with_columns(w=starts).explode("w").group_by("k", "w").agg(pl.col("n").sum())

    def run() -> float:
        found: list[Any] = []
        seconds = elapsed(lambda: found.append(plan.collect()))
        check(len(key), size_ms, int(found[0]["n"].sum()))
        return len(key) / seconds

    return run


def duckdb(files: Files, size_ms: int, workers: int) -> Contender:
    """duckdb on a table in memory, into another."""
    import duckdb

    connection = duckdb.connect()
    connection.execute(f"SET threads = {workers}")
    key, stamps = mapped(files)
    connection.register("arrays", {"k": np.array(key), "ts": np.array(stamps)})
    connection.execute("CREATE TABLE rows AS SELECT * FROM arrays")
    query = (
        "CREATE OR REPLACE TABLE results AS SELECT k, w, sum(n) AS n FROM (SELECT k, n, "
        f"unnest(range(f - {size_ms // SLIDE_MS - 1}, f + 1)) AS w FROM (SELECT k, ts // {SLIDE_MS} AS f, "
        "count(*) AS n FROM rows GROUP BY ALL)) GROUP BY k, w"
    )

    def run() -> float:
        seconds = elapsed(lambda: connection.execute(query))
        found = connection.execute("SELECT sum(n) FROM results").fetchone()
        assert found is not None
        check(len(key), size_ms, int(found[0]))
        return len(key) / seconds

    return run


def windows(bench: Bench, options: Options, size_ms: int) -> None:
    """Prepare one row."""
    rows = QUICK_ROWS if options.quick else ROWS
    folder = bench.resources.enter_context(tempfile.TemporaryDirectory())
    files = write(Path(folder), rows)
    jet = bench.resources.enter_context(shmjet.new_instance(shmjet.JetConfig(cores=options.workers)))
    results = sinks.collect()
    jet.new_job(pipeline(files, size_ms, options.workers, results)).run(SOON_S)
    check(rows, size_ms, sum(int(batch["n"].sum()) for batch in results))
    p = pipeline(files, size_ms, options.workers, sinks.noop())

    def ours() -> float:
        return rows / elapsed(lambda: jet.new_job(p).run(SOON_S))

    bench.facts = {"workers": options.workers, "rows": rows, "keys": KEYS, "window": size_ms}
    bench.ours(ours)
    peers = {
        "polars, group_by_dynamic": ("polars", partial(polars, files, size_ms, options.workers, False)),
        "polars, by frame": ("polars", partial(polars, files, size_ms, options.workers, True)),
        "duckdb": ("duckdb", partial(duckdb, files, size_ms, options.workers)),
    }
    for name, (needs, make) in peers.items():
        if options.wants_peer(name):
            bench.peer(name, made(make), needs=needs)


def made(make: Any) -> Contender:
    """Return what prepares a peer when it runs first."""
    found: list[Contender] = []

    def run() -> float:
        if not found:
            found.append(make())
        return found[0]()

    return run


def main() -> int:
    """Run the rows that were asked for."""
    return measure_each(
        __doc__, {name: ("rows/s", partial(windows, size_ms=size_ms)) for name, size_ms in SIZES.items()}
    )


if __name__ == "__main__":
    sys.exit(main())
