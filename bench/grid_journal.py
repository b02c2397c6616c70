"""Journals of maps: what they cost writers, and how fast jobs read them.

    python bench/grid_journal.py [--json] [--quick] [--workers N]

journal_put fills a map with a journal, next to a map without. journal_get is a single lookup next to one in
sqlite3 in memory. journal_windows counts the entries of a map by key in a window, read from its journal by as many
processors as there are workers, next to the same count over `sources.map`, which all workers read; each run is a job
from its start to its last result. journal_windows_in_order has one processor read the journal, which is the default:
changes come in the order of their commits, and no processor without changes holds windows back.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sqlite3
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from _harness import Bench, Options, Report, parse_options, rate

from shmjet import JetConfig, JetInstance, MapConfig, Pipeline, aggregate_ops, new_instance, sinks, sources, tumbling
from shmjet.grid import Grid

BENCHES = ["journal_put", "journal_get", "journal_windows", "journal_windows_in_order"]
GROUPS = 1000
END = 1_000_000
"""A timestamp behind that of all entries, which closes their window."""
IDLE_S = 0.02
"""Seconds after which a processor that reads nothing does not hold the windows back."""


def journal_put(options: Options, base: Path) -> Any:
    """Put many entries into maps with and without a journal, emptied in between."""
    count = 50_000 if options.quick else 300_000
    pairs = [(f"w{number:x}", number) for number in range(count)]
    Grid.create(base / "put", maps={"journal": MapConfig(journal_capacity=2 * count)})
    with Grid.open(base / "put") as grid, Bench("journal_put", "entries/s") as bench:

        def run(name: str) -> float:
            grid.get_map(name).destroy()
            return rate(count, lambda: grid.get_map(name).put_all(pairs))

        bench.ours(lambda: run("journal"))
        bench.peer("without a journal", lambda: run("plain"))
        return bench.measure(rounds=options.rounds)


def journal_get(options: Options, base: Path) -> Any:
    """Look single keys up."""
    count = 20_000
    pairs = [(f"w{number:x}", number) for number in range(count)]
    Grid.create(base / "get", maps={"journal": MapConfig(journal_capacity=2 * count)})
    with Grid.open(base / "get") as grid, Bench("journal_get", "lookups/s") as bench:
        jet = grid.get_map("journal")
        jet.put_all(pairs)
        peer = sqlite3.connect(":memory:")
        peer.execute("create table m (key text primary key, value integer)")
        peer.executemany("insert into m values (?, ?)", pairs)
        select = "select value from m where key = ?"
        bench.ours(lambda: rate(count, lambda: [jet.get(key) for key, _ in pairs]))
        bench.peer(
            "sqlite3", lambda: rate(count, lambda: [peer.execute(select, (key,)).fetchone() for key, _ in pairs])
        )
        result = bench.measure(rounds=options.rounds)
        peer.close()
        return result


def journal_windows(options: Options, base: Path) -> Any:
    """Count by key, from the journal by all workers and from the map."""
    return _measured("journal_windows", options, options.workers)


def journal_windows_in_order(options: Options, base: Path) -> Any:
    """Count by key, from the journal by one processor and from the map."""
    return _measured("journal_windows_in_order", options, 1)


def _measured(name: str, options: Options, readers: int) -> Any:
    count = 100_000 if options.quick else 500_000
    config = JetConfig(cores=options.workers, maps={"m": MapConfig(journal_capacity=2 * count)})
    with new_instance(config) as jet, Bench(name, "entries/s") as bench:
        entries = jet.get_map("m")
        entries.put_all((number, 0) for number in range(count))
        entries[count] = END
        numbers = itertools.count()
        bench.ours(lambda: rate(count, lambda: _windows(jet, f"out-{next(numbers)}", readers)))
        bench.peer("sources.map", lambda: rate(count, lambda: _groups(jet, f"out-{next(numbers)}")))
        return bench.measure(rounds=options.rounds)


def _windows(jet: JetInstance, name: str, readers: int) -> None:
    p = Pipeline()
    source = p.read_from(sources.map_journal("m").set_partition_idle_timeout(IDLE_S)).set_local_parallelism(readers)
    events = source.with_timestamps(lambda event: event.new)
    counts = (
        events.grouping_key(lambda event: event.key % GROUPS).window(tumbling(1)).aggregate(aggregate_ops.counting())
    )
    counts.write_to(sinks.list(name))
    job, out = jet.new_job(p), jet.get_list(name)
    job.execute()
    while len(out) < GROUPS:
        time.sleep(0.001)
    job.cancel()
    out.destroy()


def _groups(jet: JetInstance, name: str) -> None:
    p = Pipeline()
    counts = p.read_from(sources.map("m")).grouping_key(lambda entry: entry[0] % GROUPS)
    counts.aggregate(aggregate_ops.counting()).write_to(sinks.list(name))
    jet.new_job(p).run()
    assert len(jet.get_list(name)) == GROUPS
    jet.get_list(name).destroy()


def main() -> int:
    options = parse_options(__doc__, benches=BENCHES)
    report = Report(options)
    base = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="shmjet-bench-"))
    try:
        for name, bench in zip(
            BENCHES, (journal_put, journal_get, journal_windows, journal_windows_in_order), strict=True
        ):
            if options.wants(name):
                report.add(bench(options, base))
    finally:
        shutil.rmtree(base)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
