"""Word count, exchange and group-by with 1, 2, 4 ... workers: speed-up, and what each item costs on top of its work.

Each line is one workload with so many workers against one worker, in turn. There is as much work for each
worker as for the one, up to the number of cores, so a run takes about the same time and the ratio is the speed-up:
items per second of N workers / items per second of 1. With more workers than cores (`--workers 8` on two) results are
checked as always; the speed-up says only what that costs.

Workloads: `wordcount` counts the words of text files with the DAG of `shmjet wordcount`; `exchange` sends small pairs
over a partitioned edge and counts them; `groupby` adds up numbers by 10^5 keys in two stages; `exchange_columns` and
`groupby_columns` do the same with batches of two columns. Every result is checked.

The facts, medians over the rounds: bytes that went through rings and slabs, per item; and per million items how often a
processor's output had to wait for room (`waits`), tasklets stolen, sleeps of workers, and their context switches,
voluntary and not. `docs/scaling.md` says how to read them.
"""

from __future__ import annotations

import functools
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, fields
from itertools import chain, islice, repeat
from operator import itemgetter
from pathlib import Path
from typing import Any

from _harness import Bench, Options, Report, Result, default_workers, elapsed, human, parse_options
from _words import text_file
from exchange import share_of

KEYS = 100_000
BATCH_ROWS = 8192
BASELINE = "1 worker"
BUSY = 0.5
"""The load above which other programs take time that the workers would need."""


@dataclass(frozen=True)
class Job:
    """A DAG with the list that it fills.

    `items` is what throughput and costs are given for; `check` raises AssertionError when the list is not right.
    """

    dag: Any
    output: str
    items: int
    check: Callable[[list[Any]], None]


@dataclass(frozen=True)
class Workload:
    """Makes the job of so many shares of work, each enough for one worker; `quick` makes small shares."""

    name: str
    item: str
    make: Callable[[int, bool], Job]


@dataclass(frozen=True)
class Costs:
    """What one run cost on top of its work: bytes per item, all others per million items."""

    bytes: float
    waits: float
    steals: float
    sleeps: float
    voluntary: float
    involuntary: float


# -- workloads ---------------------------------------------------------------------------------------------------------


@functools.cache
def words_of(text: Path) -> Counter[str]:
    """The right counts of a text."""
    return Counter(text.read_text(encoding="utf-8").lower().split())


def wordcount_job(shares: int, quick: bool, text: Path | None = None) -> Job:
    """Word count of `shares` files, all of them names of one text, so that they take no more room than one."""
    from shmjet.cli.wordcount import COUNTS, wordcount_dag

    text = text_file(50_000, 10 if quick else 20) if text is None else text
    folder = text.parent / f"{text.stem}-links"
    folder.mkdir(exist_ok=True)
    links = [folder / f"{i}.txt" for i in range(shares)]
    for link in links:
        if not link.exists():
            os.link(text, link)
    expected = {word: count * shares for word, count in words_of(text).items()}

    def check(counts: list[Any]) -> None:
        if len(counts) != len(expected) or dict(counts) != expected:
            raise AssertionError(f"{shares} x {text}: the counts are wrong")

    return Job(wordcount_dag([str(link) for link in links]), COUNTS, sum(expected.values()), check)


def exchange_job(shares: int, quick: bool, size: int | None = None) -> Job:
    """Pairs over a partitioned edge to processors that count them."""
    from shmjet import DAG, between, processors

    count = shares * (size or (1_000_000 if quick else 4_000_000))
    dag = DAG()
    source = dag.new_vertex("source", processors.generate(functools.partial(share_of, count)))
    counter = dag.new_vertex("count", processors.aggregate(processors.counting()))
    sink = dag.new_vertex("sink", processors.write_list("exchange"), local_parallelism=1)
    dag.edge(between(source, counter).partitioned(itemgetter(0))).edge(between(counter, sink))

    def check(counts: list[Any]) -> None:
        if sum(counts) != count:
            raise AssertionError(f"{count} pairs were sent, {sum(counts)} counted")

    return Job(dag, "exchange", count, check)


def rows_of(count: int, index: int, total: int) -> Iterator[tuple[int, int]]:
    """The (key, value) rows of one of `total` sources, `count` in all; row i has key 7919 i mod `KEYS` and value 1."""
    first, last = count * index // total, count * (index + 1) // total
    rows = [((first + i) * 7919 % KEYS, 1) for i in range(min(KEYS, last - first))]
    return islice(chain.from_iterable(repeat(rows)), last - first)


def groupby_job(shares: int, quick: bool, size: int | None = None) -> Job:
    """Sums by key in two stages: on each core for itself, then of all of them by key."""
    from shmjet import DAG, between, processors

    count = shares * (size or (1_000_000 if quick else 4_000_000))
    total = processors.summing(itemgetter(1))
    dag = DAG()
    source = dag.new_vertex("source", processors.generate(functools.partial(rows_of, count)))
    add = dag.new_vertex("add", processors.accumulate_by_key(itemgetter(0), total))
    combine = dag.new_vertex("combine", processors.combine_by_key(total))
    sink = dag.new_vertex("sink", processors.write_list("groupby"))
    dag.edge(between(source, add)).edge(between(add, combine).partitioned(itemgetter(0)))
    dag.edge(between(combine, sink))

    def check(sums: list[Any]) -> None:
        groups = dict(sums)
        if len(groups) != len(sums) or len(groups) != min(KEYS, count) or sum(groups.values()) != count:
            raise AssertionError(f"{count} rows of {KEYS} keys: {len(sums)} groups, sum {sum(groups.values())}")

    return Job(dag, "groupby", count, check)


def batches_of(count: int, index: int, total: int) -> Iterator[Any]:
    """The rows of `rows_of` as batches with columns k and v."""
    import numpy as np

    from shmjet import Batch

    first, last = count * index // total, count * (index + 1) // total
    numbers = np.arange(first, first + min(KEYS, last - first), dtype=np.int64)
    whole = Batch({"k": numbers * 7919 % KEYS, "v": np.ones(len(numbers), dtype=np.int64)})
    pieces = [whole[at : at + BATCH_ROWS] for at in range(0, len(numbers), BATCH_ROWS)]
    left = last - first
    for piece in chain.from_iterable(repeat(pieces)):
        yield piece[: min(left, piece.num_rows)]
        left -= min(left, piece.num_rows)
        if not left:
            return


def rows_in(batch: Any) -> int:
    """The rows of a batch."""
    return int(batch.num_rows)


def exchange_columns_job(shares: int, quick: bool, size: int | None = None) -> Job:
    """Batches over a partitioned edge, row by row, to processors that count rows."""
    from shmjet import DAG, between, processors
    from shmjet.columns import column

    count = shares * (size or (20_000_000 if quick else 100_000_000))
    dag = DAG()
    source = dag.new_vertex("source", processors.generate(functools.partial(batches_of, count)))
    counter = dag.new_vertex("count", processors.aggregate(processors.summing(rows_in)))
    sink = dag.new_vertex("sink", processors.write_list("exchange_columns"), local_parallelism=1)
    dag.edge(between(source, counter).partitioned(column("k"))).edge(between(counter, sink))

    def check(counts: list[Any]) -> None:
        if sum(counts) != count:
            raise AssertionError(f"{count} rows were sent, {sum(counts)} counted")

    return Job(dag, "exchange_columns", count, check)


def groupby_columns_job(shares: int, quick: bool, size: int | None = None) -> Job:
    """`groupby` on columns."""
    from shmjet import DAG, between, processors
    from shmjet.columns import sum_

    count = shares * (size or (20_000_000 if quick else 100_000_000))
    grouping = processors.group_by("k").agg(total=sum_("v"))
    dag = DAG()
    source = dag.new_vertex("source", processors.generate(functools.partial(batches_of, count)))
    add = dag.new_vertex("add", grouping.accumulate)
    combine = dag.new_vertex("combine", grouping.combine)
    sink = dag.new_vertex("sink", processors.write_list("groupby_columns"))
    dag.edge(between(source, add)).edge(between(add, combine).partitioned(grouping.key))
    dag.edge(between(combine, sink))

    def check(batches: list[Any]) -> None:
        keys = [key for batch in batches for key in batch["k"].tolist()]
        total = sum(int(batch["total"].sum()) for batch in batches)
        if len(keys) != len(set(keys)) or len(keys) != min(KEYS, count) or total != count:
            raise AssertionError(f"{count} rows of {KEYS} keys: {len(keys)} groups, sum {total}")

    return Job(dag, "groupby_columns", count, check)


WORKLOADS = {
    workload.name: workload
    for workload in [
        Workload("wordcount", "words", wordcount_job),
        Workload("exchange", "items", exchange_job),
        Workload("groupby", "rows", groupby_job),
        Workload("exchange_columns", "rows", exchange_columns_job),
        Workload("groupby_columns", "rows", groupby_columns_job),
    ]
}


# -- measuring ---------------------------------------------------------------------------------------------------------


class Runner:
    """An instance with so many workers that runs one job repeatedly, and looks at what it costs."""

    def __init__(self, workers: int, job: Job, resources: ExitStack) -> None:
        import shmjet

        self._job = job
        self._jet = resources.enter_context(shmjet.new_instance(shmjet.JetConfig(cores=workers)))
        while len(self._jet.cluster.members[0].workers) < workers:  # the member lists them once it has news of them
            time.sleep(0.01)
        self.pids = self._jet.cluster.members[0].workers
        self._before: tuple[int, ...] = (0, 0, 0)
        self.costs: list[Costs] = []

    def run(self) -> float:
        """Items per second of one run."""
        job, output = self._job, self._jet.get_list(self._job.output)
        output.clear()
        switches = context_switches(self.pids)
        execution = self._jet.new_job(job.dag)
        seconds = elapsed(lambda: execution.run(timeout=600))
        voluntary, involuntary = (
            after - before for after, before in zip(context_switches(self.pids), switches, strict=True)
        )
        job.check(list(output))
        metrics = execution.metrics()
        so_far = tuple(sum(getattr(w, name) for w in metrics.workers) for name in ("slab_bytes", "stolen", "sleeps"))
        in_slabs, steals, sleeps = (now - before for now, before in zip(so_far, self._before, strict=True))
        self._before = so_far
        millions = job.items / 1e6
        self.costs.append(
            Costs(
                (in_slabs + sum(edge.ring_bytes for edge in metrics.edges)) / job.items,
                sum(vertex.blocked_count for vertex in metrics.vertices.values()) / millions,
                steals / millions,
                sleeps / millions,
                voluntary / millions,
                involuntary / millions,
            )
        )
        return job.items / seconds

    def facts(self) -> dict[str, float]:
        """The medians of all runs but the first, which warmed up."""
        runs = self.costs[1:] or self.costs
        return {
            field.name: round(statistics.median(getattr(costs, field.name) for costs in runs), 3)
            for field in fields(Costs)
        }


def context_switches(pids: tuple[int, ...]) -> tuple[int, int]:
    """How often these processes have given up their core so far, of their own accord and not."""
    voluntary = involuntary = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "voluntary_ctxt_switches":
                voluntary += int(value)
            elif name == "nonvoluntary_ctxt_switches":
                involuntary += int(value)
    return voluntary, involuntary


def steps(most: int) -> list[int]:
    """The numbers of workers to look at: 1, 2, 4 ... and `most`."""
    powers = [1 << i for i in range(most.bit_length())]
    return [*(n for n in powers if n < most), most]


def measure(workload: Workload, workers: int, options: Options) -> Result:
    """One workload with so many workers, and with one."""
    with Bench(f"scaling_{workload.name}_{workers}", f"{workload.item}/s") as bench:
        runner = Runner(workers, workload.make(min(workers, default_workers()), options.quick), bench.resources)
        bench.ours(runner.run)
        if workers > 1:
            bench.peer(BASELINE, Runner(1, workload.make(1, options.quick), bench.resources).run)
        result = bench.measure(rounds=options.rounds)
        bench.facts.update(workers=workers, cores=min(workers, default_workers()), **runner.facts())
        return result


class Table:
    """Prints results as rows for a person, or as lines of JSON."""

    HEAD = ("workload", "workers", "items/s", "speed-up", "B/item", "waits", "steals", "sleeps", "voluntary", "forced")

    def __init__(self, options: Options) -> None:
        self._report = Report(options) if options.json else None
        self._count = 0

    def add(self, result: Result) -> None:
        """Print one result."""
        self._count += 1
        if self._report is not None:
            self._report.add(result)
            return
        if self._count == 1:
            self._row(self.HEAD)
        facts, name = result.facts, result.bench.removeprefix("scaling_").rpartition("_")[0]
        assert result.shmjet is not None
        costs = [human(facts[field.name]) for field in fields(Costs)]
        speed_up = f"{result.ratio.get(BASELINE, 1.0):.2f}"
        self._row((name, str(facts["workers"]), human(result.shmjet), speed_up, *costs))

    def finish(self) -> int:
        """The exit status; below the table, what its columns are."""
        if self._report is None and self._count:
            print("waits, steals, sleeps and context switches (voluntary, forced) are per million items")
        return 0 if self._count else 1

    @staticmethod
    def _row(cells: tuple[str, ...]) -> None:
        print("  ".join([f"{cells[0]:<16}", *(f"{cell:>9}" for cell in cells[1:])]), flush=True)


def main() -> int:
    """Measure all workloads that were asked for, with all numbers of workers."""
    names = {f"scaling_{name}": workload for name, workload in WORKLOADS.items()}
    options = parse_options(__doc__, benches=list(names))
    table = Table(options)
    busy = os.getloadavg()[0]
    if busy > BUSY:
        print(f"scaling: others use this machine (load {busy:.1f}): the speed-up says little", file=sys.stderr)
    for name, workload in names.items():
        if options.wants(name):
            for workers in steps(options.workers):
                table.add(measure(workload, workers, options))
    return table.finish()


if __name__ == "__main__":
    sys.exit(main())
