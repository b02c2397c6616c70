"""What a job has done so far, per vertex, processor, edge and worker; names are Jet's in snake_case."""

from __future__ import annotations

from typing import Any

import msgspec


class ProcessorMetrics(msgspec.Struct, frozen=True):
    """One processor.

    `received_count`, `emitted_count`: items; `received_batches`: lists of items taken from lanes; `calls`: callbacks,
    of which `slow_calls` took more than 5 ms; `busy_ns`: nanoseconds spent in them; watermarks are None until one came;
    `blocked_count`: how often what it had emitted found a lane full and had to wait.
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


class VertexMetrics(msgspec.Struct, frozen=True):
    """One vertex: its processors and their sums."""

    name: str
    processors: list[ProcessorMetrics]

    @property
    def received_count(self) -> int:
        """Items taken from all inbound edges by all processors."""
        return sum(p.received_count for p in self.processors)

    @property
    def emitted_count(self) -> int:
        """Items emitted to all outbound edges by all processors; one offered to two ordinals counts twice."""
        return sum(p.emitted_count for p in self.processors)

    @property
    def blocked_count(self) -> int:
        """How often what a processor had emitted found a lane full and had to wait, over all processors."""
        return sum(p.blocked_count for p in self.processors)


class EdgeMetrics(msgspec.Struct, frozen=True):
    """One edge: items that entered and left it, and how full its rings are (items; local lanes are not counted).

    `ring_bytes`: bytes written into its rings so far, with headers and padding; what stays on a worker is not in it.
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


class WorkerMetrics(msgspec.Struct, frozen=True):
    """One worker of the member, since it started: `busy` is the share of its time that it did not sleep, 0 to 1.

    `rounds` and `sleeps` of its loop; `stolen`: tasklets that other workers have taken from it; `slab_bytes`: bytes of
    large batches that it put into shared memory for others, which is added up when its part of a job ends.
    """

    index: int
    pid: int
    core: int | None
    busy: float
    busy_ns: int
    idle_ns: int
    tasklets: int
    rounds: int = 0
    sleeps: int = 0
    stolen: int = 0
    slab_bytes: int = 0


class Metrics(msgspec.Struct, frozen=True):
    """A job's metrics at one moment.

    `vertices` by name, `edges` and `workers` of the member; `execution_start_time` and `execution_completion_time` in
    seconds since the epoch, None when it has not started or ended.

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

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists and numbers, fit for JSON."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


NO_METRICS = Metrics({}, [], [])
