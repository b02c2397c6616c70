"""A job whose slow processors all start on one worker, with work stealing and without.

One source feeds several vertices of one processor each; the first processor of every vertex is placed on the first
worker. Each of them computes for about 100 microseconds per item in plain Python, so one core would do all the work and
the others none. The same job runs on an instance with `work_stealing` on and on one with it off.

`stealing` is the time of the job in seconds; the ratio is time without stealing / time with it.

Target on 2 cores: at most 0.6 of the time, a ratio of 1.67; 2 would be ideal there.

`stealing_table` is the time to hand a native table of about 100 MB (1.3 million groups, three aggregates) over to a
worker: pack, attach, unpack; the peer pickles a dict with the same content and reads it back. Target: 1/50.
"""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any

from _harness import Bench, Options, Report, elapsed, parse_options

SLOW_VERTICES = 4
TARGET = "ratio >= 1.67 on 2 cores"


def compute(n: int) -> int:
    """About 100 microseconds of Python."""
    total = n
    for i in range(2000):
        total = (total * 31 + i) % 1_000_003
    return total


def slow_dag(items: int) -> Any:
    """One source, slow vertices, and one sink that counts what they made."""
    from shmjet import DAG, between, from_, processors

    dag = DAG()
    source = dag.new_vertex("source", processors.generate(lambda index, count: range(items)), local_parallelism=1)
    count = dag.new_vertex("count", processors.aggregate(processors.counting()), local_parallelism=1)
    sink = dag.new_vertex("sink", processors.write_list("counts"), local_parallelism=1)
    for i in range(SLOW_VERTICES):
        slow = dag.new_vertex(f"slow-{i}", processors.map(compute), local_parallelism=1)
        dag.edge(from_(source, i).to(slow)).edge(from_(slow).to(count, i))
    return dag.edge(between(count, sink))


def seconds_of(jet: Any, dag: Any, expected: int) -> float:
    """Seconds of one run of the job."""
    counts = jet.get_list("counts")
    counts.clear()
    seconds = elapsed(lambda: jet.new_job(dag).run(timeout=600))
    if list(counts) != [expected]:
        raise AssertionError(f"{expected} items should have come, {list(counts)} have")
    return seconds


def stealing(options: Options, report: Report) -> None:
    """With and without."""
    import shmjet

    items = 2_500 if options.quick else 10_000
    dag = slow_dag(items)
    with Bench("stealing", "s") as bench:
        bench.facts = {"target": TARGET, "workers": options.workers, "slow vertices": SLOW_VERTICES}

        def contender(work_stealing: bool) -> Any:
            config = shmjet.JetConfig(cores=options.workers, work_stealing=work_stealing)
            jet = bench.resources.enter_context(shmjet.new_instance(config))
            return lambda: seconds_of(jet, dag, SLOW_VERTICES * items)

        bench.ours(contender(True))
        bench.peer("without stealing", contender(False))
        report.add(bench.measure(rounds=options.rounds))


def stealing_table(options: Options, report: Report) -> None:
    """A native table and a dict."""
    import numpy as np

    from shmjet.columns import Batch, count, max_, sum_
    from shmjet.columns.groups import Groups
    from shmjet.execution.tasklet_transfer import pack, unpack

    keys = np.arange(1_300_000)
    aggregates = {"n": count(), "total": sum_("v"), "largest": max_("v")}
    groups = Groups(["k"], aggregates)
    groups.add(Batch({"k": keys * 7919, "v": keys / 2}))
    values = {key * 7919: (1, key / 2, key / 2) for key in keys.tolist()}

    def ours() -> float:
        def move() -> None:
            packed = pack(groups, {})
            assert packed is not None
            state, fds = packed
            moved = unpack(state, {}, fds)
            for fd in fds:
                os.close(fd)
            if len(moved) != len(keys):
                raise AssertionError(f"{len(moved)} groups have come")

        return elapsed(move)

    def as_dict() -> float:
        return elapsed(lambda: pickle.loads(pickle.dumps(values, 5)))

    with Bench("stealing_table", "s") as bench:
        bench.facts = {"target": "ratio >= 50 to dict", "megabytes": groups.nbytes >> 20}
        bench.ours(ours)
        bench.peer("dict", as_dict)
        report.add(bench.measure(rounds=options.rounds))


def main() -> int:
    options = parse_options(__doc__, ["stealing", "stealing_table"])
    report = Report(options)
    if options.wants("stealing"):
        stealing(options, report)
    if options.wants("stealing_table"):
        stealing_table(options, report)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
