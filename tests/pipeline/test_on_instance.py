"""Pipelines as jobs of a real instance: results, services, errors with the user's frames, and cancelling."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given

import shmjet
from shmjet import JetConfig, JetInstance, JobConfig, JobFailedError, PlanError
from shmjet.aggregate_ops import counting
from shmjet.data.errors import DagError
from shmjet.pipeline import BatchStage, Pipeline, ServiceFactory, SinkDef, SourceDef
from shmjet.processors import generate, read_files, read_items, write_list, write_map
from tests.examples import examples
from tests.pipeline.reference import interpret
from tests.pipeline.running import pipelines
from tests.pipeline.test_random_pipelines import assert_same

pytestmark = pytest.mark.slow
_numbers = itertools.count()


@pytest.fixture(scope="module")
def jet() -> Iterator[JetInstance]:
    with shmjet.new_instance(JetConfig(cores=2)) as instance:
        yield instance


def numbers(pipeline: Pipeline, count: int) -> BatchStage[int]:
    return pipeline.read_from(SourceDef("numbers", generate(lambda i, n: range(i, count, n))))


def collected(jet: JetInstance, stage: BatchStage[Any]) -> list[Any]:
    name = f"out-{next(_numbers)}"
    stage.write_to(SinkDef("list", write_list(name), 1))
    jet.new_job(stage.pipeline).run(timeout=60)
    return list(jet.get_list(name))


def test_word_count_of_files(jet: JetInstance, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("to be or\nnot to be\n" * 500)
    p = Pipeline()
    lines: SourceDef[str] = SourceDef("files", read_files(str(tmp_path / "*.txt")))
    words = p.read_from(lines).flat_map(lambda line: line.split())
    words.grouping_key(lambda word: word).aggregate(counting()).write_to(SinkDef("map", write_map("words")))
    jet.new_job(p, JobConfig(name="words")).run(timeout=60)
    assert dict(jet.get_map("words").items()) == {"to": 1000, "be": 1000, "or": 500, "not": 500}


def test_a_sort_over_all_workers_is_in_order(jet: JetInstance) -> None:
    stage = numbers(Pipeline(), 50_000).map(lambda x: (x * 7919) % 50_000).sort(reverse=True).map(lambda x: x + 1)
    assert collected(jet, stage) == list(range(50_000, 0, -1))


def test_a_join_that_reads_its_own_source_does_not_wait_for_itself(jet: JetInstance) -> None:
    stage = numbers(Pipeline(), 100_000)
    sums = stage.grouping_key(lambda x: x % 10).aggregate(counting())
    joined = stage.join(sums, lambda x: x % 10, lambda entry: entry[0], lambda x, entry: entry[1])
    assert collected(jet, joined) == [10_000] * 100_000


def test_a_service_is_made_in_each_worker_and_closed_at_the_end(jet: JetInstance, tmp_path: Path) -> None:
    folder = str(tmp_path)

    class Service:
        def __init__(self) -> None:
            import os

            self.file = open(os.path.join(folder, f"{os.getpid()}-{id(self)}"), "w")  # noqa: SIM115

        def close(self) -> None:
            self.file.write("closed")
            self.file.close()

    stage = numbers(Pipeline(), 1000).map_using_service(Service, lambda service, x: x if service.file else None)
    assert Counter(collected(jet, stage)) == Counter(range(1000))
    files = list(tmp_path.iterdir())
    assert len(files) == 2
    assert [file.read_text() for file in files] == ["closed", "closed"]


def test_a_service_that_cannot_be_made_fails_the_job_with_its_text(jet: JetInstance) -> None:
    def connect() -> Any:
        raise ConnectionError("the server is away")

    stage = numbers(Pipeline(), 10).map_using_service(connect, lambda service, x: x)
    with pytest.raises(JobFailedError, match="the server is away") as caught:
        collected(jet, stage)
    assert caught.value.vertex == "map_using_service"


def test_coroutine_functions_run_side_by_side_beside_everything_else(jet: JetInstance) -> None:
    class Running:
        def __init__(self) -> None:
            self.items: set[int] = set()
            self.several = asyncio.Event()

    async def slow(running: Running, item: int) -> tuple[int, int]:
        running.items.add(item)
        most = len(running.items)
        if most > 1:
            running.several.set()
        await asyncio.wait_for(running.several.wait(), 60)
        running.items.remove(item)
        return item, most

    p = Pipeline()
    source = p.read_from(SourceDef("items", read_items(range(64)), 1)).rebalance()
    factory = ServiceFactory(Running, shared=False)
    results = collected(jet, source.map_using_service_async(factory, slow, max_concurrent_ops=16))
    assert Counter(item for item, _ in results) == Counter(range(64))
    assert 1 < max(running for _, running in results) <= 16


def test_an_error_in_a_coroutine_function_fails_the_job_with_the_users_frames(jet: JetInstance) -> None:
    async def broken(service: Any, item: int) -> int:
        await asyncio.sleep(0)
        raise ValueError(f"no {item}")

    with pytest.raises(JobFailedError, match="no 5") as caught:
        collected(jet, Pipeline().read_from(SourceDef("items", read_items([5]))).map_using_service_async(dict, broken))
    text = str(caught.value)
    assert "in broken" in text
    assert "async_services.py" not in text
    assert caught.value.vertex == "map_using_service_async"


def test_cancelling_ends_coroutines_that_would_wait_for_ever(
    jet: JetInstance, tmp_path: Path, eventually: Callable[[Callable[[], object]], None]
) -> None:
    started, cancelled = str(tmp_path / "started"), str(tmp_path / "cancelled")

    async def endless(service: Any, item: int) -> int:
        try:
            Path(started).touch()
            await asyncio.sleep(3600)
        finally:
            Path(cancelled).touch()
        return item

    p = Pipeline()
    stage = p.read_from(SourceDef("items", read_items([1]))).map_using_service_async(ServiceFactory(dict), endless)
    stage.write_to(SinkDef("list", write_list("never"), 1))
    execution = jet.new_job(p).execute()
    eventually(Path(started).exists)
    execution.cancel()
    with pytest.raises(CancelledError):
        execution.result(60)
    assert execution.cancelled()
    assert Path(cancelled).exists()


def test_an_error_in_a_fused_vertex_names_the_stage_and_the_users_line(jet: JetInstance) -> None:
    stage = numbers(Pipeline(), 100).map(lambda x: x).set_name("same").map(lambda x: 1 // (x - 50)).set_name("inverse")
    with pytest.raises(JobFailedError) as caught:
        collected(jet, stage)
    text = str(caught.value)
    assert caught.value.vertex == "fused(same, inverse)"
    assert "ZeroDivisionError" in text
    assert "in stage 'inverse'" in text
    assert "1 // (x - 50)" in text
    assert "fusing" not in text


def test_what_cannot_be_planned_is_an_error_of_new_job(jet: JetInstance) -> None:
    pipeline = Pipeline()
    numbers(pipeline, 5).map(abs)
    with pytest.raises(PlanError, match="nothing attached to them: map"):
        jet.new_job(pipeline)
    with pytest.raises(DagError, match=r"new_job\(\) takes a Pipeline or a DAG, got 5 \(int\)"):
        jet.new_job(5)  # type: ignore[arg-type]


@examples(10, suppress_health_check=list(HealthCheck))
@given(pipelines())
def test_random_pipelines_run_as_the_interpreter_says(
    jet: JetInstance, made: tuple[Pipeline, dict[str, list[int]]]
) -> None:
    pipeline, sources = made
    expected = interpret(pipeline, sources)
    for name in expected:
        jet.get_list(name).clear()
    jet.new_job(pipeline).run(timeout=60)
    assert_same(pipeline, expected, {name: list(jet.get_list(name)) for name in expected})
