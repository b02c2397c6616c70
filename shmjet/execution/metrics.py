"""What a job has done so far, per vertex, processor, edge and worker; names are Jet's in snake_case."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import msgspec


class InboundTime(msgspec.Struct, frozen=True):
    """How far time has come on an inbound edge of one processor.

    `coalesced_wm`: the last watermark that all its lanes allowed; `slowest_producer`: the processor (its global index)
    whose lane holds it there, -1 for none; `slowest_wm`: the last watermark of that lane; None: none has come yet.
    `is_idle`: all lanes are; `is_done`: all have ended.
    """

    coalesced_wm: int | None
    slowest_producer: int
    slowest_wm: int | None
    is_idle: bool
    is_done: bool


class SourcePartitions(msgspec.Struct, frozen=True):
    """The partitions of what a source processor reads, as far as its watermark goes.

    Of `count` partitions `idle` hold nothing back. Of the others, `slowest` has the lowest watermark, `slowest_wm`
    (None before its first event), after `slowest_events` events; -1 when all are idle.
    """

    count: int
    idle: int
    slowest: int
    slowest_wm: int | None
    slowest_events: int


class ProcessorMetrics(msgspec.Struct, frozen=True):
    """One processor.

    `received_count`, `emitted_count`: items; `received_batches`: lists of items taken from lanes; `calls`: callbacks,
    of which `slow_calls` took more than 5 ms; `busy_ns`: nanoseconds spent in them; watermarks are None until one came;
    `blocked_count`: how often what it had emitted found a lane full and had to wait. `work_done` and `work_total`: how
    far a source is, in `work_unit` ("items" or "bytes"); a total of 0 is not known. `state` is the name of a
    `shmjet.execution.tasklet_state.State`. `..._by_ordinal`: the counts of each inbound or outbound edge. `member`:
    the address of the member that it runs on, empty where the job runs on one member. `late_events_dropped`: events
    that came too late for it; `failed_items_skipped`: items on which a function failed (`on_error`).
    `is_idle`: the last mark of time that it has sent is the idle message; `wm_changed_at`: when its watermark last
    rose, in seconds since the epoch; `time_by_ordinal`: of each inbound edge; `partitions`: of a source with event
    time.
    """

    index: int
    worker: int
    received_count: int
    received_batches: int
    emitted_count: int
    calls: int
    slow_calls: int
    busy_ns: int
    top_observed_wm: int | None
    coalesced_wm: int | None
    last_forwarded_wm: int | None
    blocked_count: int
    work_done: int = 0
    work_total: int = 0
    work_unit: str = "items"
    state: str = ""
    received_by_ordinal: list[int] = []
    received_batches_by_ordinal: list[int] = []
    emitted_by_ordinal: list[int] = []
    member: str = ""
    late_events_dropped: int = 0
    failed_items_skipped: int = 0
    is_idle: bool = False
    wm_changed_at: float | None = None
    time_by_ordinal: list[InboundTime] = []
    partitions: SourcePartitions | None = None


class VertexMetrics(msgspec.Struct, frozen=True):
    """One vertex: its processors and their sums.

    `snapshot_keys` and `snapshot_bytes`: what the last snapshot of the job holds of it.
    """

    name: str
    processors: list[ProcessorMetrics]
    snapshot_keys: int = 0
    snapshot_bytes: int = 0

    @property
    def received_count(self) -> int:
        """Items taken from all inbound edges by all processors."""
        return sum(p.received_count for p in self.processors)

    @property
    def emitted_count(self) -> int:
        """Items emitted to all outbound edges by all processors; one offered to two ordinals counts twice."""
        return sum(p.emitted_count for p in self.processors)

    @property
    def received_batches(self) -> int:
        """Lists of items taken from lanes by all processors."""
        return sum(p.received_batches for p in self.processors)

    @property
    def blocked_count(self) -> int:
        """How often what a processor had emitted found a lane full and had to wait, over all processors."""
        return sum(p.blocked_count for p in self.processors)

    @property
    def late_events_dropped(self) -> int:
        """Events that came too late and were dropped, over all processors."""
        return sum(p.late_events_dropped for p in self.processors)

    @property
    def failed_items_skipped(self) -> int:
        """Items on which a function failed and which were skipped (`on_error`), over all processors."""
        return sum(p.failed_items_skipped for p in self.processors)

    @property
    def busy_ns(self) -> int:
        """Nanoseconds that all processors together have spent in callbacks."""
        return sum(p.busy_ns for p in self.processors)

    @property
    def top_observed_wm(self) -> int | None:
        """The highest watermark that any processor has seen on a lane."""
        return max((p.top_observed_wm for p in self.processors if p.top_observed_wm is not None), default=None)

    @property
    def coalesced_wm(self) -> int | None:
        """The lowest of the processors' coalesced watermarks: how far the whole vertex is."""
        return _least(p.coalesced_wm for p in self.processors)

    @property
    def last_forwarded_wm(self) -> int | None:
        """The lowest of the watermarks that the processors have passed on."""
        return _least(p.last_forwarded_wm for p in self.processors)

    def last_forwarded_wm_latency(self, now_ms: float | None = None) -> float | None:
        """Return by how many milliseconds the watermark passed on is behind the clock; None before the first.

        Args:
            now_ms: milliseconds since 1970, as the timestamps are supposed to be; by default the time of the call.
        """
        watermark = self.last_forwarded_wm
        return None if watermark is None else (time.time() * 1000 if now_ms is None else now_ms) - watermark


class TrafficMetrics(msgspec.Struct, frozen=True):
    """What has gone on one edge from `member` to `peer`, and come from there; both are addresses.

    Items, and bytes of payload: headers of packets and what TCP and TLS add are not in it.
    """

    member: str
    peer: str
    items_out: int
    bytes_out: int
    items_in: int
    bytes_in: int


class EdgeMetrics(msgspec.Struct, frozen=True):
    """One edge: items that entered and left it, those under way and how many may be.

    `ring_bytes`: bytes written into its rings so far, with headers and padding; what stays on a worker is not in it.
    `waited_ns`: how long its producers have waited for room in it, all together. `traffic`: what went over the network,
    for each pair of members; empty on edges that stay within members.
    """

    source: str
    source_ordinal: int
    destination: str
    destination_ordinal: int
    emitted_count: int
    received_count: int
    queues_size: int
    queues_capacity: int
    ring_bytes: int
    waited_ns: int = 0
    traffic: list[TrafficMetrics] = []

    @property
    def distributed_items_out(self) -> int:
        """Items that left for other members."""
        return sum(t.items_out for t in self.traffic)

    @property
    def distributed_bytes_out(self) -> int:
        """Bytes that left for other members."""
        return sum(t.bytes_out for t in self.traffic)

    @property
    def distributed_items_in(self) -> int:
        """Items that came from other members. In a job's metrics, which have all members, as many as left."""
        return sum(t.items_in for t in self.traffic)

    @property
    def distributed_bytes_in(self) -> int:
        """Bytes that came from other members."""
        return sum(t.bytes_in for t in self.traffic)


class WorkerMetrics(msgspec.Struct, frozen=True):
    """One worker of the member, since it started: `busy` is the share of its time that it did not sleep, 0 to 1.

    `pid` is None before its process runs. `rounds` and `sleeps` of its loop; `stolen`: tasklets that other workers have
    taken from it; `slab_bytes`: bytes of large batches that it put into shared memory for others, which is added up
    when its part of a job ends.
    """

    index: int
    pid: int | None
    core: int | None
    busy: float
    busy_ns: int
    idle_ns: int
    tasklets: int
    rounds: int = 0
    sleeps: int = 0
    stolen: int = 0
    slab_bytes: int = 0
    member: str = ""


class Metrics(msgspec.Struct, frozen=True):
    """A job's metrics at one moment.

    `vertices` by name, `edges` and `workers` of the member; `execution_start_time` and `execution_completion_time` in
    seconds since the epoch, None when it has not started or ended. Counts are those of the latest attempt, of which
    there were `attempts`. `last_snapshot_id` (0 for none), `last_snapshot_start_time` (seconds since the epoch),
    `last_snapshot_duration` (seconds), `last_snapshot_bytes` and `last_snapshot_keys` tell of the last snapshot.

    Example:
        >>> metrics = job.metrics()                      # doctest: +SKIP
        >>> metrics.vertices["map"].received_count             # doctest: +SKIP
        1000
    """

    vertices: dict[str, VertexMetrics]
    edges: list[EdgeMetrics]
    workers: list[WorkerMetrics]
    execution_start_time: float | None = None
    execution_completion_time: float | None = None

    attempts: int = 1
    last_snapshot_id: int = 0
    last_snapshot_start_time: float | None = None
    last_snapshot_duration: float | None = None
    last_snapshot_bytes: int = 0
    last_snapshot_keys: int = 0
    snapshot_waits_for: list[str] = []
    """Vertices whose end a snapshot waits for: they feed edges of higher priority."""
    waits_for: str = ""
    """What the next attempt waits for, such as further members; empty while it waits for nothing."""
    last_restart_cause: str = ""
    """Why the latest attempt was begun; empty for the first one."""
    last_restart_duration: float | None = None
    """Seconds from the failure, or the order to stop, until the job ran again; None while it does not."""

    taken_ns: int = 0
    """When these numbers were read, by `time.perf_counter_ns`, which all processes of a host share."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists and numbers, fit for JSON."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    def __repr__(self) -> str:
        counts = ", ".join(
            f"{v.name}: {v.received_count:,} in, {v.emitted_count:,} out" for v in self.vertices.values()
        )
        return f"<Metrics {counts or 'of no vertex'}>"

    def _repr_html_(self) -> str:
        """Show vertices, edges and workers, in a notebook."""
        from shmjet.execution.metrics_html import metrics_html

        return metrics_html(self)


NO_METRICS = Metrics({}, [], [])


def _least(watermarks: Iterable[int | None]) -> int | None:
    """Return the lowest, None when one is missing or there are none."""
    known = list(watermarks)
    return None if None in known else min((w for w in known if w is not None), default=None)
