"""`/metrics`: Jet's metrics as Prometheus' text.

Names are Jet's in snake_case with the prefix `shmjet_`; counters end in `_total`, as Prometheus wants it, and times
are in seconds. Every job's metrics carry `job` (its name, else its id), `execution` and `member`; those of a vertex
`vertex`; those of a processor `processor` (its global index) and `worker`; those of an edge's end `ordinal`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from shmjet.cluster.protocol import Attached, ExecutionRow
from shmjet.console.job_tracker import JobTrack
from shmjet.console.membership import WatchedMember
from shmjet.execution.metrics import EdgeMetrics, Metrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

COUNTERS = {
    "emitted_count": "Items that a processor emitted to an outbound edge.",
    "received_count": "Items that a processor took from an inbound edge.",
    "received_batches": "Lists of items that a processor took from an inbound edge.",
    "calls": "Callbacks of a processor.",
    "slow_calls": "Callbacks of a processor that took more than 5 ms.",
    "busy_seconds": "Time that a processor spent in its callbacks.",
    "blocked_count": "How often what a processor had emitted found a lane full.",
    "late_events_dropped": "Events that came too late for a processor and were dropped.",
    "failed_items_skipped": "Items that a processor skipped because a function failed on them.",
    "ring_bytes": "Bytes written into the rings of an edge, by its destination and ordinal there.",
    "distributed_items_out": "Items that left on an edge for another member, by source and ordinal there.",
    "distributed_bytes_out": "Bytes that left on an edge for another member, by source and ordinal there.",
    "distributed_items_in": "Items that came on an edge from another member, by destination and ordinal there.",
    "distributed_bytes_in": "Bytes that came on an edge from another member, by destination and ordinal there.",
    "edge_waited_seconds": "Time that the producers of an edge waited for room, by its destination and ordinal there.",
    "worker_busy_seconds": "Time that a worker did not sleep.",
    "worker_idle_seconds": "Time that a worker slept.",
    "iteration_count": "Rounds of a worker's loop.",
    "worker_sleeps": "How often a worker went to sleep.",
    "worker_stolen": "Tasklets that other workers have taken from a worker.",
    "process_cpu_seconds": "CPU time of a process of the member.",
    "jobs_submitted": "Executions that were started.",
    "jobs_completed_successfully": "Executions that completed.",
    "jobs_completed_with_failure": "Executions that failed.",
    "jobs_cancelled": "Executions that were cancelled.",
    "execution_attempts": "Attempts of an execution so far.",
}
GAUGES = {
    "queues_size": "Items in the queues of an edge, by its destination and ordinal there.",
    "queues_capacity": "Items that the queues of an edge can hold.",
    "top_observed_wm": "The highest watermark that any inbound queue of a processor has brought.",
    "coalesced_wm": "The highest watermark that all inbound queues of a processor have brought.",
    "last_forwarded_wm": "The last watermark that a processor has emitted.",
    "job_status": "1 for the present status of a job.",
    "execution_start_time": "When an execution started, in seconds since 1970.",
    "execution_completion_time": "When an execution ended, in seconds since 1970.",
    "last_snapshot_id": "Number of the last snapshot of an execution.",
    "last_snapshot_start_time": "When the last snapshot of an execution began, in seconds since 1970.",
    "last_snapshot_duration_seconds": "How long the last snapshot of an execution took to be saved.",
    "snapshot_bytes": "Bytes of a vertex in the last snapshot.",
    "snapshot_keys": "Entries of a vertex in the last snapshot.",
    "tasklet_count": "Tasklets that a worker runs now.",
    "process_resident_bytes": "Resident memory of a process of the member, shared pages included.",
    "member_info": "1 for each member that lives.",
    "member_start_time": "When a member started, in seconds since 1970.",
}


class _Families:
    """Metric families that come into being with their first sample, each with one set of labels."""

    def __init__(self) -> None:
        self._families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}

    def add(self, name: str, value: float | None, **labels: object) -> None:
        """Add a sample; None is none."""
        if value is None:
            return
        family = self._families.get(name)
        if family is None:
            if name in COUNTERS:
                family = CounterMetricFamily(f"shmjet_{name}", COUNTERS[name], labels=list(labels))
            else:
                family = GaugeMetricFamily(f"shmjet_{name}", GAUGES[name], labels=list(labels))
            self._families[name] = family
        family.add_metric([str(label) for label in labels.values()], value)

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._families.values())


class _Collector(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


Reading = tuple[WatchedMember, Sequence[tuple[JobTrack, Metrics]]]
"""A member, as it was looked at last, with the metrics of its jobs."""


def exposition(readings: Iterable[Reading]) -> bytes:
    """Return the text of `/metrics`."""
    families = _Families()
    for member, jobs in readings:
        if member.about is not None:
            _add_member(families, member, member.about)
            for track, metrics in jobs:
                _add_job(families, member.about.uuid, track, metrics)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(families))
    return generate_latest(registry)


def _add_member(families: _Families, watched: WatchedMember, about: Attached) -> None:
    member, totals = about.uuid, watched.totals
    families.add("member_info", 1, member=member, cluster=about.settings["cluster_name"], pid=about.pid)
    families.add("member_start_time", about.started_at, member=member)
    families.add("jobs_submitted", totals.started, member=member)
    families.add("jobs_completed_successfully", totals.ended["completed"], member=member)
    families.add("jobs_completed_with_failure", totals.ended["failed"], member=member)
    families.add("jobs_cancelled", totals.ended["cancelled"], member=member)
    for worker in watched.workers:
        labels: dict[str, object] = {"member": member, "worker": worker.index}
        families.add("worker_busy_seconds", worker.busy_ns / 1e9, **labels)
        families.add("worker_idle_seconds", worker.idle_ns / 1e9, **labels)
        families.add("iteration_count", worker.rounds, **labels)
        families.add("worker_sleeps", worker.sleeps, **labels)
        families.add("worker_stolen", worker.stolen, **labels)
        families.add("tasklet_count", worker.tasklets, **labels)
    kinds = {about.pid: "member", **{worker.pid: f"worker {worker.index}" for worker in watched.workers}}
    for pid, usage in watched.usage.items():
        process: dict[str, object] = {"member": member, "process": kinds.get(pid, "gone"), "pid": pid}
        families.add("process_cpu_seconds", usage.cpu_seconds, **process)
        families.add("process_resident_bytes", usage.resident, **process)


def _add_job(families: _Families, member: str, track: JobTrack, metrics: Metrics) -> None:
    job: dict[str, object] = {"job": track.name, "execution": track.row.id, "member": member}
    families.add("job_status", 1, **job, status=track.card().status)
    families.add("execution_start_time", metrics.execution_start_time, **job)
    families.add("execution_completion_time", metrics.execution_completion_time, **job)
    if track.row.leads:
        _add_life(families, job, track.row)
    for vertex in metrics.vertices.values():
        for processor in vertex.processors:
            labels = {**job, "vertex": vertex.name, "processor": processor.index, "worker": processor.worker}
            for ordinal, count in enumerate(processor.emitted_by_ordinal):
                families.add("emitted_count", count, **labels, ordinal=ordinal)
            for ordinal, count in enumerate(processor.received_by_ordinal):
                families.add("received_count", count, **labels, ordinal=ordinal)
            for ordinal, count in enumerate(processor.received_batches_by_ordinal):
                families.add("received_batches", count, **labels, ordinal=ordinal)
            families.add("calls", processor.calls, **labels)
            families.add("slow_calls", processor.slow_calls, **labels)
            families.add("busy_seconds", processor.busy_ns / 1e9, **labels)
            families.add("blocked_count", processor.blocked_count, **labels)
            families.add("late_events_dropped", processor.late_events_dropped, **labels)
            families.add("failed_items_skipped", processor.failed_items_skipped, **labels)
            families.add("top_observed_wm", processor.top_observed_wm, **labels)
            families.add("coalesced_wm", processor.coalesced_wm, **labels)
            families.add("last_forwarded_wm", processor.last_forwarded_wm, **labels)
    for edge in metrics.edges:
        labels = {**job, "vertex": edge.destination, "ordinal": edge.destination_ordinal}
        if edge.queues_capacity:  # else another member tells it
            families.add("queues_size", edge.queues_size, **labels)
            families.add("queues_capacity", edge.queues_capacity, **labels)
            families.add("ring_bytes", edge.ring_bytes, **labels)
            families.add("edge_waited_seconds", edge.waited_ns / 1e9, **labels)
        _add_traffic(families, job, edge)


def _add_life(families: _Families, job: dict[str, object], row: ExecutionRow) -> None:
    """Add what the coordinator alone knows of an execution."""
    families.add("execution_attempts", row.attempts, **job)
    last = row.snapshot
    if last is None:
        return
    families.add("last_snapshot_id", last.id, **job)
    families.add("last_snapshot_start_time", last.started_at, **job)
    families.add("last_snapshot_duration_seconds", last.seconds, **job)
    for name, state in last.vertices.items():
        families.add("snapshot_bytes", state.size, **job, vertex=name)
        families.add("snapshot_keys", state.keys, **job, vertex=name)


def _add_traffic(families: _Families, job: dict[str, object], edge: EdgeMetrics) -> None:
    out = {**job, "vertex": edge.source, "ordinal": edge.source_ordinal}
    into = {**job, "vertex": edge.destination, "ordinal": edge.destination_ordinal}
    for traffic in edge.traffic:
        families.add("distributed_items_out", traffic.items_out, **out, destination_address=traffic.peer)
        families.add("distributed_bytes_out", traffic.bytes_out, **out, destination_address=traffic.peer)
        families.add("distributed_items_in", traffic.items_in, **into, source_address=traffic.peer)
        families.add("distributed_bytes_in", traffic.bytes_in, **into, source_address=traffic.peer)
