"""Sum and count by key on all cores, source → partitioned → group → sink, compared with polars, duckdb and PySpark.

Rows are an int64 key and a float64 value, uniform over 1,000 keys (`groupby_all_1e3`) or 1,000,000 (`groupby_all_1e6`),
from arrays in warm memory: files of the page cache that the workers have mapped, a polars DataFrame, a table of duckdb,
a cached DataFrame of Spark (made by it, of the same distributions). Each ends with all results in its own memory:
batches in a list of the instance, a DataFrame, a table; Spark only computes them (its `noop` sink). The job is
submitted anew for every run. Targets: 0.7, 0.7 and 5.

`groupby_all_1e3` groups in two stages, so that a thousand rows cross between workers; `groupby_all_1e6` in one, so that
every row is routed by its key. Facts give the other plan's figure.

`mixed_groupby`: plain Python functions make (key, value) items, one by one, which feed sum, count, least and greatest
by key: `group_by`, which gathers the items into columns, against `all_python`, the same job with `aggregate_by_key` and
an operation in Python; both in two stages. Target: 1.5.
"""

from __future__ import annotations

import operator
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from _harness import Bench, Contender, Options, PeerSkipped, Report, elapsed, parse_options
from _spark import local_session
from _tables import read

import shmjet
from shmjet import DAG, JetConfig, JetInstance, between, processors
from shmjet.columns import count, max_, min_, sum_
from shmjet.data.batch import Batch
from shmjet.processors import AggregateOperation

BENCHES = {"groupby_all_1e3": 1_000, "groupby_all_1e6": 1_000_000, "mixed_groupby": 1_000}
ROWS, QUICK_ROWS = 40_000_000, 20_000_000
ITEMS, QUICK_ITEMS = 2_000_000, 800_000
BATCH_ROWS = 65_536
PEERS = ("polars", "duckdb", "pyspark_dataframe")


# -- columns -----------------------------------------------------------------------------------------------------------


class Table:
    """The rows, as two files of numpy, and what the sum of all results must be."""

    def __init__(self, folder: Path, keys: int, rows: int) -> None:
        random = np.random.default_rng(20_26)
        key = random.integers(0, keys, rows)
        value = random.integers(0, 1000, rows) / 4  # sums are exact, in whatever order
        self.files = str(folder / f"k-{keys}.npy"), str(folder / f"v-{keys}.npy")
        for path, column in zip(self.files, (key, value), strict=True):
            np.save(path, column)
        self.rows = rows
        self.total = float(value.sum())
        self.groups = len(np.unique(key))

    def columns(self) -> dict[str, Any]:
        """Map the columns."""
        return {
            name: np.load(path, mmap_mode="r").view(np.ndarray) for name, path in zip("kv", self.files, strict=True)
        }

    def check(self, groups: int, rows: int, total: float) -> None:
        """Raise when results are not those of these rows."""
        if (groups, rows, total) != (self.groups, self.rows, self.total):
            raise AssertionError(f"found {groups, rows, total}, expected {self.groups, self.rows, self.total}")


class Ours:
    """Runs the job in one stage or in two, and checks what it wrote."""

    def __init__(self, jet: JetInstance, table: Table, stages: int) -> None:
        self._jet = jet
        self._table = table
        files = table.files
        grouping = processors.group_by("k").agg(total=sum_("v"), n=count())
        dag = DAG()
        source = dag.new_vertex(
            "source", processors.generate(lambda index, total: read(files, BATCH_ROWS, index, total))
        )
        sink = dag.new_vertex("sink", processors.write_list("results"))
        if stages == 1:
            group = dag.new_vertex("group", grouping)
            dag.edge(between(source, group).partitioned(grouping.key))
        else:
            partial, group = dag.new_vertex("partial", grouping.accumulate), dag.new_vertex("group", grouping.combine)
            dag.edge(between(source, partial)).edge(between(partial, group).partitioned(grouping.key))
        self._dag = dag.edge(between(group, sink))

    def run(self) -> float:
        """Rows per second."""
        results = self._jet.get_list("results")
        results.clear()
        seconds = elapsed(lambda: self._jet.new_job(self._dag).run(600))
        found = Batch.concat(results)
        self._table.check(len(np.unique(found["k"])), int(found["n"].sum()), float(found["total"].sum()))
        if found.num_rows != self._table.groups:
            raise AssertionError("a key is there twice")
        return self._table.rows / seconds


def polars(table: Table, workers: int) -> Contender:
    """polars' group_by on a DataFrame in memory."""
    os.environ["POLARS_MAX_THREADS"] = str(workers)  # read when it is imported
    import polars as pl

    if pl.thread_pool_size() != workers:
        raise PeerSkipped(f"polars has {pl.thread_pool_size()} threads, not {workers}")
    frame = pl.DataFrame({name: np.array(column) for name, column in table.columns().items()})

    def run() -> float:
        found: list[Any] = []
        plan = frame.lazy().group_by("k").agg(total=pl.col("v").sum(), n=pl.len())
        seconds = elapsed(lambda: found.append(plan.collect()))
        result = found[0]
        table.check(result.height, result["n"].sum(), result["total"].sum())
        return table.rows / seconds

    return run


def duckdb(table: Table, workers: int) -> Contender:
    """duckdb's GROUP BY on a table in memory, into another."""
    import duckdb

    connection = duckdb.connect()
    connection.execute(f"SET threads = {workers}")
    arrays = {name: np.array(column) for name, column in table.columns().items()}
    connection.register("arrays", arrays)
    connection.execute("CREATE TABLE rows AS SELECT * FROM arrays")
    query = "CREATE OR REPLACE TABLE results AS SELECT k, sum(v) AS total, count(*) AS n FROM rows GROUP BY k"

    def run() -> float:
        seconds = elapsed(lambda: connection.execute(query))
        found = connection.execute("SELECT count(*), sum(n), sum(total) FROM results").fetchone()
        assert found is not None
        table.check(found[0], int(found[1]), float(found[2]))
        return table.rows / seconds

    return run


def spark(session: Any, table: Table, keys: int) -> Contender:
    """Spark's groupBy on a cached DataFrame of equally distributed rows; the results are computed and dropped."""
    from pyspark.sql import functions

    columns = f"CAST(rand(1) * {keys} AS LONG) AS k", "floor(rand(2) * 1000) / 4 AS v"
    frame = session.range(table.rows).selectExpr(*columns).cache()
    grouped = frame.groupBy("k").agg(functions.sum("v").alias("total"), functions.count("*").alias("n"))
    found = grouped.agg(functions.count("*"), functions.sum("n")).first()  # fills the cache
    if found[1] != table.rows or abs(found[0] / table.groups - 1) > 0.01:
        raise AssertionError(f"Spark found {found}, expected {table.groups, table.rows}")

    def run() -> float:
        return table.rows / elapsed(lambda: grouped.write.format("noop").mode("overwrite").save())

    return run


def measure_columns(name: str, options: Options, jet: JetInstance, session: Any, folder: Path) -> Any:
    """Measure one of the benches of columns."""
    table = Table(folder, BENCHES[name], QUICK_ROWS if options.quick else ROWS)
    best, other = (2, 1) if name == "groupby_all_1e3" else (1, 2)
    with Bench(name, "rows/s") as bench:
        bench.ours(Ours(jet, table, best).run)
        for peer, make in (("polars", polars), ("duckdb", duckdb)):
            if options.wants_peer(peer):
                try:
                    bench.peer(peer, make(table, options.workers))
                except (ImportError, PeerSkipped) as reason:
                    bench.skip(peer, str(reason))
        if isinstance(session, PeerSkipped):
            bench.skip("pyspark_dataframe", str(session))
        else:
            bench.peer("pyspark_dataframe", spark(session, table, BENCHES[name]))
        second = Ours(jet, table, other)
        bench.facts[f"rows/s in {'one stage' if other == 1 else 'two stages'}"] = statistics.median(
            second.run() for _ in range(options.rounds)
        )
        return bench.measure(rounds=options.rounds)


# -- items -------------------------------------------------------------------------------------------------------------


def accumulate(state: list[Any], item: tuple[int, float]) -> None:
    value = item[1]
    state[0] += value
    state[1] += 1
    if value < state[2]:
        state[2] = value
    if value > state[3]:
        state[3] = value


def combine(state: list[Any], other: list[Any]) -> None:
    state[0] += other[0]
    state[1] += other[1]
    state[2] = min(state[2], other[2])
    state[3] = max(state[3], other[3])


def mixed_dag(items: int, keys: int, columnar: bool) -> DAG:
    """A Python function makes an item of each number; they are grouped in columns or in Python."""
    dag = DAG()
    source = dag.new_vertex("source", processors.generate(lambda index, total: range(index, items, total)))
    pairs = dag.new_vertex("pairs", processors.map(lambda number: (number * 7919 % keys, number * 0.25)))
    if columnar:
        grouping = processors.group_by("k", item_columns=["k", "v"]).agg(
            total=sum_("v"), n=count(), least=min_("v"), most=max_("v")
        )
        partial, group = dag.new_vertex("partial", grouping.accumulate), dag.new_vertex("group", grouping.combine)
        routed = between(partial, group).partitioned(grouping.key)
    else:
        op: AggregateOperation[Any, Any, Any] = AggregateOperation(
            lambda: [0.0, 0, float("inf"), float("-inf")], accumulate, combine
        )
        key = operator.itemgetter(0)
        partial = dag.new_vertex("partial", processors.accumulate_by_key(key, op))
        group = dag.new_vertex("group", processors.combine_by_key(op))
        routed = between(partial, group).partitioned(key)
    sink = dag.new_vertex("sink", processors.write_list("mixed"))
    dag.edge(between(source, pairs).isolated()).edge(between(pairs, partial).isolated())
    return dag.edge(routed).edge(between(group, sink))


def measure_mixed(options: Options, jet: JetInstance) -> Any:
    """Measure items that feed columns."""
    items, keys = QUICK_ITEMS if options.quick else ITEMS, BENCHES["mixed_groupby"]
    dags = {columnar: mixed_dag(items, keys, columnar) for columnar in (True, False)}

    def rate(columnar: bool) -> float:
        results = jet.get_list("mixed")
        results.clear()
        seconds = elapsed(lambda: jet.new_job(dags[columnar]).run(600))
        found = list(results)
        if columnar:
            rows = [row for batch in found for row in batch.tuples()]
        else:
            rows = [(key, *state) for key, state in found]
        summed = len(rows), sum(row[1] for row in rows), sum(row[2] for row in rows)
        if summed != (keys, items * (items - 1) * 0.125, items):
            raise AssertionError(f"wrong results: {summed}")
        return items / seconds

    with Bench("mixed_groupby", "items/s") as bench:
        bench.ours(lambda: rate(True))
        bench.peer("all_python", lambda: rate(False))
        return bench.measure(rounds=options.rounds)


def main() -> int:
    options = parse_options(__doc__, list(BENCHES))
    report = Report(options)
    here = str(Path(__file__).resolve().parent)
    os.environ["PYTHONPATH"] = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])  # for workers
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder,
        shmjet.new_instance(JetConfig(cores=options.workers)) as jet,
    ):
        if options.wants("mixed_groupby"):
            report.add(measure_mixed(options, jet))
        names = [name for name in BENCHES if name != "mixed_groupby" and options.wants(name)]
        if names:
            try:
                with local_session(options, "pyspark_dataframe") as session:
                    for name in names:
                        report.add(measure_columns(name, options, jet, session, Path(folder)))
            except PeerSkipped as reason:
                for name in names:
                    report.add(measure_columns(name, options, jet, reason, Path(folder)))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
