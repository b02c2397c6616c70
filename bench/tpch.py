"""TPC-H's 22 queries in stages of columns, from CSV files to the answer, compared with polars, duckdb and PySpark.

Every program reads the same files in every run, warm, and uses as many threads or workers as `--workers` says. Each
answer of shmjet and of PySpark is held against duckdb's. polars gets the same stages as lazy frames, duckdb and PySpark
the SQL of `examples/tpch/sql.py`. `tpch` at the end has the geometric means over all queries. `--scale` is 1 (0.1 with
`--quick`), `--rounds` says how often each query runs after one to warm up (3, or 1 with `--quick`: PySpark takes
a minute for some), `--money` the type of amounts: float64, because decimals of polars lose digits, or "decimal(15, 2)".
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

from _harness import Bench, Options, PeerSkipped, Report, Result, elapsed, installed, parse_options
from _spark import local_session

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "examples"), str(HERE.parent)]

import tpch.answers as queries  # noqa: E402 - a package of examples/, not this file
from tpch.sql import SQL  # noqa: E402
from tpch.tables import generate, schemas  # noqa: E402

import shmjet  # noqa: E402
from shmjet import JetConfig  # noqa: E402

BENCHES = [f"tpch_{number:02}" for number in queries.QUERIES]
IN_DUCKDB = {"int64": "BIGINT", "float64": "DOUBLE", "text": "VARCHAR", "datetime64[D]": "DATE"}
IN_SPARK = {"int64": "BIGINT", "float64": "DOUBLE", "text": "STRING", "datetime64[D]": "DATE"}

Rows = list[tuple[Any, ...]]
Answer = Callable[[int], Rows]


def sql(number: int, scale: float) -> str:
    """Return a query in SQL."""
    return SQL[number].replace("{fraction}", str(0.0001 / scale))


def with_duckdb(folder: Path, scale: float, money: str, threads: int) -> Answer:
    """Return what answers a query with duckdb, which reads the files each time."""
    import duckdb

    connection = duckdb.connect()
    connection.execute(f"SET threads={threads}")
    for name, schema in schemas(money).items():
        types = ", ".join(f"'{column}': '{IN_DUCKDB.get(kind, kind)}'" for column, kind in schema.items())
        path = folder / f"{name}.csv"
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_csv('{path}', header=true, columns={{{types}}})")
    return lambda number: [tuple(row) for row in connection.execute(sql(number, scale)).fetchall()]


def with_polars(folder: Path, scale: float, money: str) -> Answer:
    """Return what answers a query with lazy scans of polars; the number of threads is set before the import."""
    import polars

    from tests.tables.polars_stages import PolarsStage

    kinds: dict[str, Any] = {
        "int64": polars.Int64,
        "float64": polars.Float64,
        "text": polars.String,
        "datetime64[D]": polars.Date,
    }

    class Tables(queries.Tables):
        """The tables as lazy frames."""

        def __getitem__(self, name: str) -> Any:
            schema = {key: kinds.get(kind, polars.Decimal(15, 2)) for key, kind in schemas(money)[name].items()}
            return PolarsStage(polars.scan_csv(folder / f"{name}.csv", schema=schema), plain=True)

    tables = Tables(shmjet.Pipeline(), folder, money)

    def answer(number: int) -> Rows:
        stage: Any = queries.QUERIES[number](tables, scale)
        rows: Rows = stage.frame.collect().rows()
        return rows

    return answer


def with_spark(session: Any, folder: Path, scale: float, money: str) -> Answer:
    """Return what answers a query with DataFrames of PySpark over the files."""
    for name, schema in schemas(money).items():
        types = ", ".join(f"{column} {IN_SPARK.get(kind, kind)}" for column, kind in schema.items())
        session.read.csv(str(folder / f"{name}.csv"), types, header=True, escape='"').createOrReplaceTempView(name)
    return lambda number: [tuple(row) for row in session.sql(sql(number, scale)).collect()]


def same(mine: Rows, theirs: Rows) -> bool:
    """Whether two answers are equal, floats to nine digits."""

    def equal(a: Any, b: Any) -> bool:
        if isinstance(a, float) or isinstance(b, float):
            return a is not None and b is not None and math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
        return bool(a == b)

    return len(mine) == len(theirs) and all(
        len(a) == len(b) and all(map(equal, a, b)) for a, b in zip(mine, theirs, strict=True)
    )


def comparable(rows: Rows) -> Rows:
    """Return rows with amounts as floats, and without the row of a sum of nothing, which a stage does not give."""
    found = [tuple(float(value) if isinstance(value, Decimal) else value for value in row) for row in rows]
    return [] if found == [(None,)] else found


class Answers:
    """What one program has answered, checked once per query."""

    def __init__(self, name: str, answer: Answer, right: Callable[[int], Rows]) -> None:
        self._name, self._answer, self._right = name, answer, right
        self._checked: set[int] = set()

    def timed(self, number: int) -> float:
        """Seconds that a query takes."""
        rows: Rows = []
        seconds = elapsed(lambda: rows.extend(self._answer(number)))
        if number not in self._checked:
            limit = queries.LIMITS.get(number)
            mine, theirs = comparable(rows)[:limit], self._right(number)
            if not same(mine, theirs):
                raise AssertionError(f"query {number}: {self._name} answers {mine[:3]} ..., duckdb {theirs[:3]} ...")
            self._checked.add(number)
        return seconds


def whole(results: Sequence[Result], facts: dict[str, Any]) -> Result:
    """Return the geometric means over all queries."""
    peers: dict[str, float] = {}
    ratios: dict[str, float] = {}
    for peer in sorted({peer for result in results for peer in result.peers}):
        those = [result for result in results if peer in result.peers]
        peers[peer] = statistics.geometric_mean(result.peers[peer] for result in those)
        ratios[peer] = statistics.geometric_mean(result.ratio[peer] for result in those)
    ours = statistics.geometric_mean(result.shmjet or math.inf for result in results)
    spread = {who: (figure, figure) for who, figure in {"shmjet": ours, **peers}.items()}
    return Result("tpch", "s", ours, peers, ratios, {}, spread, {**facts, "queries": len(results)})


def settings(argv: Sequence[str]) -> tuple[Options, float, int, str, Path]:
    """Parse the command line: options, scale, rounds, type of amounts, folder."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--scale", type=float)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--money", default="float64")
    parser.add_argument("--folder", type=Path, help="has the tables, or gets them")
    mine, rest = parser.parse_known_args(argv)
    options = parse_options(__doc__, BENCHES, rest)
    scale = mine.scale or (0.1 if options.quick else 1.0)
    rounds = mine.rounds or (1 if options.quick else 3)
    return options, scale, rounds, mine.money, mine.folder or HERE / "data" / f"tpch-{scale:g}-all"


def main() -> int:
    """Run the queries asked for."""
    options, scale, rounds, money, folder = settings(sys.argv[1:])
    os.environ["POLARS_MAX_THREADS"] = str(options.workers)  # read when polars is imported
    try:
        generate(folder, scale)
    except ModuleNotFoundError as reason:
        print(f"tpch is skipped: {reason}", file=sys.stderr)
        return 0
    facts = {"scale": scale, "workers": options.workers, "from": "CSV files, warm", "amounts": money}
    report, results = Report(options), list[Result]()
    with ExitStack() as stack:
        right = with_duckdb(folder, scale, money, options.workers)
        expected: dict[int, Rows] = {}

        def checked(number: int) -> Rows:
            if number not in expected:
                expected[number] = comparable(right(number))
            return expected[number]

        jet = stack.enter_context(shmjet.new_instance(JetConfig(cores=options.workers)))
        contenders: dict[str, Answer] = {
            "shmjet": lambda number: list(queries.answer(jet, number, folder, scale, money).tuples()),
            "duckdb": right,
        }
        skipped = {}
        if installed("polars"):
            contenders["polars"] = with_polars(folder, scale, money)
        try:
            session = stack.enter_context(local_session(options, "pyspark"))
            contenders["pyspark"] = with_spark(session, folder, scale, money)
        except PeerSkipped as missing:
            skipped["pyspark"] = str(missing)
        answers = {name: Answers(name, answer, checked) for name, answer in contenders.items()}
        for number, name in zip(queries.QUERIES, BENCHES, strict=True):
            if not options.wants(name):
                continue
            with Bench(name, "s") as bench:
                bench.ours(lambda number=number: answers["shmjet"].timed(number))  # type: ignore[misc]
                for peer in filter(options.wants_peer, set(answers) - {"shmjet"}):
                    bench.peer(peer, lambda peer=peer, number=number: answers[peer].timed(number))  # type: ignore[misc]
                for peer, why in skipped.items():
                    bench.skip(peer, why)
                results.append(bench.measure(rounds=rounds))
                report.add(results[-1])
        if results:
            report.add(whole(results, facts))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
