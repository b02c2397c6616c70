"""What an instance costs that has nothing to do: processor time and memory.

The instance has run a small job on all its workers before, so that they have touched what they need, and then only
waits.

* idle_cpu: nanoseconds on a core of all its processes together (client, member, fork server, workers, janitor), by the
  kernel's own count (`/proc/PID/task/*/schedstat`), over 10 seconds (4 with `--quick`), in percent of one core.
* idle_memory: private memory (USS) of a worker, the mean of all, in MB (10^6 bytes). What workers share with the fork
  server is not in it.

* idle_streams: as idle_cpu, while 100 jobs wait for the first event of a stream with windows.
* idle_native, idle_sockets, idle_built: the same for streams whose time goes on by itself, of sockets on which nothing
  comes, and of a user's functions that have had nothing for a minute (10 seconds with `--quick`, when they are asked
  more often).

There is no peer. Targets: 0.5 % of a core in all, 15 MB for each worker, and 2 % of a core for the 100 jobs.
"""

from __future__ import annotations

import socket
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from _harness import Bench, Options, Report, parse_options

STREAMS = ["idle_streams", "idle_native", "idle_sockets", "idle_built"]
BENCHES = ["idle_cpu", "idle_memory", *STREAMS]
JOBS = 100
RARELY = 1e-4
"""Items a second of a stream of which no second item comes while it is looked at."""
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


def silent_stream(p: Any, kind: str, bench: Bench) -> Any:
    """The stream of a job on which nothing comes."""
    from shmjet import sources

    if kind == "idle_native":
        return p.read_from(sources.item_stream(RARELY)).with_native_timestamps()
    if kind == "idle_sockets":
        server = bench.resources.enter_context(socket.create_server(("127.0.0.1", 0)))
        return p.read_from(sources.socket_stream(*server.getsockname())).with_ingestion_timestamps()
    if kind == "idle_built":
        built = sources.builder("nothing", lambda context: None).fill_buffer_fn(lambda _, buffer: None).stream()
        return p.read_from(built).with_ingestion_timestamps()
    return p.read_from(sources.item_stream(RARELY)).with_timestamps(lambda event: event.timestamp)


def wait_for_events(jet: Any, bench: Bench, kind: str, settle_s: float) -> None:
    """Start jobs that have nothing to do."""
    from shmjet import JobStatus, Pipeline, aggregate_ops, sinks, tumbling

    executions = []
    for _ in range(JOBS):
        p = Pipeline()
        stream = silent_stream(p, kind, bench)
        stream.window(tumbling(1)).aggregate(aggregate_ops.counting()).write_to(sinks.noop())
        executions.append(jet.new_job(p).execute())
        bench.resources.callback(executions[-1].cancel)
    deadline = time.monotonic() + 60
    while any(execution.status is not JobStatus.RUNNING for execution in executions):
        if time.monotonic() > deadline:
            raise TimeoutError(f"after a minute not all of {JOBS} jobs run: {[e.status.name for e in executions]}")
        time.sleep(0.1)
    time.sleep(settle_s)


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
    for kind in filter(options.wants, STREAMS):
        with Bench(kind, "% of a core") as bench:
            seconds = 4.0 if options.quick else 10.0
            bench.facts = {"target": "at most 2", "jobs": JOBS, "workers": options.workers, "seconds": seconds}
            settle_s = SETTLE_S if kind != "idle_built" else 10.0 if options.quick else 70.0
            wait_for_events(instance(options, bench), bench, kind, settle_s)
            bench.ours(partial(processor_share, seconds))
            report.add(bench.measure(rounds=3, warm_up=0))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
