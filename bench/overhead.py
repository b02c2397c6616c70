"""What metrics cost: CPU time of the workers on word count and exchange, with them, without, and while `top` watches.

The figure is CPU seconds of all workers for one job, which other load on the machine disturbs far less than it does
wall time; the three take turns. Without metrics means that workers run with SHMJET_METRICS=0 and processors publish
nothing. `top` is a process of its own that reads everything five times a second from shared memory.

Target: a ratio of at least 0.99 to each, 1 % that is.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import timeit
from array import array
from operator import itemgetter
from pathlib import Path
from typing import Any

from _harness import Bench, Options, Report, parse_options
from _words import text_file
from exchange import share_of

BENCHES = ["overhead_wordcount", "overhead_exchange"]
TARGET = "ratio >= 0.99 to each"
PAIRS = 10_000_000
MEGABYTES = 100

_WATCHER = """
import sys, time
from shmjet.cluster.attach import attach_all
from shmjet.observe.flow import FlowMeter
member = next(member for member in attach_all() if member.pid == int(sys.argv[1]))
meter = FlowMeter()
while True:
    for row in member.running():
        meter.take(member.metrics(row), time.time())
    time.sleep(0.2)
"""


def cpu_seconds(pids: tuple[int, ...]) -> float:
    """The time that these processes have been on a core."""
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in pids) / 1e9


class Contender:
    """An instance with a job that it runs again and again.

    Args:
        make: makes the DAG.
        bench: keeps the instance open.
        counts: with metrics.
        watched: while somebody looks.
    """

    def __init__(
        self, make: Any, options: Options, bench: Bench, *, counts: bool = True, watched: bool = False
    ) -> None:
        import shmjet

        os.environ["SHMJET_METRICS"] = "1" if counts else "0"
        self._jet = bench.resources.enter_context(shmjet.new_instance(shmjet.JetConfig(cores=options.workers)))
        (member,) = self._jet.cluster.members
        self._pids = member.workers
        self._make = make
        if watched:
            watcher = subprocess.Popen([sys.executable, "-c", _WATCHER, str(member.pid)])
            bench.resources.callback(watcher.wait)
            bench.resources.callback(watcher.kill)

    def run(self) -> float:
        """CPU seconds of all workers for one job."""
        job = self._jet.new_job(self._make())
        before = cpu_seconds(self._pids)
        job.run(timeout=600)
        return cpu_seconds(self._pids) - before


def exchange_dag(count: int) -> Any:
    """Pairs partitioned by key from all sources to all counters."""
    from shmjet import DAG, between, processors

    dag = DAG()
    source = dag.new_vertex("source", processors.generate(functools.partial(share_of, count)))
    counter = dag.new_vertex("count", processors.aggregate(processors.counting()))
    sink = dag.new_vertex("sink", processors.noop(), local_parallelism=1)
    return dag.edge(between(source, counter).partitioned(itemgetter(0))).edge(between(counter, sink))


def wordcount_dag(megabytes: int) -> Any:
    """Lines to words to counts, with Python functions on items: the way with the most calls of processors."""
    from shmjet.cli import wordcount

    return wordcount.wordcount_dag([str(text_file(50_000, megabytes))])


def published(make: Any, options: Options) -> str:
    """Say what the counters must cost: how often processors publish them, times what it takes, of their time."""
    import shmjet

    with shmjet.new_instance(shmjet.JetConfig(cores=options.workers)) as jet:
        job = jet.new_job(make())
        job.run(timeout=600)
        vertices = job.metrics().vertices.values()
    calls = sum(processor.calls for vertex in vertices for processor in vertex.processors)
    busy, each = sum(vertex.busy_ns for vertex in vertices), nanoseconds_to_publish()
    return f"{calls} calls x {each:.0f} ns = {100 * calls * each / busy:.2f} % of the processors' time"


def nanoseconds_to_publish() -> float:
    """The least time that a tasklet with an edge on either side takes to publish its counters."""
    from shmjet.core import Outbox, Processor, ProcessorContext
    from shmjet.execution.counters import ProcessorCounters, blank_block
    from shmjet.execution.inbound import InboundEdge
    from shmjet.execution.outbound import Outbound, make_router
    from shmjet.execution.tasklet import ProcessorTasklet
    from shmjet.ring.lane import LocalLane

    lanes: list[Any] = [LocalLane(1024)]
    router = make_router(
        "unicast", lanes, producers=1, workers=1, key_fn=None, partitioner=None, table=array("H"), target_partition=0,
        edge="",
    )  # fmt: skip
    counters = ProcessorCounters(memoryview(bytearray(blank_block(1, 1))), 0, 1, 1)
    edge = InboundEdge(0, [LocalLane(1024)])
    outbound = [Outbound(lanes, router)]
    tasklet = ProcessorTasklet(Processor(), ProcessorContext(), Outbox([1024]), [edge], outbound, counters)
    return min(timeit.repeat(tasklet._count, number=1000, repeat=20)) * 1e6


def main() -> int:
    """Run the benches that are asked for."""
    options = parse_options(__doc__, BENCHES)
    report = Report(options)
    share = 5 if options.quick else 1
    for name, make in (
        ("overhead_wordcount", functools.partial(wordcount_dag, MEGABYTES // share)),
        ("overhead_exchange", functools.partial(exchange_dag, PAIRS // share)),
    ):
        if options.wants(name):
            with Bench(name, "CPU s") as bench:
                bench.facts["target"] = TARGET
                bench.ours(Contender(make, options, bench).run)
                bench.peer("without metrics", Contender(make, options, bench, counts=False).run)
                bench.peer("while top watches", Contender(make, options, bench, watched=True).run)
                bench.facts["counters"] = published(make, options)
                report.add(bench.measure(rounds=3 * options.rounds))
    os.environ.pop("SHMJET_METRICS", None)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
