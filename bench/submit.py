"""The smallest job from submission to its end, on an instance that is idle and warm, against PySpark's smallest job.

`empty_job`: a source of nothing into a sink of nothing, one processor each; PySpark's collects one empty
partition, which needs no Python worker. The unit is seconds per job; the figure of a round is the median of its jobs.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable

from _harness import Bench, Options, PeerSkipped, Report, elapsed, parse_options
from _spark import local_session


def median_of(count: int, run: Callable[[], object]) -> float:
    """The median seconds of `count` calls."""
    return statistics.median(elapsed(run) for _ in range(count))


def empty_job(options: Options, report: Report) -> None:
    """A new job each time: described, sent, planned, run and reported."""
    import shmjet
    from shmjet import DAG, between, processors

    dag = DAG()
    source = dag.new_vertex("source", processors.read_items([]), local_parallelism=1)
    sink = dag.new_vertex("sink", processors.noop(), local_parallelism=1)
    dag.edge(between(source, sink))
    jobs, spark_jobs = (50, 10) if options.quick else (300, 30)
    with Bench("empty_job", "s") as bench:
        jet = bench.resources.enter_context(shmjet.new_instance(shmjet.JetConfig(cores=options.workers)))
        bench.facts = {"workers": options.workers, "jobs a round": jobs}
        bench.ours(lambda: median_of(jobs, lambda: jet.new_job(dag).run(timeout=60)))
        try:
            session = bench.resources.enter_context(local_session(options, "pyspark"))
        except PeerSkipped as reason:
            bench.skip("pyspark", str(reason))
        else:
            context = session.sparkContext
            bench.peer("pyspark", lambda: median_of(spark_jobs, context.parallelize([], 1).collect))
        report.add(bench.measure(rounds=options.rounds, warm_up=2))


def main() -> int:
    """Measure what was asked for."""
    options = parse_options(__doc__, benches=["empty_job"])
    report = Report(options)
    if options.wants("empty_job"):
        empty_job(options, report)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
