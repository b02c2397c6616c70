"""What a job is said to wait for, from metrics by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shmjet.execution.metrics import (
    EdgeMetrics,
    InboundTime,
    Metrics,
    ProcessorMetrics,
    SourcePartitions,
    VertexMetrics,
)
from shmjet.observe.event_time import JobTime, explain_time, timestamp_text

OPEN: dict[str, bool] = {"is_idle": False, "is_done": False}


def processor(index: int, sent: int | None, *inputs: InboundTime, coalesced: int | None = None, **more: Any) -> Any:
    """A processor that has got and sent so much."""
    first = ProcessorMetrics(index, 0, 0, 0, 0, 0, 0, 0, coalesced, coalesced, sent, 0, time_by_ordinal=list(inputs))
    return ProcessorMetrics(**{name: getattr(first, name) for name in first.__struct_fields__} | more)


def inbound(coalesced: int | None, producer: int, slowest: int | None, **more: bool) -> InboundTime:
    return InboundTime(coalesced, producer, slowest, **OPEN | more)


def job(edges: list[tuple[str, str, int]], **vertices: list[ProcessorMetrics]) -> Metrics:
    """Metrics of a job with edges from, to, and ordinal there."""
    found = [EdgeMetrics(source, 0, to, ordinal, 0, 0, 0, 0, 0) for source, to, ordinal in edges]
    return Metrics({name: VertexMetrics(name, processors) for name, processors in vertices.items()}, found, [])


def windowed(**more: Any) -> Metrics:
    """ticks -> map -> window, where processor 1 of two of ticks has a silent partition."""
    silent = SourcePartitions(3, 1, 2, None, 0)
    ticks = [processor(0, 900, partitions=SourcePartitions(3, 0, 0, 950, 7), wm_changed_at=99.0)]
    ticks.append(processor(1, 100, partitions=silent, wm_changed_at=58.0, **more))
    maps = [processor(i, t, inbound(t, i, t), coalesced=t, wm_changed_at=60.0) for i, t in enumerate([900, 100])]
    window = [processor(0, 100, inbound(100, 1, 100), coalesced=100, wm_changed_at=61.0, late_events_dropped=1200)]
    return job([("ticks", "map", 0), ("map", "window", 0)], ticks=ticks, map=maps, window=window)


def test_a_window_names_the_silent_partition_at_the_other_end_of_the_job() -> None:
    found = explain_time(windowed(), job="'clicks'", now=103.0)
    window = found.vertices["window"]
    assert (window.watermark, window.since) == (100, 61.0)
    assert (window.input, window.ordinal, window.input_processor) == ("map", 0, 1)
    assert (window.origin, window.origin_processor, window.partitions) == (
        "ticks",
        1,
        SourcePartitions(3, 1, 2, None, 0),
    )
    silent = "source partition 2 of 'ticks' #1 (no event yet; 3 in all, 1 idle)"
    assert str(found).splitlines() == [
        "job 'clicks' is running",
        f"ticks: at 100 for 45 s; {silent}",
        f"map: at 100 for 43 s; input 0, from 'ticks' #1, holds it; {silent}",
        f"window: at 100 for 42 s; input 0, from 'map' #1, holds it; {silent}; 1,200 late events dropped",
    ]


def test_plain_data_says_the_same() -> None:
    plain = json.loads(json.dumps(explain_time(windowed(), now=103.0).to_dict()))
    assert plain["vertices"]["window"]["partitions"]["slowest"] == 2
    assert plain["vertices"]["window"]["text"].startswith("window: at 100 for 42 s; input 0")


def test_an_idle_source_and_what_is_behind_it_wait_for_nothing() -> None:
    idle = SourcePartitions(1, 1, -1, None, 4)
    ticks = [processor(0, 100, partitions=idle, is_idle=True, wm_changed_at=100.0)]
    window = [processor(0, 100, inbound(100, -1, None, is_idle=True), coalesced=100, wm_changed_at=101.0)]
    found = explain_time(job([("ticks", "window", 0)], ticks=ticks, window=window), now=103.0)
    assert found.lines() == ["ticks: idle, at 100 for 3.0 s", "window: idle, at 100 for 2.0 s"]


def test_the_slower_of_two_inputs_holds_a_join_and_an_ended_one_does_not() -> None:
    left, right = [processor(0, 500)], [processor(0, None)]
    join = [processor(0, None, inbound(500, 0, 500), inbound(None, 0, None), inbound(7, -1, None, is_done=True))]
    edges = [("left", "join", 0), ("right", "join", 1), ("old", "join", 2)]
    old = [processor(0, 7, state="end")]
    found = explain_time(job(edges, left=left, right=right, old=old, join=join), now=0.0)
    assert found.vertices["join"].text(0.0) == (
        "join: no watermark yet; input 1, from 'right' #0, holds it; 'right' #0 has sent no watermark"
    )
    assert found.vertices["old"].text(0.0) == "old: has ended"


def test_a_processor_that_has_not_passed_on_what_it_got_is_what_the_next_waits_for() -> None:
    source, busy = [processor(0, 900)], [processor(0, 100, inbound(900, 0, 900), coalesced=900)]
    sink = [processor(0, 100, inbound(100, 0, 100), coalesced=100)]
    found = explain_time(
        job([("source", "busy", 0), ("busy", "sink", 0)], source=source, busy=busy, sink=sink), now=0.0
    )
    assert found.vertices["sink"].origin == "busy"


def test_a_job_without_watermarks_says_so_and_why_it_is_suspended() -> None:
    found = explain_time(job([], items=[processor(0, None)]), job="abc", status="suspended", cause="no room", now=0.0)
    assert found.vertices == {}
    assert str(found) == "job abc is suspended: no room\nit has no event time: no watermark has come anywhere"


def test_a_postponed_snapshot_is_told() -> None:
    assert JobTime({}, snapshot_waits_for=("table",)).lines() == [
        "a snapshot is postponed until 'table' end: edges of higher priority come from there"
    ]


@pytest.mark.parametrize(("timestamp", "text"), [(None, "None"), (-1, "-1"), (1 << 62, str(1 << 62))])
def test_timestamps_that_are_no_dates_are_shown_as_numbers(timestamp: int | None, text: str) -> None:
    assert timestamp_text(timestamp) == text
