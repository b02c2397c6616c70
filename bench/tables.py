"""Pipelines of stages of columns on all cores, from arrays in warm memory, compared with polars, duckdb and numpy.

* `tables_group_1e3`, `tables_group_1e6`: sum and count by an int64 key with so many values.
* `tables_join`: rows of an int64 key and a float64 against as many others, every key once on each side.
* `tables_expressions`: a filter and three expressions over two columns of numbers, summed.
* `tables_contains`: how many of ten million texts (some 30 bytes) have one of three words in them.

Ours reads files of the page cache that workers have mapped, submits the job for every run and reduces where the rows
are; polars has a DataFrame, duckdb a table in memory, both with as many threads; numpy has arrays and one thread.
All check the result. Targets: 0.9 and 1.2; 0.9 and 1.5; 0.8 and 3; 1.

`groupby_all` and `sortjoin` have the same of DAGs, and of kernels alone.
"""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from _harness import Bench, Options, PeerSkipped, Report, elapsed, parse_options
from _tables import columns_of, read_columns, text_files

import shmjet
from shmjet import JetConfig, JetInstance, Pipeline, column, processors, sinks
from shmjet.columns import Batch, count, sum_
from shmjet.pipeline import SourceDef

BENCHES = {
    "tables_group_1e3": 40_000_000,
    "tables_group_1e6": 40_000_000,
    "tables_join": 5_000_000,
    "tables_expressions": 100_000_000,
    "tables_contains": 10_000_000,
}
BATCH_ROWS = 65_536
PATTERN = "special|requests|packages"
WORDS = ("carefully", "final", "deposits", "special", "ironic", "requests", "express", "packages", "bold", "accounts")

Files = Mapping[str, str]
Answer = tuple[float, ...]


class Task:
    """One bench: tables of columns in files, the same question in each program, and its answer.

    Args:
        tables: name → files by column.
        stages: the question, of stages by name; gives a stage with one row.
        polars, duckdb, numpy: the same question; None: the program does not take part.
    """

    def __init__(
        self,
        tables: Mapping[str, Files],
        stages: Callable[[Mapping[str, Any]], Any],
        polars: Callable[[Mapping[str, Any]], Any],
        duckdb: str,
        numpy: Callable[[Mapping[str, Any]], Answer] | None = None,
    ) -> None:
        self.tables, self.stages, self.polars, self.duckdb, self.numpy = tables, stages, polars, duckdb, numpy


# -- the questions -----------------------------------------------------------------------------------------------------


def grouping(folder: Path, keys: int, rows: int) -> Task:
    """Sum and count by key, then how many groups there are and what they hold."""
    random = np.random.default_rng(20_26)
    table = saved(folder, f"g{keys}", k=random.integers(0, keys, rows), v=random.integers(0, 1000, rows) / 4)

    def stages(tables: Mapping[str, Any]) -> Any:
        groups = tables["t"].group_by("k").agg(total=sum_("v"), n=count())
        return groups.group_by().agg(groups=count(), rows=sum_("n"), total=sum_("total"))

    def polars(frames: Mapping[str, Any]) -> Any:
        import polars as pl

        groups = frames["t"].group_by("k").agg(total=pl.col("v").sum(), n=pl.len())
        return groups.select(pl.len(), pl.col("n").sum(), pl.col("total").sum())

    query = "SELECT count(*), sum(n), sum(total) FROM (SELECT k, sum(v) AS total, count(*) AS n FROM t GROUP BY k)"
    return Task({"t": table}, stages, polars, query)


def joining(folder: Path, rows: int) -> Task:
    """All rows of one table with those of another, then the sum of a product."""
    random = np.random.default_rng(7)
    left = saved(folder, "left", k=random.permutation(rows), v=random.integers(0, 1000, rows) / 4)
    right = saved(folder, "right", k=random.permutation(rows), w=random.integers(0, 16, rows) / 4)

    def stages(tables: Mapping[str, Any]) -> Any:
        joined = tables["left"].join(tables["right"], on="k")
        return joined.group_by().agg(rows=count(), total=sum_(column("v") * column("w")))

    def polars(frames: Mapping[str, Any]) -> Any:
        import polars as pl

        joined = frames["left"].join(frames["right"], on="k")
        return joined.select(pl.len(), (pl.col("v") * pl.col("w")).sum())

    query = 'SELECT count(*), sum(v * w) FROM "left" JOIN "right" USING (k)'
    return Task({"left": left, "right": right}, stages, polars, query)


def computing(folder: Path, rows: int) -> Task:
    """A filter and three expressions."""
    random = np.random.default_rng(3)
    table = saved(folder, "numbers", a=random.integers(0, 1000, rows), b=random.integers(0, 1000, rows) / 4)

    def stages(tables: Mapping[str, Any]) -> Any:
        a, b = column("a"), column("b")
        computed = tables["t"].filter((a > 100) & (b < 200.0)).select(x=a * 2 + 1, y=b * 0.5 - a, z=(a - b) * b)
        return computed.group_by().agg(x=sum_("x"), y=sum_("y"), z=sum_("z"))

    def polars(frames: Mapping[str, Any]) -> Any:
        import polars as pl

        a, b = pl.col("a"), pl.col("b")
        computed = frames["t"].filter((a > 100) & (b < 200.0)).select(x=a * 2 + 1, y=b * 0.5 - a, z=(a - b) * b)
        return computed.select(pl.col("x").sum(), pl.col("y").sum(), pl.col("z").sum())

    def numpy(arrays: Mapping[str, Any]) -> Answer:
        a, b = arrays["t"]["a"], arrays["t"]["b"]
        kept = (a > 100) & (b < 200.0)
        a, b = a[kept], b[kept]
        return (a * 2 + 1).sum(), (b * 0.5 - a).sum(), ((a - b) * b).sum()

    query = "SELECT sum(a * 2 + 1), sum(b * 0.5::DOUBLE - a), sum((a - b) * b) FROM t WHERE a > 100 AND b < 200.0"
    return Task({"t": table}, stages, polars, query, numpy)


def containing(folder: Path, rows: int) -> Task:
    """How many texts match a regular expression, and how many have a word in them."""
    random = np.random.default_rng(5)
    kinds = [" ".join(random.choice(WORDS, 4)) for _ in range(5000)]
    table = text_files(folder, "texts", "s", [kinds[i] for i in random.integers(0, len(kinds), rows)])

    def stages(tables: Mapping[str, Any]) -> Any:
        words, word = column("s").str.contains(PATTERN), column("s").str.contains("bold", literal=True)
        return tables["t"].group_by().agg(words=sum_(words.cast("int64")), word=sum_(word.cast("int64")))

    def polars(frames: Mapping[str, Any]) -> Any:
        import polars as pl

        s = pl.col("s").str
        return frames["t"].select(s.contains(PATTERN).sum().alias("a"), s.contains("bold", literal=True).sum())

    query = f"SELECT count(*) FILTER (regexp_matches(s, '{PATTERN}')), count(*) FILTER (contains(s, 'bold')) FROM t"
    return Task({"t": table}, stages, polars, query)


def saved(folder: Path, name: str, **columns: Any) -> Files:
    """Save arrays; return their files by column."""
    files = {}
    for column_name, values in columns.items():
        files[column_name] = str(folder / f"{name}-{column_name}.npy")
        np.save(files[column_name], values)
    return files


# -- who answers them --------------------------------------------------------------------------------------------------


def rows_of(files: tuple[tuple[str, str], ...], index: int, total: int) -> Iterator[Batch]:
    """Give a processor's share of a table."""
    return read_columns(files, BATCH_ROWS, index, total)


def with_stages(jet: JetInstance, task: Task) -> Answer:
    """Run the pipeline."""
    pipeline = Pipeline()
    stages = {}
    for name, files in task.tables.items():
        source: SourceDef[Batch] = SourceDef(
            name, processors.generate(functools.partial(rows_of, tuple(files.items()))), columnar=True
        )
        stages[name] = pipeline.read_from(source)
    with sinks.collect() as results:
        task.stages(stages).write_to(results)
        jet.new_job(pipeline).run(600)
        (row,) = Batch.concat(list(results)).tuples()
    return tuple(map(float, row))


def with_polars(task: Task, workers: int) -> Callable[[], Answer]:
    """Return what asks polars."""
    os.environ["POLARS_MAX_THREADS"] = str(workers)  # read when it is imported
    import polars as pl

    if pl.thread_pool_size() != workers:
        raise PeerSkipped(f"polars has {pl.thread_pool_size()} threads, not {workers}")
    frames = {
        name: pl.DataFrame({key: _plain(values) for key, values in columns_of(tuple(files.items())).items()}).lazy()
        for name, files in task.tables.items()
    }
    return lambda: tuple(map(float, task.polars(frames).collect().row(0)))


def with_duckdb(task: Task, workers: int) -> Callable[[], Answer]:
    """Return what asks duckdb."""
    import duckdb

    connection = duckdb.connect()
    connection.execute(f"SET threads = {workers}")
    for name, files in task.tables.items():
        found = {key: _plain(values) for key, values in columns_of(tuple(files.items())).items()}
        arrays = {
            key: np.array(values, object) if isinstance(values, list) else values for key, values in found.items()
        }
        connection.register("arrays", arrays)
        connection.execute(f'CREATE TABLE "{name}" AS SELECT * FROM arrays')
        connection.unregister("arrays")
    return lambda: tuple(map(float, connection.execute(task.duckdb).fetchone() or ()))


def with_numpy(task: Task) -> Callable[[], Answer]:
    """Return what asks numpy."""
    arrays = {name: columns_of(tuple(files.items())) for name, files in task.tables.items()}
    assert task.numpy is not None
    ask = task.numpy
    return lambda: tuple(map(float, ask(arrays)))


def _plain(values: Any) -> Any:
    """Return a column for a peer, in memory of its own."""
    return np.array(values) if isinstance(values, np.ndarray) else values.tolist()


def measure(options: Options, report: Report, jet: JetInstance, name: str, folder: Path) -> None:
    """One bench."""
    rows = BENCHES[name] // (5 if options.quick else 1)
    makers: dict[str, Callable[[], Task]] = {
        "tables_group_1e3": lambda: grouping(folder, 1_000, rows),
        "tables_group_1e6": lambda: grouping(folder, 1_000_000, rows),
        "tables_join": lambda: joining(folder, rows),
        "tables_expressions": lambda: computing(folder, rows),
        "tables_contains": lambda: containing(folder, rows),
    }
    task = makers[name]()
    answers: dict[str, Answer] = {}

    def timed(who: str, ask: Callable[[], Answer]) -> float:
        found: list[Answer] = []
        seconds = elapsed(lambda: found.append(ask()))
        answers[who] = found[0]
        expected = next(iter(answers.values()))
        if not np.allclose(found[0], expected, rtol=1e-12):
            raise AssertionError(f"{name}: {who} answers {found[0]}, others {expected}")
        return rows / seconds

    peers: dict[str, Callable[[], Callable[[], Answer]]] = {
        "polars": lambda: with_polars(task, options.workers),
        "duckdb": lambda: with_duckdb(task, options.workers),
    }
    if task.numpy is not None:
        peers["numpy"] = lambda: with_numpy(task)
    with Bench(name, "rows/s") as bench:
        bench.facts = {"rows": rows, "workers": options.workers}
        bench.ours(lambda: timed("shmjet", lambda: with_stages(jet, task)))
        for who, make in peers.items():
            if options.wants_peer(who):
                try:
                    ask = make()
                except (ImportError, PeerSkipped) as reason:
                    bench.skip(who, str(reason))
                    continue
                bench.peer(who, lambda who=who, ask=ask: timed(who, ask))  # type: ignore[misc]
        report.add(bench.measure(rounds=options.rounds))


def main() -> int:
    """Run the benches asked for."""
    options = parse_options(__doc__, list(BENCHES))
    report = Report(options)
    for name in filter(options.wants, BENCHES):
        # The workers keep files mapped, so each bench has an instance of its own.
        with tempfile.TemporaryDirectory() as folder, shmjet.new_instance(JetConfig(cores=options.workers)) as jet:
            measure(options, report, jet, name, Path(folder))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
