"""Word count in native code (`shmjet wordcount --columns`), against wc, polars, duckdb, PySpark and a pool.

Three texts: `wordcount_columns` has 50,000 distinct words with the frequencies of natural language and
`wordcount_columns_500k` 500,000 (100 MB each, written once by a fixed seed); `wordcount_columns_debian` is Debian's
package index as `apt-cache dumpavail` prints it (other characters than ASCII made question marks), where every sixth
word is new; it is left out where there is none.
Files are warm. Each program lower-cases, splits and counts one file on the same number of cores, is started before,
and ends with all counts in memory of the parent process, in the form that is its own: pieces of columns, a data frame,
a table, a Counter; Spark may stop when they are in its cache. All results are checked to be equal.

Peers: `wc`, one `wc -w` per worker on its share of the file, which only adds up how many words there are; `polars` (the
faster of its engines); `duckdb`; `pyspark_dataframe`; `pool_counter`, a warm `multiprocessing` pool with `Counter`.
The unit is MB/s: 10^6 bytes of text per second.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from _harness import Bench, Options, PeerSkipped, Report, elapsed, installed, parse_options
from _spark import local_session
from _words import DATA, Contestant, Counts, PoolCounter, SparkDataFrame, count_chunk, text_file, timed

DISTINCT = {"wordcount_columns": 50_000, "wordcount_columns_500k": 500_000}

DEBIAN = "wordcount_columns_debian"


class ShmjetColumns:
    """The job of `shmjet wordcount --columns`."""

    def __init__(self, path: Path, jet: Any) -> None:
        from shmjet.cli.word_pieces import columns_dag
        from shmjet.cli.wordcount import COUNTS, READING

        self._jet = jet
        self._dag = columns_dag([str(path)], COUNTS, READING)
        self._list = jet.get_list(COUNTS)
        self._pieces: list[Any] = []

    def clear(self) -> None:
        self._pieces = []
        self._list.clear()

    def count(self) -> None:
        self._jet.new_job(self._dag).run()
        self._pieces = list(self._list)

    def fetch(self) -> Counts:
        from shmjet.cli.word_pieces import all_pairs

        return dict(all_pairs(self._pieces))


class Polars:
    """A lazy query over lines; the streaming engine was the faster one in all versions tried."""

    def __init__(self, path: Path) -> None:
        import polars

        self._polars, self._path = polars, path
        self._counts: Any = None

    def clear(self) -> None:
        self._counts = None

    def count(self) -> None:
        pl = self._polars
        if hasattr(pl, "scan_lines"):
            lines = pl.scan_lines(self._path, name="line")
        else:
            lines = pl.scan_csv(
                self._path, separator="\x01", has_header=False, quote_char=None, schema={"line": pl.String}
            )
        words = lines.select(pl.col("line").str.to_lowercase().str.split(" ").explode())
        self._counts = words.filter(pl.col("line") != "").group_by("line").len().collect(engine="streaming")

    def fetch(self) -> Counts:
        return dict(self._counts.iter_rows())


class Duckdb:
    """SQL over lines, into a temporary table."""

    def __init__(self, path: Path, workers: int) -> None:
        import duckdb

        self._connection = duckdb.connect()
        self._connection.execute(f"SET threads = {workers}")
        self._connection.execute("SET preserve_insertion_order = false")
        lines = (
            f"read_csv('{path}', columns = {{'line': 'VARCHAR'}}, header = false, delim = '\x01', quote = '', "
            "escape = '', auto_detect = false)"
        )
        self._query = (
            "CREATE TEMP TABLE counts AS SELECT word, count(*) AS n FROM "
            f"(SELECT unnest(string_split(lower(line), ' ')) AS word FROM {lines}) "
            "WHERE word <> '' GROUP BY word"
        )

    def clear(self) -> None:
        self._connection.execute("DROP TABLE IF EXISTS counts")

    def count(self) -> None:
        self._connection.execute(self._query)

    def fetch(self) -> Counts:
        return dict(self._connection.execute("SELECT word, n FROM counts").fetchall())


class Wc:
    """One `wc -w` per worker, each on a file of its own with its share of the lines."""

    def __init__(self, path: Path, workers: int, words: int) -> None:
        self._size, self._words = path.stat().st_size, words
        self._parts = [path.with_name(f"{path.stem}.{i}-of-{workers}.txt") for i in range(workers)]
        if sum(part.stat().st_size for part in self._parts if part.exists()) != self._size:
            data, start = path.read_bytes(), 0
            for i, part in enumerate(self._parts):
                end = data.find(b"\n", len(data) * (i + 1) // workers) + 1 if i + 1 < workers else len(data)
                part.write_bytes(data[start:end])
                start = end

    def __call__(self) -> float:
        found = 0

        def run() -> None:
            nonlocal found
            running = [subprocess.Popen(["wc", "-w", part], stdout=subprocess.PIPE) for part in self._parts]
            found = sum(int(child.communicate()[0].split()[0]) for child in running)

        seconds = elapsed(run)
        if found != self._words:
            raise AssertionError(f"wc finds {found} words, there are {self._words}")
        return self._size / 1e6 / seconds


def debian_file() -> Path:
    """Return Debian's package index as a file of text. Raises PeerSkipped where there is none."""
    path = DATA / "debian.txt"
    if not path.exists():
        if shutil.which("apt-cache") is None:
            raise PeerSkipped("no apt-cache")
        text = subprocess.run(["apt-cache", "dumpavail"], stdout=subprocess.PIPE, check=True).stdout
        if len(text) < 10_000_000:
            raise PeerSkipped("apt-cache knows too few packages; try apt-get update")
        DATA.mkdir(exist_ok=True)
        # The peers split at spaces only and differ in what is lower case outside of ASCII.
        lines = text.decode("ascii", "replace").replace("\ufffd", "?").splitlines()
        path.write_text("".join(" ".join(line.split()) + "\n" for line in lines), encoding="ascii")
    return path


def measure(name: str, path: Path, options: Options, report: Report) -> None:
    """One text, all contenders."""
    import shmjet

    workers = options.workers
    with Bench(name, "MB/s") as bench:
        expected = dict(count_chunk((str(path), 0, path.stat().st_size)))
        words = sum(expected.values())
        bench.facts = {
            "text": f"{path.stat().st_size / 1e6:.1f} MB, {words:,} words, {len(expected):,} distinct",
            "workers": workers,
        }
        ours = ShmjetColumns(path, bench.resources.enter_context(shmjet.new_instance(shmjet.JetConfig(cores=workers))))
        bench.ours(timed("shmjet", path, ours, expected))
        if options.wants_peer("wc"):
            if shutil.which("wc"):
                bench.peer("wc", Wc(path, workers, words))
            else:
                bench.skip("wc", "no wc")
        if options.wants_peer("pool_counter"):
            pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("forkserver"))
            bench.resources.enter_context(pool)
            bench.peer(
                "pool_counter", timed("pool_counter", path, PoolCounter(path, pool, workers, count_chunk), expected)
            )
        for peer in ("polars", "duckdb"):
            if not options.wants_peer(peer):
                continue
            if not installed(peer):
                bench.skip(peer, f"{peer} is not installed")
                continue
            contestant: Contestant = Polars(path) if peer == "polars" else Duckdb(path, workers)
            bench.peer(peer, timed(peer, path, contestant, expected))
        try:
            session = bench.resources.enter_context(local_session(options, "pyspark_dataframe"))
        except PeerSkipped as reason:
            bench.skip("pyspark_dataframe", str(reason))
        else:
            bench.peer("pyspark_dataframe", timed("pyspark_dataframe", path, SparkDataFrame(path, session), expected))
        report.add(bench.measure(rounds=options.rounds, warm_up=1 if options.quick else 2))


def main() -> int:
    """Measure all texts that were asked for."""
    options = parse_options(__doc__, benches=[*DISTINCT, DEBIAN])
    os.environ["POLARS_MAX_THREADS"] = str(options.workers)  # read when polars is imported
    report = Report(options)
    for name, distinct in DISTINCT.items():
        if options.wants(name):
            measure(name, text_file(distinct, 20 if options.quick else 100), options, report)
    if options.wants(DEBIAN):
        try:
            path = debian_file()
        except PeerSkipped as reason:
            print(f"{DEBIAN}: skipped: {reason}", file=sys.stderr)
        else:
            measure(DEBIAN, path, options, report)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
