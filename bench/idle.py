"""What an instance costs that has nothing to do: processor time and memory.

The instance has run a small job on all its workers before, so that they have touched what they need, and then only
waits.

* idle_cpu: nanoseconds on a core of all its processes together (client, member, fork server, workers, janitor), by the
  kernel's own count (`/proc/PID/task/*/schedstat`), over 10 seconds (4 with `--quick`), in percent of one core.
* idle_memory: private memory (USS) of a worker, the mean of all, in MB (10^6 bytes). What workers share with the fork
  server is not in it.

There is no peer. Targets: 0.5 % of a core in all, and 15 MB for each worker.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import Any

import psutil
from _harness import Bench, Options, Report, parse_options

BENCHES = ["idle_cpu", "idle_memory"]
SETTLE_S = 1.0


def instance(options: Options, bench: Bench) -> Any:
    """An instance that has run a job and settled."""
    import shmjet
    from shmjet import DAG, between, processors

    jet = bench.resources.enter_context(shmjet.new_instance(shmjet.JetConfig(cores=options.workers)))
    dag = DAG()
    source = dag.new_vertex("source", processors.generate(lambda index, count: range(100_000)))
    mapped = dag.new_vertex("map", processors.map(lambda n: (f"word{n % 1000}", n)))
    sink = dag.new_vertex("sink", processors.noop())
    dag.edge(between(source, mapped)).edge(between(mapped, sink).partitioned(lambda pair: pair[0]))
    jet.new_job(dag).run(timeout=60)
    time.sleep(SETTLE_S)
    return jet


def on_core_ns() -> dict[tuple[int, str], int]:
    """Nanoseconds that each thread of this process and of all below it has run so far."""
    me = psutil.Process()
    found = {}
    for process in [me, *me.children(recursive=True)]:
        for path in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
            found[process.pid, path.parent.name] = int(path.read_text().split()[0])
    return found


def processor_share(seconds: float) -> float:
    """Percent of one core over that time; a thread that comes meanwhile counts from its start."""
    before, start = on_core_ns(), time.perf_counter_ns()
    looking = sum(on_core_ns().values()) - sum(before.values())  # one look costs about as much as the next
    time.sleep(seconds)
    after, now = on_core_ns(), time.perf_counter_ns()
    used = sum(ns - before.get(thread, 0) for thread, ns in after.items()) - 2 * looking
    return max(0.0, 100 * used / (now - start))


def private_memory(pids: list[int]) -> float:
    """Mean USS in MB."""
    return statistics.mean(psutil.Process(pid).memory_full_info().uss for pid in pids) / 1e6


def main() -> int:
    options = parse_options(__doc__, BENCHES)
    report = Report(options)
    if options.wants("idle_cpu"):
        with Bench("idle_cpu", "% of a core") as bench:
            seconds = 4.0 if options.quick else 10.0
            bench.facts = {"target": "at most 0.5", "workers": options.workers, "seconds": seconds}
            instance(options, bench)
            bench.ours(lambda: processor_share(seconds))
            report.add(bench.measure(rounds=3, warm_up=0))
    if options.wants("idle_memory"):
        with Bench("idle_memory", "MB") as bench:
            jet = instance(options, bench)
            pids = [pid for member in jet.cluster.members for pid in member.workers]
            bench.facts = {"target": "at most 15 a worker", "workers": len(pids)}
            bench.ours(lambda: private_memory(pids))
            report.add(bench.measure(rounds=1, warm_up=0))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
