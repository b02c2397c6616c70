"""What metrics cost: CPU time of the engine on word count and exchange, with them, without, and while `top` watches.

The figure is CPU seconds of the member and all its workers for one job, which other load on the machine disturbs far
less than it does wall time. Jobs are short and many, the three take turns, and each turn gives a ratio of its own, so
that what changes slowly (clock rate, caches, neighbours) meets all three alike; the ratio is the median of these, with
a 95 % confidence interval of that median by bootstrap. As that still has the noise of the machine in it, the fact
`counters` bounds the cost from the other side: how often processors have published their counters times the least time
that takes.

Without metrics means that workers run with SHMJET_METRICS=0 and processors publish nothing. `top` is a process of its
own that reads everything five times a second from shared memory; what it uses itself is the fact `watcher`.

Target: a ratio of at least 0.99 to each, 1 % that is.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import random
import statistics
import subprocess
import sys
import time
import timeit
from array import array
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from _harness import Bench, Options, Report, Result, parse_options
from _words import text_file
from exchange import share_of

BENCHES = ["overhead_wordcount", "overhead_exchange"]
TARGET = "ratio >= 0.99 to each"
PAIRS = 2_000_000
MEGABYTES = 20
TURNS = 40
QUICK_TURNS = 12
RESAMPLES = 4000

_WATCHER = """
import sys, time
from shmjet.cluster.monitor.local import attach_all
from shmjet.observe.flow import FlowMeter
member = next(member for member in attach_all() if member.pid == int(sys.argv[1]))
meter = FlowMeter()
while True:
    for row in member.running():
        meter.take(member.metrics(row), time.time())
    time.sleep(0.2)
"""


def cpu_seconds(pids: Sequence[int]) -> float:
    """The time that these processes have been on a core, with all their threads, to the nanosecond."""
    threads = [thread for pid in pids for thread in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


class Contender:
    """An instance with a job that it runs repeatedly.

    Args:
        make: makes the DAG.
        bench: keeps the instance open.
        counts: with metrics.
        watched: while someone looks.
    """

    def __init__(
        self, make: Any, options: Options, bench: Bench, *, counts: bool = True, watched: bool = False
    ) -> None:
        import shmjet

        os.environ["SHMJET_METRICS"] = "1" if counts else "0"
        self._jet = bench.resources.enter_context(shmjet.new_instance(shmjet.JetConfig(cores=options.workers)))
        (member,) = self._jet.cluster.members
        self._pids = (member.pid, *member.workers)
        self._make = make
        self.figures: list[float] = []
        """CPU seconds of each run so far."""
        self.watcher = 0
        if watched:
            watcher = subprocess.Popen([sys.executable, "-c", _WATCHER, str(member.pid)])
            self.watcher = watcher.pid
            bench.resources.callback(watcher.wait)
            bench.resources.callback(watcher.kill)

    def run(self) -> float:
        """CPU seconds of member and workers for one job."""
        job = self._jet.new_job(self._make())
        before = cpu_seconds(self._pids)
        job.run(timeout=600)
        self.figures.append(cpu_seconds(self._pids) - before)
        return self.figures[-1]


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


def paired(theirs: Sequence[float], ours: Sequence[float], resamples: int = RESAMPLES) -> tuple[float, float, float]:
    """The median of the ratios of pairs, and the bounds of its 95 % confidence interval by bootstrap.

    Example:
        >>> paired([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
        (1.0, 1.0, 1.0)
    """
    ratios = [their / our for their, our in zip(theirs, ours, strict=True)]
    chance = random.Random(0)
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(resamples))
    return statistics.median(ratios), medians[resamples // 40], medians[-resamples // 40]


def compare(bench: Bench, make: Any, options: Options) -> Result:
    """Run the three in turn and return the result, whose ratios are those of pairs."""
    ours = Contender(make, options, bench)
    peers = {
        "without metrics": Contender(make, options, bench, counts=False),
        "while top watches": Contender(make, options, bench, watched=True),
    }
    bench.ours(ours.run)
    for name, peer in peers.items():
        bench.peer(name, peer.run)
    watcher = peers["while top watches"].watcher
    began, used = time.monotonic(), cpu_seconds([watcher])
    result = bench.measure(rounds=QUICK_TURNS if options.quick else TURNS)
    share = (cpu_seconds([watcher]) - used) / (time.monotonic() - began)
    ratios = {name: paired(peer.figures[1:], ours.figures[1:]) for name, peer in peers.items()}
    return dataclasses.replace(
        result,
        ratio={name: middle for name, (middle, _, _) in ratios.items()},
        facts={
            **result.facts,
            "95 % interval": {name: f"{low:.3f} to {high:.3f}" for name, (_, low, high) in ratios.items()},
            "watcher": f"{share:.1%} of a core",
        },
    )


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
    from shmjet.core.latency_policy import THROUGHPUT
    from shmjet.execution.counters import ProcessorCounters, blank_block
    from shmjet.execution.inbound_edge import InboundEdge
    from shmjet.execution.outbound_edge import Outbound, make_router
    from shmjet.execution.tasklet import ProcessorTasklet
    from shmjet.ring.lane import LocalLane

    lanes: list[Any] = [LocalLane(1024)]
    router = make_router(
        "unicast", lanes, producers=1, workers=1, key_fn=None, partitioner=None, table=array("H"), target_partition=0,
        edge="", policy=THROUGHPUT,
    )  # fmt: skip
    counters = ProcessorCounters(memoryview(bytearray(blank_block(1, 1))), 0, 1, 1)
    edge = InboundEdge(0, [LocalLane(1024)])
    outbound = [Outbound(lanes, router)]
    tasklet = ProcessorTasklet(Processor(), ProcessorContext(), Outbox([1024]), [edge], outbound, counters, THROUGHPUT)
    return min(timeit.repeat(tasklet.publish, number=1000, repeat=20)) * 1e6


def main() -> int:
    """Run the benches that are asked for."""
    options = parse_options(__doc__, BENCHES)
    report = Report(options)
    for name, make in (
        ("overhead_wordcount", functools.partial(wordcount_dag, MEGABYTES)),
        ("overhead_exchange", functools.partial(exchange_dag, PAIRS)),
    ):
        if options.wants(name):
            with Bench(name, "CPU s") as bench:
                bench.facts["target"] = TARGET
                bench.facts["counters"] = published(make, options)
                report.add(compare(bench, make, options))
    os.environ.pop("SHMJET_METRICS", None)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
