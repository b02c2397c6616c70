"""Sorting rows by columns, and hash joins, on one worker, compared with numpy, polars and duckdb with one thread.

* `sort_int64`, `sort_float64`, `sort_text`: the order of a million random rows (argsort); numpy sorts stably, as
  shmjet does. `sort_columns`: by two columns, where numpy's peer is `lexsort`. `sort_batch`: rows of four columns.
* `join_int64`, `join_text`, `join_columns`: a million rows against as many others; the table is built and probed, and
  the rows of both sides are put together. `join_semi`: which rows have a match, against 1,000.

duckdb has no argsort: there it sorts and gives the row numbers; its results become tables of its own. Peers have their
data in their own form beforehand.

Target: no slower than any peer; at least 4 times numpy.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from _harness import Bench, Options, Report, parse_options, rate

from shmjet.host.allocator import keep_freed_memory

ROWS = 1_000_000
BATCH = 1 << 16
SORTS = ["sort_int64", "sort_float64", "sort_text", "sort_columns", "sort_batch"]
JOINS = ["join_int64", "join_text", "join_columns", "join_semi"]

Peer = tuple[str, Callable[[Bench], Callable[[], Any]]]


def words(numbers: Any) -> list[str]:
    """Text of 5 to 11 characters."""
    return [f"word{number}" for number in numbers.tolist()]


def sort_cases(name: str) -> tuple[dict[str, Any], list[str]]:
    """Columns, and by which of them to sort."""
    import numpy as np

    random = np.random.default_rng(7)
    if name == "sort_int64":
        return {"a": random.integers(-(2**63), 2**63 - 1, ROWS)}, ["a"]
    if name == "sort_float64":
        return {"a": random.standard_normal(ROWS)}, ["a"]
    if name == "sort_text":
        return {"a": words(random.integers(0, ROWS, ROWS))}, ["a"]
    columns = {"a": random.integers(0, 1000, ROWS), "b": random.random(ROWS)}
    if name == "sort_batch":
        columns |= {"c": np.arange(ROWS), "d": random.random(ROWS)}
    return columns, ["a", "b"]


def sort_peers(columns: dict[str, Any], by: list[str], whole: bool) -> Iterator[Peer]:
    """Give what sorts the same: only the order, or `whole` rows."""
    import numpy as np

    arrays = {name: np.array(values) for name, values in columns.items()}

    def with_numpy(bench: Bench) -> Callable[[], Any]:
        def order() -> Any:
            keys = [arrays[name] for name in reversed(by)]
            return np.argsort(keys[0], kind="stable") if len(keys) == 1 else np.lexsort(keys)

        def rows() -> Any:
            places = order()
            return {name: values[places] for name, values in arrays.items()}

        return rows if whole else order

    def with_polars(bench: Bench) -> Callable[[], Any]:
        import polars

        frame = polars.DataFrame(columns)
        if whole:
            return lambda: frame.sort(by, maintain_order=True)
        return lambda: frame.select(polars.arg_sort_by(by, maintain_order=True))

    def with_duckdb(bench: Bench) -> Callable[[], Any]:
        shown = ", ".join(columns) if whole else "row"
        query = f"SELECT {shown} FROM t ORDER BY {', '.join(by)}, row"
        return duckdb_with(bench, query, t={**arrays, "row": np.arange(ROWS)})

    yield "numpy", with_numpy
    yield "polars_1thread", with_polars
    yield "duckdb_1thread", with_duckdb


def join_cases(name: str) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Probe side, build side, key columns."""
    import numpy as np

    random = np.random.default_rng(7)
    rows = 1000 if name == "join_semi" else ROWS
    probe, build = random.integers(0, 2 * rows, ROWS), random.permutation(2 * rows)[:rows]
    if name == "join_text":
        return {"k": words(probe), "p": np.arange(ROWS)}, {"k": words(build), "b": np.arange(rows)}, ["k"]
    left, right = {"k": probe, "p": np.arange(ROWS)}, {"k": build, "b": np.arange(rows)}
    if name == "join_columns":
        return {**left, "l": probe % 100}, {**right, "l": build % 100}, ["k", "l"]
    return left, right, ["k"]


def join_peers(probe: dict[str, Any], build: dict[str, Any], on: list[str], semi: bool) -> Iterator[Peer]:
    """Give what joins the same."""
    import numpy as np

    def with_polars(bench: Bench) -> Callable[[], Any]:
        import polars

        left, right = polars.DataFrame(probe), polars.DataFrame(build)
        return lambda: left.join(right, on=on, how="semi" if semi else "inner")

    def with_duckdb(bench: Bench) -> Callable[[], Any]:
        tables = [{name: np.array(values) for name, values in side.items()} for side in (probe, build)]
        query = f"SELECT * FROM l {'SEMI' if semi else ''} JOIN r USING ({', '.join(on)})"
        return duckdb_with(bench, query, l=tables[0], r=tables[1])

    yield "polars_1thread", with_polars
    yield "duckdb_1thread", with_duckdb


def duckdb_with(bench: Bench, query: str, **tables: dict[str, Any]) -> Callable[[], Any]:
    """Open a database in memory with these tables and one thread; the result of the query becomes a table, too."""
    import duckdb

    connection = bench.resources.enter_context(duckdb.connect())
    connection.execute("SET threads=1")
    for name, columns in tables.items():
        connection.register("given", columns)
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
        connection.unregister("given")
    return lambda: connection.execute(f"CREATE OR REPLACE TEMP TABLE result AS {query}")


def sort(options: Options, report: Report, name: str) -> None:
    """One bench of sorting."""
    from shmjet.columns.sort import SortOrder
    from shmjet.data.batch import Batch

    columns, by = sort_cases(name)
    batch, order, whole = Batch(columns), SortOrder(by), name == "sort_batch"
    run = (lambda: order.sort(batch)) if whole else (lambda: order.row_order(batch))
    measure(options, report, name, run, sort_peers(columns, by, whole))


def join(options: Options, report: Report, name: str) -> None:
    """One bench of joining; batches come as they would through lanes."""
    from shmjet.columns.join import HashJoin
    from shmjet.data.batch import Batch

    left, right, on = join_cases(name)
    probe, build = Batch(left), Batch(right)
    pieces = [probe[at : at + BATCH] for at in range(0, ROWS, BATCH)]
    others = [build[at : at + BATCH] for at in range(0, build.num_rows, BATCH)]

    def run() -> None:
        table = HashJoin(others, on=on)
        for piece in pieces:
            for _ in table.semi(piece) if name == "join_semi" else table.inner(piece):
                pass

    measure(options, report, name, run, join_peers(left, right, on, name == "join_semi"))


def measure(options: Options, report: Report, name: str, run: Callable[[], Any], peers: Iterator[Peer]) -> None:
    """Run shmjet and its peers in turn."""
    with Bench(name, "rows/s") as bench:
        bench.facts = {"rows": ROWS, "target": "ratio >= 4 to numpy, >= 1 to polars and duckdb"}
        bench.ours(lambda: rate(ROWS, run))
        for peer, make in peers:
            if options.wants_peer(peer):
                try:
                    theirs = make(bench)
                except ImportError as error:
                    bench.skip(peer, str(error))
                else:
                    bench.peer(peer, lambda theirs=theirs: rate(ROWS, theirs))  # type: ignore[misc]
        report.add(bench.measure(rounds=options.rounds))


def main() -> int:
    """Run the benches asked for."""
    os.environ["POLARS_MAX_THREADS"] = "1"  # read when polars is imported
    keep_freed_memory()  # as workers do; peers but numpy have allocators of their own that do so
    options = parse_options(__doc__, benches=[*SORTS, *JOINS])
    report = Report(options)
    for name in SORTS:
        if options.wants(name):
            sort(options, report, name)
    for name in JOINS:
        if options.wants(name):
            join(options, report, name)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
