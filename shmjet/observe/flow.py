"""From counters to rates and shares: what a job does just now, where it is held up, how far it is.

Pure arithmetic on metrics that were read at two moments; the clock comes in with the numbers. The bottleneck is found
as an engineer would: an edge is full when its producers spend their time waiting for room in it, and of several full
edges in a row the last one counts, because the others are full only on its account.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from shmjet.execution.metrics import EdgeMetrics, Metrics, ProcessorMetrics, VertexMetrics, WorkerMetrics

WINDOW_S = 1.0
"""Rates are means over about so many seconds."""

FULL_WAITING = 0.2
"""An edge whose producers wait for more than this share of their time is called full."""

FULL_FILL = 0.9
"""One whose queues hold more than this share of what they may, too."""

FULL_WORKER = 0.95
"""A worker that sleeps less than the rest of its time has none left to give."""


@dataclass(frozen=True)
class Work:
    """How far a source is: `done` of `total` `unit` ("items" or "bytes"); `eta` in seconds, None if unknown."""

    done: int
    total: int
    unit: str
    eta: float | None

    @property
    def share(self) -> float:
        """How much is done, 0 to 1."""
        return min(self.done / self.total, 1.0) if self.total else 0.0


@dataclass(frozen=True)
class VertexFlow:
    """One vertex: items in all, items per second, and the share of time (0 to 1) that its processors are busy.

    `busy` is the mean of its processors and `busiest` the most of one of them; both are far apart when the work is
    spread unevenly. `work` is there for sources that know how much there is.
    """

    name: str
    processors: int
    received: int
    emitted: int
    received_rate: float
    emitted_rate: float
    busy: float
    busiest: float
    has_ended: bool
    work: Work | None = None


@dataclass(frozen=True)
class EdgeFlow:
    """One edge: items that went through, per second, in its queues (`queued` of `capacity`).

    `waiting` is the share of time (0 to 1) that its producers wait for room in it. `network_items`, `network_bytes`
    and `network_rate` (bytes per second) are what came from other members; 0 where the edge stays within members.
    """

    source: str
    source_ordinal: int
    destination: str
    destination_ordinal: int
    received: int
    rate: float
    queued: int
    capacity: int
    waiting: float
    network_items: int = 0
    network_bytes: int = 0
    network_rate: float = 0.0

    @property
    def fill(self) -> float:
        """How full its queues are, 0 to 1, on average: a single full queue among many may not show."""
        return min(self.queued / self.capacity, 1.0) if self.capacity else 0.0

    @property
    def is_full(self) -> bool:
        """Whether it holds its producers up."""
        return self.waiting >= FULL_WAITING or self.fill >= FULL_FILL

    @property
    def text(self) -> str:
        """Source and destination, with ordinals where they are not 0."""
        source = f"{self.source}[{self.source_ordinal}]" if self.source_ordinal else self.source
        return f"{source} → {self.destination}" + (f"[{self.destination_ordinal}]" if self.destination_ordinal else "")


@dataclass(frozen=True)
class WorkerFlow:
    """One worker of a member: the share of time (0 to 1) that it does not sleep, for whatever job.

    `member` is the member's address, empty where there is but one.
    """

    index: int
    pid: int | None
    core: int | None
    busy: float
    tasklets: int
    member: str = ""


@dataclass(frozen=True)
class Flow:
    """A job at one moment. `bottleneck` is the edge that holds it up, if one does; `seconds` since it was started.

    `is_crowded`: what this edge leads to is not slow but lacks time, because its workers are full with something else,
    which is the vertex `crowded_by`, or other jobs where that is None.
    """

    seconds: float
    vertices: tuple[VertexFlow, ...]
    edges: tuple[EdgeFlow, ...]
    workers: tuple[WorkerFlow, ...]
    bottleneck: EdgeFlow | None
    is_crowded: bool = False
    crowded_by: str | None = None

    @property
    def share(self) -> float | None:
        """How much of all sources' work is done, 0 to 1, by the slowest.

        None when one of them does not know; and when all is read and the job goes on, as it is unknown how much its
        other vertices still have to do.
        """
        return None if self.is_read else min((work.share for work in self._works()), default=None)

    @property
    def eta(self) -> float | None:
        """Seconds until the last source ends, if all goes on like this; None when that is unknown, or it has ended."""
        etas = [work.eta for work in self._works()]
        return None if self.is_read or None in etas else max((eta for eta in etas if eta is not None), default=None)

    @property
    def is_read(self) -> bool:
        """Whether all sources have ended, or emitted all they have, and the job has not ended."""
        done = [vertex.has_ended or (vertex.work is not None and vertex.work.share >= 1) for vertex in self._sources()]
        return bool(done) and all(done) and not all(vertex.has_ended for vertex in self.vertices)

    @property
    def rate(self) -> float:
        """Items a second: what the sources emit, and when all is read what the busiest edge moves."""
        if self.is_read:
            return max((edge.rate for edge in self.edges), default=0.0)
        return sum(vertex.emitted_rate for vertex in self._sources())

    @property
    def slowest(self) -> str | None:
        """The vertex that others wait for, or that takes the CPU time of that vertex; None if there is none."""
        if self.bottleneck is None:
            return None
        return self.crowded_by if self.is_crowded else self.bottleneck.destination

    @property
    def crowding(self) -> str:
        """What goes on from the sentence on the bottleneck: what takes its time; empty where it is too slow itself."""
        return f", whose workers are full, mostly with {self.crowded_by or 'other jobs'}" if self.is_crowded else ""

    def _sources(self) -> list[VertexFlow]:
        fed = {edge.destination for edge in self.edges}
        return [vertex for vertex in self.vertices if vertex.name not in fed]

    def _works(self) -> list[Work]:
        works = [vertex.work for vertex in self._sources()]
        return [] if None in works else [work for work in works if work is not None]

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists and numbers, fit for JSON."""
        plain = asdict(self)
        for shown, edge in zip(plain["edges"], self.edges, strict=True):
            shown |= {"fill": edge.fill, "is_full": edge.is_full}
        plain["bottleneck"] = None if self.bottleneck is None else self.bottleneck.text
        return {**plain, "share": self.share, "eta": self.eta}


class FlowMeter:
    """Makes flows of one execution's metrics, which are handed to it from time to time.

    Example:
        >>> meter = FlowMeter()
        >>> meter.take(metrics, now=time.time()).bottleneck            # doctest: +SKIP
    """

    def __init__(self) -> None:
        self._past: deque[tuple[float, Metrics]] = deque()
        self._begun: float | None = None
        """When the present attempt was seen first; None in the first attempt."""

    def take(self, metrics: Metrics, now: float) -> Flow:
        """Return the flow since about `WINDOW_S` ago; the first time, since the execution was started.

        Args:
            metrics: as they are now.
            now: seconds since 1970.
        """
        end = metrics.execution_completion_time or now
        start = metrics.execution_start_time if metrics.execution_start_time is not None else end
        if self._past and _begins_anew(metrics, self._past[-1][1]):
            self._begun = self._past[-1][0]
            self._past.clear()
        while len(self._past) > 1 and self._past[1][0] <= end - WINDOW_S:
            self._past.popleft()
        before, base = self._past[0] if self._past else (start if self._begun is None else self._begun, None)
        if (metrics.vertices or metrics.workers) and (not self._past or end > self._past[-1][0]):
            self._past.append((end, metrics))
        span = max(end - before, 1e-9) if end > before else 0.0
        edges = tuple(
            _edge(metrics, edge, base.edges[i] if base is not None and base.edges else None, span)
            for i, edge in enumerate(metrics.edges)
        )
        workers = tuple(_workers(metrics.workers, [] if base is None else base.workers))
        bottleneck = None if metrics.execution_completion_time is not None else _bottleneck(edges)
        is_crowded, crowded_by = _crowding(bottleneck, metrics, base, span, workers)
        return Flow(
            seconds=max(end - start, 0.0),
            vertices=tuple(
                _vertex(vertex, None if base is None else base.vertices.get(name), span, max(end - start, 0.0))
                for name, vertex in metrics.vertices.items()
            ),
            edges=edges,
            workers=workers,
            bottleneck=bottleneck,
            is_crowded=is_crowded,
            crowded_by=crowded_by,
        )


def _begins_anew(now: Metrics, before: Metrics) -> bool:
    """Say whether these are the counts of another attempt: they have gone back."""
    if now.attempts != before.attempts:
        return True
    for name, vertex in now.vertices.items():
        calls = {p.index: p.calls for p in before.vertices[name].processors} if name in before.vertices else {}
        if any(p.calls < calls.get(p.index, 0) for p in vertex.processors):
            return True
    return False


def network_rate(edges: Iterable[EdgeFlow]) -> float | None:
    """Return the bytes per second that edges bring from other members; None where none ever has."""
    crossing = [edge.network_rate for edge in edges if edge.network_bytes]
    return sum(crossing) if crossing else None


def _rate(now: int, before: int, span: float) -> float:
    return max(now - before, 0) / span if span else 0.0


def _share(now: int, before: int, span: float, among: int) -> float:
    """Return the share of a span of seconds, times a number, that nanoseconds make."""
    return min(max((now - before) / (span * 1e9 * among), 0.0), 1.0) if span and among else 0.0


def _shares(now: VertexMetrics, before: VertexMetrics | None, span: float) -> list[float]:
    """Return the share of time that each processor is busy."""
    past = {} if before is None else {p.index: p.busy_ns for p in before.processors}  # members may have been late
    return [_share(p.busy_ns, past.get(p.index, 0), span, 1) for p in now.processors]


def _vertex(now: VertexMetrics, before: VertexMetrics | None, span: float, elapsed: float) -> VertexFlow:
    count = len(now.processors)
    shares = _shares(now, before, span)
    return VertexFlow(
        name=now.name,
        processors=count,
        received=now.received_count,
        emitted=now.emitted_count,
        received_rate=_rate(now.received_count, 0 if before is None else before.received_count, span),
        emitted_rate=_rate(now.emitted_count, 0 if before is None else before.emitted_count, span),
        busy=sum(shares) / count if count else 0.0,
        busiest=max(shares, default=0.0),
        has_ended=bool(count) and all(p.state == "end" for p in now.processors),
        work=_work(now.processors, elapsed),
    )


def _work(processors: Sequence[ProcessorMetrics], elapsed: float) -> Work | None:
    done, total = sum(p.work_done for p in processors), sum(p.work_total for p in processors)
    if not total:
        return None
    eta = None if not done else max(total - done, 0) * elapsed / done
    return Work(done, total, processors[0].work_unit, eta)


def _edge(metrics: Metrics, now: EdgeMetrics, before: EdgeMetrics | None, span: float) -> EdgeFlow:
    producers = len(metrics.vertices[now.source].processors)
    return EdgeFlow(
        source=now.source,
        source_ordinal=now.source_ordinal,
        destination=now.destination,
        destination_ordinal=now.destination_ordinal,
        received=now.received_count,
        rate=_rate(now.received_count, 0 if before is None else before.received_count, span),
        queued=max(now.queues_size, 0),
        capacity=now.queues_capacity,
        waiting=_share(now.waited_ns, 0 if before is None else before.waited_ns, span, producers),
        network_items=now.distributed_items_in,
        network_bytes=now.distributed_bytes_in,
        network_rate=_rate(now.distributed_bytes_in, 0 if before is None else before.distributed_bytes_in, span),
    )


def _workers(now: Sequence[WorkerMetrics], before: Sequence[WorkerMetrics]) -> list[WorkerFlow]:
    past = {(worker.member, worker.index): worker for worker in before}
    flows = []
    for worker in now:
        was = past.get((worker.member, worker.index))
        share = worker.busy
        if was is not None and was.pid == worker.pid:
            busy, idle = worker.busy_ns - was.busy_ns, worker.idle_ns - was.idle_ns
            share = busy / (busy + idle) if busy + idle > 0 else share
        share = min(max(share, 0.0), 1.0)
        flows.append(WorkerFlow(worker.index, worker.pid, worker.core, share, worker.tasklets, worker.member))
    return flows


def _bottleneck(edges: Sequence[EdgeFlow]) -> EdgeFlow | None:
    """Return the full edge after which no other edge is full; of several, the edge with the most waiting."""
    full = [edge for edge in edges if edge.is_full]
    sources = {edge.source for edge in full}
    last = [edge for edge in full if edge.destination not in sources]
    return max(last or full, key=lambda edge: (edge.waiting, edge.fill), default=None)


def _crowding(
    edge: EdgeFlow | None, now: Metrics, before: Metrics | None, span: float, workers: Sequence[WorkerFlow]
) -> tuple[bool, str | None]:
    """Tell whether what a full edge leads to lacks time on its workers, and which vertex of the job takes most of that.

    It does not where it takes most itself, and where its workers are not full, as those of a processor that blocks.
    """
    if edge is None:
        return False, None
    full = {(worker.member, worker.index) for worker in workers if worker.busy >= FULL_WORKER}
    full &= {(p.member, p.worker) for p in now.vertices[edge.destination].processors}
    if not full:
        return False, None
    taken: dict[str | None, float] = {}
    for name, vertex in now.vertices.items():
        shares = _shares(vertex, None if before is None else before.vertices.get(name), span)
        pairs = zip(vertex.processors, shares, strict=True)
        taken[name] = sum(share for p, share in pairs if (p.member, p.worker) in full)
    taken[None] = len(full) - sum(taken.values())  # by other jobs
    most = max(taken, key=lambda name: taken[name])
    return most != edge.destination, None if most == edge.destination else most
