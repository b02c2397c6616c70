"""How far the time of each vertex of a job is, and what holds it there: what `job.explain_time()` returns.

Derived from a job's metrics alone, so it costs the job nothing and works for clients on other hosts. The input with
the lowest watermark holds a vertex; that is followed upwards, from processor to processor, to the source of it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from shmjet.execution.metrics import InboundTime, Metrics, ProcessorMetrics, SourcePartitions, VertexMetrics
from shmjet.observe.numbers import time_text

_ENDED = "end"
_LEAST, _MOST = 946_684_800_000, 4_102_444_800_000
"""Timestamps between these, the years 2000 and 2100, are shown as dates, others as numbers."""
_NEVER = -(1 << 63)


@dataclass(frozen=True)
class VertexTime:
    """How far the time of one vertex is, and what holds it there.

    `watermark` is the lowest of its processors, in milliseconds, None before the first; `since` when that processor's
    watermark last rose, in seconds since the epoch. Input `ordinal`, from `input`, holds it: there processor
    `input_processor`, whose last watermark on the way here is `input_watermark`. Upwards from there, `origin` and its
    processor `origin_processor` make that watermark; if it is a source with event time, `partitions` says which source
    partition holds it. `is_idle`: nothing comes, and it holds nothing back; `has_ended`: all its processors have.
    """

    vertex: str
    watermark: int | None = None
    since: float | None = None
    is_idle: bool = False
    has_ended: bool = False
    processor: int = 0
    input: str | None = None
    ordinal: int | None = None
    input_processor: int | None = None
    input_watermark: int | None = None
    origin: str | None = None
    origin_processor: int | None = None
    origin_watermark: int | None = None
    partitions: SourcePartitions | None = None
    late_events_dropped: int = 0

    def text(self, now: float | None = None) -> str:
        """Say it in a line.

        Args:
            now: seconds since the epoch; by default the time of the call.
        """
        parts = [self._position(time.time() if now is None else now)]
        if not (self.has_ended or self.is_idle):
            if self.input is not None:
                parts.append(f"input {self.ordinal}, from {self._named(self.input, self.input_processor)}, holds it")
            if self.origin is not None:
                parts.append(self._origin())
        if self.late_events_dropped:
            parts.append(f"{self.late_events_dropped:,} late event{'s' * (self.late_events_dropped > 1)} dropped")
        return f"{self.vertex}: {'; '.join(parts)}"

    def _position(self, now: float) -> str:
        if self.has_ended:
            return "has ended"
        where = "no watermark yet" if self.watermark is None else f"at {timestamp_text(self.watermark)}"
        if self.since is not None:
            where += f" for {time_text(max(0.0, now - self.since))}"
        return f"idle, {where}" if self.is_idle else where

    def _origin(self) -> str:
        assert self.origin is not None
        who, found = self._named(self.origin, self.origin_processor), self.partitions
        if found is None:
            mark = self.origin_watermark
            return f"{who} has sent {'no watermark' if mark is None else timestamp_text(mark)}"
        if found.slowest < 0:
            return f"all {found.count} source partitions of {who} are idle"
        events = f"at {timestamp_text(found.slowest_wm)}, {found.slowest_events:,} events"
        idle = f", {found.idle} idle" if found.idle else ""
        return (
            f"source partition {found.slowest} of {who} "
            f"({'no event yet' if found.slowest_wm is None else events}; {found.count} in all{idle})"
        )

    @staticmethod
    def _named(vertex: str, processor: int | None) -> str:
        return repr(vertex) if processor is None else f"{vertex!r} #{processor}"


@dataclass(frozen=True)
class JobTime:
    """How far the time of each vertex of a job is: `str()` of it is for people.

    `vertices` by name, sources first; empty where the job has no event time. `status` is the job's, `cause` says why it
    is suspended. `snapshot_waits_for`: a snapshot, that of a suspension too, is postponed until these vertices end.
    `waits_for`: what the next attempt of a job waits for that is not running.

    Example:
        >>> print(job.explain_time())                       # doctest: +SKIP
        job 'clicks' is running
        ticks: at 2026-11-23 04:46:00.000 for 2 s; source partition 1 of 'ticks' #0 (no event yet; 2 in all)
        window: at 2026-11-23 04:46:00.000 for 2 s; input 0, from 'ticks' #0, holds it; ...
    """

    vertices: dict[str, VertexTime]
    job: str = ""
    status: str = ""
    cause: str | None = None
    snapshot_waits_for: tuple[str, ...] = ()
    taken_at: float = 0.0
    waits_for: str = ""

    def lines(self) -> list[str]:
        """Return a line for each vertex, and one where a snapshot waits."""
        found = [vertex.text(self.taken_at) for vertex in self.vertices.values()]
        if self.snapshot_waits_for:
            waits = ", ".join(map(repr, self.snapshot_waits_for))
            found.append(f"a snapshot is postponed until {waits} end: edges of higher priority come from there")
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists and numbers, fit for JSON."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        for name, vertex in plain["vertices"].items():
            vertex["text"] = self.vertices[name].text(self.taken_at)
        return plain

    def __str__(self) -> str:
        head = f"job {self.job} is {self.status}" + (f": {self.cause}" if self.cause else "")
        if self.waits_for:
            return f"{head}; it waits for {self.waits_for}"
        return "\n".join([head, *(self.lines() or ["it has no event time: no watermark has come anywhere"])])


def timestamp_text(timestamp: int | None) -> str:
    """Return an event time for people, in UTC.

    Example:
        >>> timestamp_text(1_700_000_000_123), timestamp_text(18)
        ('2023-11-14 22:13:20.123', '18')
    """
    if timestamp is None or not _LEAST <= timestamp < _MOST:
        return str(timestamp)
    moment = datetime.fromtimestamp(timestamp // 1000, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{timestamp % 1000:03}"


def explain_time(
    metrics: Metrics, *, job: str = "", status: str = "running", cause: str | None = None, now: float | None = None
) -> JobTime:
    """Return how far the time of each vertex is.

    Args:
        metrics: of all members that take part.
        job: how the job is called.
        status: of the job, for people.
        cause: why it is suspended.
        now: seconds since the epoch, by default the time of the call.
    """
    vertices = _Walk(metrics).vertices()
    taken_at = time.time() if now is None else now
    waits = tuple(metrics.snapshot_waits_for)
    return JobTime(vertices, job, status, cause, waits, taken_at, metrics.waits_for)


class _Walk:
    """Goes through one job's metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._sources = {(edge.destination, edge.destination_ordinal): edge.source for edge in metrics.edges}

    def vertices(self) -> dict[str, VertexTime]:
        """Return the time of each vertex, those without inputs first; nothing when there are no watermarks."""
        if not any(_has_time(p) for vertex in self._metrics.vertices.values() for p in vertex.processors):
            return {}
        fed = {destination for destination, _ in self._sources}
        names = sorted(self._metrics.vertices, key=lambda name: name in fed)
        return {name: self._vertex(self._metrics.vertices[name]) for name in names}

    def _vertex(self, vertex: VertexMetrics) -> VertexTime:
        late = vertex.late_events_dropped
        live = [p for p in vertex.processors if p.state != _ENDED]
        if not live:
            return VertexTime(vertex.name, has_ended=True, late_events_dropped=late)
        active = [p for p in live if not _is_idle(p)]
        slowest = min(active or live, key=lambda p: _order(_watermark(p)))
        found = VertexTime(
            vertex.name,
            _watermark(slowest),
            slowest.wm_changed_at,
            is_idle=not active,
            processor=slowest.index,
            late_events_dropped=late,
        )
        if not active:
            return found
        return self._held(found, slowest)

    def _held(self, found: VertexTime, processor: ProcessorMetrics) -> VertexTime:
        """Return it with what holds the processor where it is."""
        facts: dict[str, Any] = {}
        held = _slowest_input(processor)
        name, at = found.vertex, processor
        if held is not None and processor.partitions is None:
            ordinal, inbound = held
            facts |= {"input": self._sources.get((name, ordinal)), "ordinal": ordinal}
            facts |= {"input_processor": inbound.slowest_producer, "input_watermark": inbound.slowest_wm}
        for _ in range(len(self._metrics.vertices)):
            held = _slowest_input(at)
            if held is None or at.partitions is not None:
                break
            ordinal, inbound = held
            source = self._sources.get((name, ordinal))
            above = self._processor(source, inbound.slowest_producer)
            if source is None or above is None:
                break
            name, at = source, above
            if _order(at.last_forwarded_wm) > _order(inbound.slowest_wm) or not _passes_all(at):
                break
        if name != found.vertex or at.partitions is not None or not at.time_by_ordinal:
            facts |= {"origin": name, "origin_processor": at.index, "origin_watermark": at.last_forwarded_wm}
            facts |= {"partitions": at.partitions}
        return replace(found, **facts)

    def _processor(self, vertex: str | None, index: int) -> ProcessorMetrics | None:
        found = self._metrics.vertices.get(vertex or "")
        if found is None or index < 0:
            return None
        return next((p for p in found.processors if p.index == index), None)


def _order(watermark: int | None) -> int:
    return _NEVER if watermark is None else watermark


def _has_time(processor: ProcessorMetrics) -> bool:
    marks = (processor.top_observed_wm, processor.last_forwarded_wm, processor.partitions)
    return any(mark is not None for mark in marks) or processor.is_idle


def _watermark(processor: ProcessorMetrics) -> int | None:
    """Return how far a processor is: by its inputs, or by what it has sent itself."""
    is_source = not processor.time_by_ordinal or processor.partitions is not None
    return processor.last_forwarded_wm if is_source else processor.coalesced_wm


def _is_idle(processor: ProcessorMetrics) -> bool:
    """Say whether a processor holds nothing back: all its inputs are idle or have ended, or it has said so itself."""
    open_inputs = [inbound for inbound in processor.time_by_ordinal if not inbound.is_done]
    if processor.partitions is not None or not open_inputs:
        return processor.is_idle
    return all(inbound.is_idle for inbound in open_inputs)


def _slowest_input(processor: ProcessorMetrics) -> tuple[int, InboundTime] | None:
    """Return the input that holds a processor, with its ordinal."""
    active = [
        (ordinal, inbound)
        for ordinal, inbound in enumerate(processor.time_by_ordinal)
        if not (inbound.is_done or inbound.is_idle)
    ]
    return min(active, key=lambda pair: _order(pair[1].coalesced_wm), default=None)


def _passes_all(processor: ProcessorMetrics) -> bool:
    """Say whether a processor has sent on what it has got, so that what holds it is further up."""
    return _order(processor.last_forwarded_wm) >= _order(processor.coalesced_wm)
