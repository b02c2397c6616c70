"""From the engine back into Spark, and Spark at both ends of Python-heavy work.

`spark_back_numbers` (int64, float64) and `spark_back_mixed` (and a short string): batches in a list of a running
instance become a DataFrame of which Spark aggregates every column. Peers: `createDataFrame`, of tuples, schema not
verified; `createDataFrame_rdd`, where Spark's Python workers make the tuples of the batches. The unit is rows a second.

`spark_middle`: rows that Spark has go through three lambdas and a keyed aggregation, and the result is a DataFrame
again. shmjet feeds an instance and writes back; peers do all of it in Spark: `rdd`, with map, filter, map and
reduceByKey; `python_udf`, with three UDFs and a grouping in SQL. Rows a second.

`spark_text_wordcount`: lines that `spark.read.text` reads are counted in the engine, as columns. Peers: `rdd`, by hand;
`dataframe`, `explode(split(lower(value)))` and a count. Words a second.

Same session, same cores, warm, in turn; all results are checked. The slow ways get fewer rows: their rate does not
depend on how many there are.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _harness import Bench, Contender, Options, elapsed, measure_each
from _spark import local_session
from _words import text_file

BATCH_ROWS = 32768
FEWER = 8
"""So many times fewer rows for what moves rows one by one."""
GROUPS = 1000
DISTINCT = 50_000


def instance(bench: Bench, options: Options) -> Any:
    """A running instance."""
    import shmjet

    return bench.resources.enter_context(shmjet.new_instance(shmjet.JetConfig(cores=options.workers)))


def rate_of(rows: int, run: Callable[[], Any], expected: Any) -> Contender:
    """Return what measures rows a second of something whose result is known."""

    def measure() -> float:
        found: list[Any] = []
        seconds = elapsed(lambda: found.append(run()))
        if found[0] != expected:
            raise AssertionError(f"expected {expected!r:.200}, got {found[0]!r:.200}")
        return rows / seconds

    return measure


# -- back --------------------------------------------------------------------------------------------------------------


def batches(rows: int, *, text: bool) -> list[Any]:
    """The rows as batches."""
    from shmjet import Batch, Text

    words = Text.of([f"name-{n}" for n in range(1000)])
    made = []
    for start in range(0, rows, BATCH_ROWS):
        numbers = np.arange(start, min(rows, start + BATCH_ROWS))
        columns: dict[str, Any] = {"a": numbers, "b": numbers * 0.5}
        if text:
            columns["s"] = words.take(numbers % 1000)
        made.append(Batch(columns))
    return made


def totals(frame: Any) -> tuple[Any, ...]:
    """Aggregate every column, so that all have to be read."""
    from pyspark.sql import functions as f

    sums = [f.sum("a"), f.sum("b"), *([f.sum(f.length("s"))] if "s" in frame.columns else [])]
    return tuple(frame.agg(*sums).collect()[0])


def back(bench: Bench, options: Options, *, text: bool) -> None:
    """Batches into a DataFrame."""
    import shmjet.spark

    session = bench.resources.enter_context(local_session(options, "createDataFrame", "createDataFrame_rdd"))
    jet = instance(bench, options)
    rows = (500_000 if text else 2_000_000) if options.quick else (4_000_000 if text else 12_000_000)
    schema = "a bigint, b double" + (", s string" if text else "")
    made, few = batches(rows, text=text), batches(rows // FEWER, text=text)
    jet.get_list("all").extend(made)

    def sums(count: int) -> tuple[Any, ...]:
        total = count * (count - 1) // 2
        lengths = sum(len(f"name-{n % 1000}") for n in range(count)) if text else 0
        return (total, total / 2, lengths)[: 3 if text else 2]

    def ours() -> tuple[Any, ...]:
        try:
            return totals(shmjet.spark.to_dataframe(session, jet.get_list("all"), schema))
        finally:
            shmjet.spark.free_dataframes()

    def tuples() -> tuple[Any, ...]:
        listed = [row for batch in few for row in batch.tuples()]
        return totals(session.createDataFrame(listed, schema, verifySchema=False))

    def tuples_in_workers() -> tuple[Any, ...]:
        rdd = session.sparkContext.parallelize(few, len(few)).flatMap(lambda batch: batch.tuples())
        return totals(session.createDataFrame(rdd, schema, verifySchema=False))

    bench.ours(rate_of(rows, ours, sums(rows)))
    bench.peer("createDataFrame", rate_of(rows // FEWER, tuples, sums(rows // FEWER)))
    bench.peer("createDataFrame_rdd", rate_of(rows // FEWER, tuples_in_workers, sums(rows // FEWER)))


def back_numbers(bench: Bench, options: Options) -> None:
    """Two columns of numbers."""
    back(bench, options, text=False)


def back_mixed(bench: Bench, options: Options) -> None:
    """And one of strings."""
    back(bench, options, text=True)


# -- the middle --------------------------------------------------------------------------------------------------------


def cleaned(x: int) -> int:
    """The first function."""
    return (x * 31 + 7) % 1_000_003


def wanted(x: int) -> bool:
    """The second."""
    return x % 3 != 0


def scored(x: int) -> float:
    """The third."""
    return (x % 100) / 4


def middle(bench: Bench, options: Options) -> None:
    """Three functions and a keyed aggregation, Spark at both ends."""
    import shmjet.spark
    from shmjet import Pipeline, aggregate_ops, sinks

    session = bench.resources.enter_context(local_session(options, "rdd", "python_udf"))
    jet = instance(bench, options)
    rows = 500_000 if options.quick else 5_000_000
    few = rows // 4

    def frame(count: int) -> Any:
        return session.range(0, count, 1, 2 * options.workers).selectExpr("id", f"id % {GROUPS} as k")

    def expected(count: int) -> tuple[int, float]:
        x = (np.arange(count) * 31 + 7) % 1_000_003
        kept = x[x % 3 != 0]
        return min(GROUPS, count), float(((kept % 100) / 4).sum())

    def summed(result: Any) -> tuple[int, float]:
        row = result.selectExpr("count(*)", "sum(total)").collect()[0]
        return int(row[0]), float(row[1])

    def ours() -> tuple[int, float]:
        p = Pipeline()
        rows_in = p.read_from(shmjet.spark.source(frame(rows), deterministic=True))
        (
            rows_in.map(lambda row: (row["k"], cleaned(row["id"])))
            .filter(lambda pair: wanted(pair[1]))
            .map(lambda pair: (pair[0], scored(pair[1])))
            .grouping_key(lambda pair: pair[0])
            .aggregate(aggregate_ops.summing(lambda pair: pair[1]))
            .write_to(sinks.list("totals"))
        )
        found = jet.get_list("totals")
        found.clear()
        jet.new_job(p).run()
        try:
            return summed(shmjet.spark.to_dataframe(session, found, "k bigint, total double"))
        finally:
            shmjet.spark.free_dataframes()

    def rdd() -> tuple[int, float]:
        pairs = frame(few).rdd.map(lambda row: (row.k, cleaned(row.id))).filter(lambda pair: wanted(pair[1]))
        added = pairs.map(lambda pair: (pair[0], scored(pair[1]))).reduceByKey(lambda a, b: a + b)
        return summed(session.createDataFrame(added, "k bigint, total double", verifySchema=False))

    def udfs() -> tuple[int, float]:
        from pyspark.sql import functions as f

        first, second, third = f.udf(cleaned, "bigint"), f.udf(wanted, "boolean"), f.udf(scored, "double")
        scores = frame(few).select("k", first("id").alias("x")).where(second("x")).select("k", third("x").alias("s"))
        return summed(scores.groupBy("k").agg(f.sum("s").alias("total")))

    bench.ours(rate_of(rows, ours, expected(rows)))
    bench.peer("rdd", rate_of(few, rdd, expected(few)))
    bench.peer("python_udf", rate_of(few, udfs, expected(few)))


# -- words -------------------------------------------------------------------------------------------------------------


def text_wordcount(bench: Bench, options: Options) -> None:
    """Lines that Spark reads, counted in the engine."""
    import shmjet.spark
    from shmjet import Pipeline, sinks
    from shmjet.columns import sum_
    from shmjet.processors.columns.word_count import count_words_of

    session = bench.resources.enter_context(local_session(options, "rdd", "dataframe"))
    jet = instance(bench, options)
    path: Path = text_file(DISTINCT, 20 if options.quick else 100)
    expected = dict(Counter(path.read_text().lower().split()))
    words = sum(expected.values())

    def ours() -> dict[str, int]:
        p = Pipeline()
        lines = p.read_from(shmjet.spark.source(session.read.text(str(path)), deterministic=True))
        with sinks.collect() as results:
            counts = lines.custom_transform("words", count_words_of("value"))
            counts.group_by("word").agg(n=sum_("count")).write_to(results)
            jet.new_job(p).run()
            return {word: n for batch in results for word, n in batch.tuples()}

    def rdd() -> dict[str, int]:
        split = session.sparkContext.textFile(str(path), 2 * options.workers).flatMap(lambda line: line.lower().split())
        return dict(split.map(lambda word: (word, 1)).reduceByKey(lambda a, b: a + b).collect())

    def dataframe() -> dict[str, int]:
        from pyspark.sql import functions as f

        split = session.read.text(str(path)).select(f.explode(f.split(f.lower("value"), r"\s+")).alias("word"))
        return {row.word: row["count"] for row in split.where("word <> ''").groupBy("word").count().collect()}

    bench.ours(rate_of(words, ours, expected))
    bench.peer("rdd", rate_of(words, rdd, expected))
    bench.peer("dataframe", rate_of(words, dataframe, expected))


BENCHES: dict[str, tuple[str, Callable[[Bench, Options], None]]] = {
    "spark_back_numbers": ("rows/s", back_numbers),
    "spark_back_mixed": ("rows/s", back_mixed),
    "spark_middle": ("rows/s", middle),
    "spark_text_wordcount": ("words/s", text_wordcount),
}


if __name__ == "__main__":
    sys.exit(measure_each(__doc__, BENCHES))
