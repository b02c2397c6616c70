"""Streams as jobs of a real instance: windows over what comes by the clock, restarts, and how such jobs end."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError

import pytest

import shmjet
from shmjet import JetConfig, JetInstance, JobConfig, Pipeline, ProcessingGuarantee, sinks, sources
from shmjet.aggregate_ops import counting, max_by
from shmjet.core.windows import sliding, tumbling
from tests.pipeline.streams import stream_of

pytestmark = pytest.mark.slow
Eventually = Callable[[Callable[[], object]], None]
_names = (f"streams-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def jet() -> Iterator[JetInstance]:
    with shmjet.new_instance(JetConfig(cores=2)) as instance:
        yield instance


def test_a_stream_that_ends_finishes_its_windows_and_the_job(jet: JetInstance) -> None:
    events = [(i * 10, i % 3) for i in range(600)]
    p, name = Pipeline(), next(_names)
    counts = p.read_from(stream_of(events)).with_timestamps(lambda e: e[0]).window(sliding(2, 1))
    counts.grouping_key(lambda e: e[1]).aggregate(counting()).window(tumbling(1)).aggregate(
        max_by(lambda r: (r.result, r.key))
    ).write_to(sinks.list(name))
    jet.new_job(p).run(timeout=60)
    results = list(jet.get_list(name))
    assert [r.end for r in results] == list(range(1000, 8000, 1000))
    assert {r.result.result for r in results[1:-1]} == {67}


@pytest.mark.parametrize("guarantee", list(ProcessingGuarantee))
def test_windows_of_a_generator_are_whole_also_after_a_restart(
    jet: JetInstance, guarantee: ProcessingGuarantee, eventually: Eventually
) -> None:
    """Each window of the middle has as many items as the rate says, whatever the job went through."""
    name, rate = next(_names), 2000
    p = Pipeline()
    stage = p.read_from(sources.item_stream(rate, lambda number, time: number)).with_native_timestamps()
    stage.map(lambda n: n % 4).window(tumbling(0.1)).grouping_key(lambda n: n).aggregate(counting()).write_to(
        sinks.list(name)
    )
    job = jet.new_job(p, JobConfig(processing_guarantee=guarantee, snapshot_interval=0.05))
    execution = job.execute()
    out = jet.get_list(name)
    eventually(lambda: len(out) > 20)
    if guarantee is not ProcessingGuarantee.NONE:
        job.restart()
        seen = len(out)
        eventually(lambda: len(out) > seen + 20)
    execution.cancel()
    with pytest.raises(CancelledError):
        execution.result(timeout=60)
    results = {(r.start, r.key): r.result for r in out}
    first = min(start for start, _ in results)
    assert {result for (start, _), result in results.items() if start > first} == {rate // 40}


def test_ctrl_c_in_result_cancels_an_endless_job(
    jet: JetInstance, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    def interrupted(timeout: float | None) -> None:
        raise KeyboardInterrupt

    p = Pipeline()
    p.read_from(sources.item_stream(100)).without_timestamps().write_to(sinks.noop())
    execution = jet.new_job(p).execute()
    monkeypatch.setattr(execution, "exception", interrupted)
    with pytest.raises(KeyboardInterrupt):
        execution.result(timeout=60)
    eventually(execution.done)
    assert execution.cancelled()
