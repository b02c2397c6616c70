"""Spark in, back and instead: rows a second between PySpark and the engine, against the ways of a PySpark program.

`spark_feed_numbers` (int64, float64) and `spark_feed_mixed` (and a short string): a DataFrame that Spark makes goes
into a running instance, which sums every column (of strings, their bytes). Peers: `rdd`, the obvious way, `df.rdd`
with `np.array([row[i] for row in chunk])` per column and 8192 rows, summed in Spark's own Python workers, so that it
need not hand anything over; `mapInArrow`, the same with pyarrow's batches, in a process and a session of its own,
because pyarrow must not be importable where shmjet runs (`_arrow_peer.py`).

Both sides run on the same cores, warm, in turn; a run is one whole job, its start included. The obvious way gets fewer
rows, because its rate does not depend on how many there are. All sums are checked. CPU seconds are those of all
processes.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
from _arrow_peer import ArrowPeer
from _harness import Bench, Options, PeerSkipped, Report, parse_options
from _spark import cpu_seconds, local_session

CHUNK = 8192
"""Rows of a chunk in the obvious way."""
FEWER = 8
"""So many times fewer rows for the obvious way."""
FEEDS = {
    "spark_feed_numbers": ["id as a", "id * 0.5D as b"],
    "spark_feed_mixed": ["id as a", "id * 0.5D as b", "concat('n', id % 1000) as s"],
}

Sums = tuple[float, ...]


def frame(session: Any, columns: list[str], rows: int, workers: int) -> Any:
    """A DataFrame that Spark makes while it is read."""
    return session.range(0, rows, 1, 2 * workers).selectExpr(*columns)


def expected(columns: list[str], rows: int) -> Sums:
    """What the columns of `frame` sum up to."""
    total = rows * (rows - 1) // 2
    digits = np.array([len(f"n{n}") for n in range(1000)])
    bytes_of_text = int(digits.sum()) * (rows // 1000) + int(digits[: rows % 1000].sum())
    return (total, total / 2, bytes_of_text)[: len(columns)]


def column_sum(column: Any) -> float:
    """The sum of a batch's column; of text, its bytes."""
    return float(column.sum()) if isinstance(column, np.ndarray) else float(column.lengths.sum())


def sums_of(batch: Any) -> Any:
    """A batch of one row with the sum of each column."""
    return {name: [column_sum(column)] for name, column in batch.items()}


def added(parts: Any) -> Sums:
    """Sums of sums."""
    return tuple(float(sum(column)) for column in zip(*parts, strict=True))


class Engine:
    """The feed into an instance."""

    def __init__(self, session: Any, jet: Any) -> None:
        self._session, self._jet = session, jet

    def run(self, columns: list[str], rows: int, workers: int) -> Sums:
        import shmjet.spark
        from shmjet import Pipeline, sinks

        source = shmjet.spark.source(frame(self._session, columns, rows, workers))
        pipeline, results = Pipeline(), sinks.collect()
        summed = pipeline.read_from(source).map_batches(sums_of)
        summed.write_to(results)
        with results:
            self._jet.new_job(pipeline).run()
            return added(row for batch in results for row in batch.tuples())


class ObviousWay:
    """Rows to Python objects to arrays, in Spark's Python workers."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def run(self, columns: list[str], rows: int, workers: int) -> Sums:
        width = len(columns)

        def sums(elements: Iterator[Any]) -> Iterator[Sums]:
            from itertools import islice

            while chunk := list(islice(elements, CHUNK)):
                arrays = [np.array([row[i] for row in chunk]) for i in range(min(width, 2))]
                text = [sum(len(row[2].encode()) for row in chunk)] if width > 2 else []
                yield (*(float(array.sum()) for array in arrays), *map(float, text))

        return added(frame(self._session, columns, rows, workers).rdd.mapPartitions(sums).collect())


class MapInArrow:
    """pyarrow's batches in Spark's Python workers, in a process of its own."""

    def __init__(self, peer: ArrowPeer) -> None:
        self._peer = peer

    def rate(self, columns: list[str], rows: int, cost: list[float]) -> float:
        """Rows a second of one run; its CPU seconds per million rows go to `cost`."""
        found = self._peer.run(columns, rows)
        cost.append(found["cpu"] / rows * 1e6)
        assert np.allclose(found["sums"], expected(columns, rows), rtol=1e-9), found
        return float(rows / found["seconds"])


def rate(
    run: Callable[[list[str], int, int], Sums], columns: list[str], rows: int, workers: int, cost: list[float]
) -> float:
    """Rows a second of one run; its CPU seconds per million rows go to `cost`."""
    before, start = cpu_seconds(), time.perf_counter()
    found = run(columns, rows, workers)
    elapsed = time.perf_counter() - start
    cost.append((cpu_seconds() - before) / rows * 1e6)
    assert np.allclose(found, expected(columns, rows), rtol=1e-9), (found, expected(columns, rows))
    return rows / elapsed


def feed(name: str, options: Options, report: Report, session: Any, jet: Any, peer: ArrowPeer) -> None:
    """One kind of rows into the engine."""
    columns = FEEDS[name]
    rows = 4_000_000 if options.quick else 16_000_000
    costs: dict[str, list[float]] = {}

    def contender(who: str, run: Callable[[list[str], int, int], Sums], rows: int) -> Callable[[], float]:
        return lambda: rate(run, columns, rows, options.workers, costs.setdefault(who, []))

    with Bench(name, "rows/s") as bench:
        bench.ours(contender("shmjet", Engine(session, jet).run, rows))
        if options.wants_peer("rdd"):
            bench.peer("rdd", contender("rdd", ObviousWay(session).run, rows // FEWER))
        if options.wants_peer("mapInArrow"):
            cost = costs.setdefault("mapInArrow", [])
            bench.peer("mapInArrow", lambda: MapInArrow(peer).rate(columns, rows, cost))
        bench.facts["rows"] = rows
        result = bench.measure(rounds=options.rounds)
        middle = {who: sorted(values)[len(values) // 2] for who, values in costs.items()}
        bench.facts["cpu seconds per million rows"] = {who: round(cost, 3) for who, cost in middle.items()}
        report.add(result)


def main() -> int:
    import shmjet

    options = parse_options(__doc__, benches=list(FEEDS))
    report = Report(options)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.workers])
    try:
        with (
            local_session(options, "rdd", "mapInArrow") as session,
            shmjet.new_instance(shmjet.JetConfig(cores=options.workers)) as jet,
            closing(ArrowPeer(options)) as peer,
        ):
            for name in FEEDS:
                if options.wants(name):
                    feed(name, options, report, session, jet, peer)
    except PeerSkipped as reason:
        print(f"bench/spark.py: skipped: {reason}", file=sys.stderr)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
