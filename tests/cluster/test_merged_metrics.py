"""What is put together of the metrics of all members, and of what the coordinator knows."""

from __future__ import annotations

from shmjet.cluster.lifecycle_messages import LastSnapshot, VertexState
from shmjet.cluster.merged_metrics import part_of, with_life
from shmjet.execution.metrics import Metrics, VertexMetrics

METRICS = Metrics({"read": VertexMetrics("read", []), "count": VertexMetrics("count", [])}, [], [])


def test_the_last_snapshot_is_told_of_the_job_and_of_each_vertex() -> None:
    last = LastSnapshot(4, 50.0, 0.125, 900, 30, {"count": VertexState(30, 900)})
    found = with_life(METRICS, 2, last)
    assert (found.attempts, found.last_snapshot_id, found.last_snapshot_start_time) == (2, 4, 50.0)
    assert (found.last_snapshot_duration, found.last_snapshot_bytes, found.last_snapshot_keys) == (0.125, 900, 30)
    assert [(v.snapshot_keys, v.snapshot_bytes) for v in found.vertices.values()] == [(0, 0), (30, 900)]
    assert part_of(found, "here", leads=True).vertices["count"].snapshot_keys == 30


def test_a_job_without_a_snapshot_tells_its_attempts() -> None:
    found = with_life(METRICS, 3, None)
    assert (found.attempts, found.last_snapshot_id, found.last_snapshot_duration) == (3, 0, None)


def test_what_a_snapshot_waits_for_is_told_with_the_job() -> None:
    assert with_life(METRICS, 1, None, ["table"]).snapshot_waits_for == ["table"]
    assert with_life(METRICS, 2, None).snapshot_waits_for == []
