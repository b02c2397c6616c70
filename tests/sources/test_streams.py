"""Endless sources by schedule in running jobs."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Iterable
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

import shmjet
from shmjet import (
    Batch,
    ConfigError,
    JobConfig,
    JobFailedError,
    JobStatus,
    Pipeline,
    ProcessingGuarantee,
    sinks,
    sources,
)
from shmjet.pipeline.definitions import SourceDef


def to_list(source: SourceDef[Any], name: str) -> Pipeline:
    p = Pipeline()
    p.read_from(source).without_timestamps().write_to(sinks.list(name))  # type: ignore[attr-defined]
    return p


def test_items_come_by_schedule_in_order_until_the_job_is_cancelled(jet: shmjet.JetInstance, eventually: Any) -> None:
    job = jet.new_job(to_list(sources.item_stream(2_000), "events"))
    execution = job.execute()
    found = jet.get_list("events")
    eventually(lambda: len(found) > 300)
    execution.cancel()
    with pytest.raises(CancelledError):
        execution.result(60)
    events = list(found)
    assert [event.sequence for event in events] == list(range(len(events)))
    start = events[0].timestamp
    assert all(event.timestamp == start + event.sequence * 1000 // 2_000 for event in events)


def check_shares(events: Iterable[Any], count: int) -> None:
    """Check that the numbers of each processor have no gap and none comes twice."""
    numbers = sorted(event.sequence for event in events)
    for processor in range(count):
        own = [number for number in numbers if number % count == processor]
        assert own == list(range(processor, processor + len(own) * count, count))


def test_suspended_it_goes_on_with_the_next_number_and_the_same_schedule(
    jet: shmjet.JetInstance, eventually: Any
) -> None:
    config = JobConfig(name="numbers", processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE, snapshot_interval=0.05)
    p = Pipeline()
    stage = p.read_from(sources.item_stream(5_000)).without_timestamps().set_local_parallelism(2)
    stage.write_to(sinks.list("kept"))
    job = jet.new_job(p, config)
    execution = job.execute()
    found = jet.get_list("kept")
    for more in (500, 1500):
        eventually(lambda: len(found) > more)  # noqa: B023
        job.suspend()
        eventually(lambda: job.status is JobStatus.SUSPENDED)
        check_shares(found, 2)
        job.resume()
    eventually(lambda: len(found) > 3000)
    snapshot = job.cancel_and_export_snapshot("last", timeout=60)
    assert snapshot.name == "last"
    with pytest.raises(CancelledError):
        execution.result(60)
    check_shares(found, 2)
    events = sorted(found)
    start = events[0].timestamp
    assert all(event.timestamp == start + event.sequence * 1000 // 5_000 for event in events)


def test_a_worker_that_is_lost_costs_no_number_and_none_comes_twice(jet: shmjet.JetInstance, eventually: Any) -> None:
    config = JobConfig(name="killed", processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE, snapshot_interval=0.05)
    p = Pipeline()
    stage = p.read_from(sources.item_stream(4_000)).without_timestamps().set_local_parallelism(2)
    stage.write_to(sinks.list("killed"))
    execution = jet.new_job(p, config).execute()
    found = jet.get_list("killed")
    eventually(lambda: len(found) > 300)
    before = len(found)
    os.kill(jet.cluster.members[0].workers[0], signal.SIGKILL)
    eventually(lambda: len(found) > before + 2_000)
    execution.cancel()
    with pytest.raises(CancelledError):
        execution.result(60)
    check_shares(found, 2)


def test_what_a_function_raises_fails_the_job_with_its_name(jet: shmjet.JetInstance) -> None:
    job = jet.new_job(to_list(sources.item_stream(1000, lambda n, ts: 1 // (5 - n)), "none"))
    with pytest.raises(JobFailedError, match="ZeroDivisionError") as caught:
        job.run(60)
    assert caught.value.vertex == "item_stream"
    with pytest.raises(JobFailedError, match=r"fn\(sequences, timestamps\) must return a Batch, got dict"):
        jet.new_job(to_list(sources.batch_stream(1000, lambda n, ts: {"n": n}), "none")).run(60)


def test_batches_of_all_workers_have_all_numbers(jet: shmjet.JetInstance, eventually: Any) -> None:
    execution = jet.new_job(to_list(sources.batch_stream(200_000, lambda n, ts: Batch({"n": n})), "batches")).execute()
    found = jet.get_list("batches")

    def whole() -> int:
        """Return up to which number all have come: each worker, of which one may be late, emits its share in order."""
        numbers = [number for batch in list(found) for number in batch["n"].tolist()]
        return min(max((number for number in numbers if number % 2 == worker), default=0) for worker in range(2))

    eventually(lambda: whole() > 1000)
    execution.cancel()
    upto = whole()
    numbers = sorted(number for batch in list(found) for number in batch["n"].tolist())
    assert numbers[:upto] == list(range(upto))


@pytest.mark.parametrize("rate", [0, -3, math.nan, math.inf, 10**400], ids=lambda rate: f"{rate!r:.4}")
def test_a_rate_is_above_0(rate: float) -> None:
    with pytest.raises(ConfigError, match="item_stream: rate must be above 0"):
        sources.item_stream(rate)
    with pytest.raises(ConfigError, match="batch_stream: rate must be above 0"):
        sources.batch_stream(rate, lambda n, ts: None)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(TypeError, match="item_stream: rate must be a number of items a second, got 'ten'"):
        sources.item_stream("ten")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="item_stream: fn must be callable, got 5"):
        sources.item_stream(1, 5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="batch_stream: fn must be callable, got None"):
        sources.batch_stream(1, None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="batch_stream: period must be at least 0"):
        sources.batch_stream(1, lambda n, ts: None, period=-1)
    with pytest.raises(TypeError, match="batch_stream: period must be seconds or a timedelta"):
        sources.batch_stream(1, lambda n, ts: None, period="1s")  # type: ignore[arg-type]


def test_a_pipeline_names_it_and_its_guarantee(tmp_path: Path) -> None:
    p = to_list(sources.item_stream(10), "out")
    explained = p.explain(JobConfig(processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE))
    assert "item_stream" in explained
    assert "EXACTLY_ONCE" in explained or "exactly once" in explained.lower()
