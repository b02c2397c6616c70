"""TPC-H's queries 1, 3 and 6 on columns, from CSV files to the answer on all cores, compared with duckdb and polars.

The tables are those of `_tpch.py`; `bench/data` keeps them. Each program
reads the same files, warm, and uses as many threads or workers as `--workers` says. Each answer of shmjet is held
against duckdb's in the same run. The queries are jobs of the Core API: what a planner would make of the SQL in `SQL`.

Scale 0.1 has 600,572 line items; `--quick` takes it too.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _harness import Bench, Options, PeerSkipped, Report, elapsed, parse_options
from _tpch import SCHEMAS, generate

import shmjet
from shmjet import DAG, JetConfig, JetInstance, JobConfig, between, from_, processors
from shmjet.columns import Batch, column, count, mean, sum_

BENCHES = ["tpch_q1", "tpch_q3", "tpch_q6"]
DATA = Path(__file__).resolve().parent / "data"

SQL = {
    "tpch_q1": """
        SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty, sum(l_extendedprice) AS sum_base_price,
               sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price,
               sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge,
               avg(l_quantity) AS avg_qty, avg(l_extendedprice) AS avg_price, avg(l_discount) AS avg_disc,
               count(*) AS count_order
        FROM lineitem WHERE l_shipdate <= DATE '1998-09-02'
        GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus""",
    "tpch_q3": """
        SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority
        FROM customer, orders, lineitem
        WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
          AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
        GROUP BY l_orderkey, o_orderdate, o_shippriority ORDER BY revenue DESC, o_orderdate, l_orderkey LIMIT 10""",
    "tpch_q6": """
        SELECT sum(l_extendedprice * l_discount) AS revenue FROM lineitem
        WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'
          AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24""",
}


# -- the queries -------------------------------------------------------------------------------------------------------


def table(dag: DAG, folder: Path, name: str, wanted: Sequence[str], fn: Callable[[Batch], Any]) -> Any:
    """Add a vertex that reads some columns of a table, and a vertex that does something with each batch."""
    path = folder / f"{name}.csv"
    reading = processors.read_files(path, as_=Batch, format="csv", schema=SCHEMAS[name], columns=wanted)
    source, mapped = dag.new_vertex(name, reading), dag.new_vertex(f"{name}-kept", processors.map_batches(fn))
    dag.edge(between(source, mapped))
    return mapped


def grouped(dag: DAG, source: Any, grouping: Any) -> Any:
    """Group in two stages: where the rows are, then by key."""
    first, second = dag.new_vertex("group", grouping.accumulate), dag.new_vertex("combine", grouping.combine)
    dag.edge(between(source, first)).edge(between(first, second).partitioned(grouping.key))
    return second


def written(dag: DAG, source: Any, answer: str, *sorting: Any) -> DAG:
    """Sort, and write the answer into a list."""
    for number, supplier in enumerate(sorting):
        last = number == len(sorting) - 1
        vertex = dag.new_unique_vertex("sort", supplier, local_parallelism=1 if last else -1)
        dag.edge(between(source, vertex))
        source = vertex
    return dag.edge(between(source, dag.new_vertex("write", processors.write_list(answer), local_parallelism=1)))


def q1(folder: Path, answer: str) -> DAG:
    """Pricing summary: a filter, and eight aggregates of four groups."""
    last_day = np.datetime64("1998-09-02")

    def priced(lines: Batch) -> Batch:
        kept = lines.filter(lines["l_shipdate"] <= last_day)
        disc_price = kept["l_extendedprice"] * (1 - kept["l_discount"])
        return kept.with_columns({"disc_price": disc_price, "charge": disc_price * (1 + kept["l_tax"])})

    wanted = ["l_returnflag", "l_linestatus", "l_quantity", "l_extendedprice", "l_discount", "l_tax", "l_shipdate"]
    dag = DAG()
    lines = table(dag, folder, "lineitem", wanted, priced)
    grouping = processors.group_by("l_returnflag", "l_linestatus").agg(
        sum_qty=sum_("l_quantity"),
        sum_base_price=sum_("l_extendedprice"),
        sum_disc_price=sum_("disc_price"),
        sum_charge=sum_("charge"),
        avg_qty=mean("l_quantity"),
        avg_price=mean("l_extendedprice"),
        avg_disc=mean("l_discount"),
        count_order=count(),
    )
    return written(
        dag, grouped(dag, lines, grouping), answer, processors.sort_batches(["l_returnflag", "l_linestatus"])
    )


def q3(folder: Path, answer: str) -> DAG:
    """Shipping priority: two joins, a large group-by, and the first ten by revenue."""
    day = np.datetime64("1995-03-15")

    def of_segment(customers: Batch) -> Batch:
        return customers.filter(customers["c_mktsegment"] == "BUILDING").select("c_custkey")

    def ordered_before(orders: Batch) -> Batch:
        return orders.filter(orders["o_orderdate"] < day)

    def shipped_after(lines: Batch) -> Batch:
        kept = lines.filter(lines["l_shipdate"] > day)
        return Batch({"l_orderkey": kept["l_orderkey"], "revenue": kept["l_extendedprice"] * (1 - kept["l_discount"])})

    dag = DAG()
    customers = table(dag, folder, "customer", ["c_custkey", "c_mktsegment"], of_segment)
    wanted = ["o_orderkey", "o_custkey", "o_orderdate", "o_shippriority"]
    orders = table(dag, folder, "orders", wanted, ordered_before)
    lines = table(dag, folder, "lineitem", ["l_orderkey", "l_extendedprice", "l_discount", "l_shipdate"], shipped_after)
    theirs = dag.new_vertex("of-customers", processors.hash_join_batches({"o_custkey": "c_custkey"}, how="semi"))
    joined = dag.new_vertex("of-orders", processors.hash_join_batches({"l_orderkey": "o_orderkey"}))
    # Few customers are kept, and sent to all; orders and lines meet by their key.
    dag.edge(from_(orders).to(theirs, 0))
    dag.edge(from_(customers).to(theirs, 1).broadcast().priority(-1))
    dag.edge(from_(lines).to(joined, 0).partitioned(column("l_orderkey")))
    dag.edge(from_(theirs).to(joined, 1).partitioned(column("o_orderkey")).priority(-1))
    # All lines of an order are in one place already, so that one stage of grouping is enough.
    grouping = processors.group_by("l_orderkey", "o_orderdate", "o_shippriority").agg(revenue=sum_("revenue"))
    group = dag.new_vertex("group", grouping)
    dag.edge(between(joined, group).isolated())
    first = processors.sort_batches(["revenue", "o_orderdate", "l_orderkey"], descending=[True, False, False], limit=10)
    return written(dag, group, answer, first, first)


def q6(folder: Path, answer: str) -> DAG:
    """Forecasting revenue change: a filter, and one sum."""
    since, until = np.datetime64("1994-01-01"), np.datetime64("1995-01-01")

    def revenue(lines: Batch) -> Batch:
        day, discount = lines["l_shipdate"], lines["l_discount"]
        kept = (day >= since) & (day < until) & (discount >= 0.05) & (discount <= 0.07) & (lines["l_quantity"] < 24)
        return Batch(
            {"all": np.zeros(1, np.int8), "revenue": [float((lines["l_extendedprice"] * discount)[kept].sum())]}
        )

    dag = DAG()
    lines = table(dag, folder, "lineitem", ["l_quantity", "l_extendedprice", "l_discount", "l_shipdate"], revenue)
    grouping = processors.group_by("all").agg(revenue=sum_("revenue"))
    return written(dag, grouped(dag, lines, grouping), answer, processors.sort_batches("all"))


QUERIES = {"tpch_q1": q1, "tpch_q3": q3, "tpch_q6": q6}


def answer_of(jet: JetInstance, name: str, folder: Path) -> list[tuple[Any, ...]]:
    """Run a query as a job; return its rows, in the order of the columns of the SQL."""
    results = jet.get_list(name)
    results.clear()
    config = JobConfig(name=name)
    if __name__ != "__main__":
        config.add_module(sys.modules[__name__])
    jet.new_job(QUERIES[name](folder, name), config).run(120)
    rows = Batch.concat(list(results))
    if name == "tpch_q3":
        rows = rows.select("l_orderkey", "revenue", "o_orderdate", "o_shippriority")
    elif name == "tpch_q6":
        rows = rows.select("revenue")
    return list(rows.tuples())


# -- peers -------------------------------------------------------------------------------------------------------------


def with_duckdb(folder: Path, threads: int) -> Callable[[str], list[tuple[Any, ...]]]:
    """Return what answers a query with duckdb, which reads the files each time."""
    import duckdb

    connection = duckdb.connect()
    connection.execute(f"SET threads={threads}")
    for name, schema in SCHEMAS.items():
        kinds = {"int64": "BIGINT", "float64": "DOUBLE", "text": "VARCHAR", "datetime64[D]": "DATE"}
        types = ", ".join(f"'{column}': '{kinds[kind]}'" for column, kind in schema.items())
        path = folder / f"{name}.csv"
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_csv('{path}', header=true, columns={{{types}}})")
    return lambda name: [tuple(row) for row in connection.execute(SQL[name]).fetchall()]


def with_polars(folder: Path) -> Callable[[str], Any]:
    """Return what answers a query with polars' SQL over lazy scans; the number of threads is set before the import."""
    import polars

    kinds = {"int64": polars.Int64, "float64": polars.Float64, "text": polars.String, "datetime64[D]": polars.Date}
    frames = {
        name: polars.scan_csv(folder / f"{name}.csv", schema={key: kinds[kind] for key, kind in schema.items()})
        for name, schema in SCHEMAS.items()
    }
    return lambda name: polars.SQLContext(frames).execute(SQL[name]).collect()


def same(mine: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]]) -> bool:
    """Whether two answers are equal, floats to nine digits."""

    def equal(a: Any, b: Any) -> bool:
        return math.isclose(a, b, rel_tol=1e-9) if isinstance(a, float) or isinstance(b, float) else bool(a == b)

    return len(mine) == len(theirs) and all(
        len(a) == len(b) and all(map(equal, a, b)) for a, b in zip(mine, theirs, strict=True)
    )


def measure(options: Options, report: Report, jet: JetInstance, folder: Path, name: str) -> None:
    """One query."""
    with Bench(name, "s") as bench:
        bench.facts = {"scale": 0.1, "workers": options.workers, "from": "CSV files, warm"}
        answer: list[tuple[Any, ...]] = []

        def ours() -> None:
            answer[:] = answer_of(jet, name, folder)

        bench.ours(lambda: elapsed(ours))
        peers: dict[str, Callable[[], Callable[[str], Any]]] = {
            "duckdb": lambda: with_duckdb(folder, options.workers),
            "polars": lambda: with_polars(folder),
        }
        for peer, make in peers.items():
            if options.wants_peer(peer):
                try:
                    run = make()
                except ImportError as error:
                    bench.skip(peer, str(error))
                    continue
                bench.peer(peer, lambda run=run: elapsed(lambda: run(name)))  # type: ignore[misc]
                if peer == "duckdb":
                    ours()
                    expected = run(name)
                    if not same(answer, expected):
                        raise AssertionError(f"{name}: shmjet answers {answer}, duckdb {expected}")
                    bench.facts["answer"] = "equals duckdb's"
        report.add(bench.measure(rounds=options.rounds))


def main() -> int:
    """Run the queries asked for."""
    options = parse_options(__doc__, benches=BENCHES)
    os.environ["POLARS_MAX_THREADS"] = str(options.workers)  # read when polars is imported
    try:
        folder = generate(DATA / "tpch-0.1", 0.1)
    except PeerSkipped as reason:
        print(f"tpch is skipped: {reason}", file=sys.stderr)
        return 0
    report = Report(options)
    with shmjet.new_instance(JetConfig(cores=options.workers)) as jet:
        for name in BENCHES:
            if options.wants(name):
                measure(options, report, jet, folder, name)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
