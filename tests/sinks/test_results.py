"""`collect()`: results straight to the client."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import pytest

import shmjet
from shmjet import Batch, JobFailedError, ShmjetError, WorkerLostError, processors, sinks, sources
from shmjet.pipeline.definitions import SourceDef
from shmjet.processors.general.user_functions import SourceBuffer
from tests.sources.running import collected, dag_of, run


def generating(fn: Any, parallelism: int = 1) -> SourceDef[Any]:
    return SourceDef("source", processors.generate(fn), parallelism)


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_results_are_there_when_the_job_has_run(jet: shmjet.JetInstance) -> None:
    results = sinks.collect()
    run(jet, sources.items(["a", "b"]), results)
    assert list(results) == ["a", "b"]
    assert list(results) == ["a", "b"]  # again from the beginning
    assert results.so_far() == ["a", "b"]
    results.close()


def test_nothing_is_a_result_too(jet: shmjet.JetInstance) -> None:
    assert collected(jet, sources.items([])) == []


def test_many_results_keep_their_order_and_wait_on_disk(jet: shmjet.JetInstance) -> None:
    assert collected(jet, generating(lambda *_: range(500_000))) == list(range(500_000))


class Point(NamedTuple):
    x: int


def test_results_of_all_kinds(jet: shmjet.JetInstance) -> None:
    class Local:
        def __init__(self, value: int) -> None:
            self.value = value

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Local) and self.value == other.value

        __hash__ = None  # type: ignore[assignment]

    values = [1, 2.5, "ü", b"x" * 3_000_000, {"a": [None]}, Point(3), Local(4), 10**50]
    assert collected(jet, sources.items(values)) == values
    (array,) = collected(jet, sources.items([np.arange(1000)]))
    assert array.tolist() == list(range(1000))
    (batch,) = collected(jet, sources.items([Batch({"n": [1, 2], "t": ["a", None]})]))
    assert batch.to_dict() == {"n": [1, 2], "t": ["a", None]}


def test_results_come_while_the_job_runs(jet: shmjet.JetInstance, tmp_path: Any) -> None:
    def fill(given: list[int], buffer: SourceBuffer[int]) -> None:
        number = len(given)
        if number and not (tmp_path / f"{number - 1}").exists():
            threading.Event().wait(0.005)
        elif number == 5:
            buffer.close()
        else:
            buffer.add(number)
            given.append(number)

    paced = sources.builder("paced", lambda _: list[int]()).fill_buffer_fn(fill).build()
    results = sinks.collect()
    execution = jet.new_job(dag_of(paced, results)).execute()
    for expected, item in enumerate(results):
        assert item == expected
        assert not execution.done()
        (tmp_path / f"{item}").touch()
    execution.result(60)
    results.close()


def test_results_of_a_failed_job_come_before_its_error(jet: shmjet.JetInstance, tmp_path: Any) -> None:
    seen = tmp_path / "seen"

    def fail(given: list[int], buffer: SourceBuffer[int]) -> None:
        if seen.exists():
            raise KeyError("no third")
        if not given:
            given += [1, 2]
            buffer.add_all(given)
        threading.Event().wait(0.005)

    failing = sources.builder("failing", lambda _: list[int]()).fill_buffer_fn(fail).build()
    results = sinks.collect()
    execution = jet.new_job(dag_of(failing, results)).execute()
    found = []
    with pytest.raises(JobFailedError, match="no third"):
        for item in results:
            found.append(item)
            if item == 2:
                seen.touch()
    assert found == [1, 2]
    assert execution.done()
    with pytest.raises(JobFailedError, match="no third"):
        list(results)
    results.close()


def test_a_job_that_fails_before_it_starts_is_no_empty_result(jet: shmjet.JetInstance) -> None:
    with sinks.collect() as results:
        jet.new_job(dag_of(sources.files("/nowhere at all"), results)).execute()
        with pytest.raises(JobFailedError, match="nowhere at all"):
            list(results)


def test_a_cancelled_job_ends_the_iteration(jet: shmjet.JetInstance) -> None:
    results = sinks.collect()
    execution = jet.new_job(dag_of(generating(lambda *_: iter(lambda: 7, 8)), results)).execute()
    with pytest.raises(CancelledError):
        for count, _ in enumerate(results):
            if count == 10_000:
                execution.cancel()
    results.close()


def test_a_killed_worker_ends_the_iteration(jet: shmjet.JetInstance) -> None:
    def die(index: int, count: int) -> Iterator[int]:
        yield 1
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(WorkerLostError):
        collected(jet, generating(die))


def test_two_iterators_are_independent(jet: shmjet.JetInstance) -> None:
    results = sinks.collect()
    run(jet, sources.items(range(5000)), results)
    assert [a + b for a, b in zip(results, results, strict=True)] == [2 * n for n in range(5000)]
    results.close()


def test_another_thread_may_read(jet: shmjet.JetInstance) -> None:
    results = sinks.collect()
    job = jet.new_job(dag_of(generating(lambda *_: range(50_000)), results))
    execution = job.execute()
    found: list[list[int]] = []
    readers = [threading.Thread(target=lambda: found.append(list(results))) for _ in range(2)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(60)
    execution.result(60)
    assert found == [list(range(50_000))] * 2
    results.close()


def test_a_job_may_be_executed_again(jet: shmjet.JetInstance, tmp_path: Any) -> None:
    (tmp_path / "a").write_text("1\n")
    results = sinks.collect()
    job = jet.new_job(dag_of(sources.files(tmp_path / "a"), results))
    job.run(60)
    before = iter(results)
    (tmp_path / "a").write_text("2\n")
    job.run(60)
    assert list(results) == ["2"]
    with pytest.raises(ShmjetError, match="given up"):
        next(before)
    results.close()
    with pytest.raises(ShmjetError, match="closed"):
        list(results)


def test_two_executions_at_once_are_refused(jet: shmjet.JetInstance) -> None:
    results = sinks.collect()
    job = jet.new_job(dag_of(generating(lambda *_: iter(lambda: 7, 8)), results))
    execution = job.execute()
    with pytest.raises(ShmjetError, match="still running"):
        job.execute()
    execution.cancel()
    with pytest.raises(CancelledError):
        execution.result(60)
    results.close()


def test_the_next_execution_may_begin_before_the_callbacks_of_the_last_one_have_run() -> None:
    """A thread that waits for a future goes on as soon as it has its result; its callbacks are called after that."""
    results = sinks.collect()
    first: Future[None] = Future()
    second: Future[None] = Future()
    first.add_done_callback(lambda _: results.supplier.on_client(second))
    results.supplier.on_client(first)
    first.set_result(None)
    third: Future[None] = Future()
    with pytest.raises(ShmjetError, match="still running"):
        results.supplier.on_client(third)
    second.set_result(None)
    assert list(results) == []
    results.close()


def test_a_copy_of_a_pipeline_may_run_next_and_not_at_the_same_time() -> None:
    results = sinks.collect()
    copy = pickle.loads(pickle.dumps(results))
    first: Future[None] = Future()
    second: Future[None] = Future()
    first.add_done_callback(lambda _: copy.supplier.on_client(second))
    results.supplier.on_client(first)
    with pytest.raises(ShmjetError, match="still running"):
        copy.supplier.on_client(Future())
    first.set_result(None)
    second.set_result(None)
    assert list(results) == []
    results.close()


def test_an_item_that_cannot_be_pickled_is_named(jet: shmjet.JetInstance) -> None:
    results = sinks.collect()
    stage = shmjet.Pipeline().read_from(sources.items([1])).map(lambda _: threading.Lock())
    stage.write_to(results)
    with pytest.raises(JobFailedError, match=r"in vertex 'collect'[^$]*an item of type 'lock' cannot be pickled"):
        jet.new_job(stage.pipeline).run(60)
    results.close()


def test_there_is_nothing_before_the_first_execution() -> None:
    with pytest.raises(ShmjetError, match="before the job is executed"):
        list(sinks.collect())


def test_several_processors(jet: shmjet.JetInstance) -> None:
    results = sinks.collect()
    dag = dag_of(generating(lambda index, count: range(index, 100_000, count), 4), results)
    dag.vertex("collect").local_parallelism = 3
    jet.new_job(dag).run(60)
    assert sorted(results) == list(range(100_000))
    results.close()


def test_behind_a_peek(jet: shmjet.JetInstance) -> None:
    results = sinks.collect()
    dag = dag_of(sources.items([1, 2]), results)
    dag.vertex("collect").update_supplier(processors.peek_input)
    jet.new_job(dag).run(60)
    assert list(results) == [1, 2]
    results.close()


def test_nothing_stays_open(jet: shmjet.JetInstance, eventually: Any) -> None:
    collected(jet, sources.items([1]))
    before = descriptors()
    for _ in range(5):
        collected(jet, sources.items([1]))
    eventually(lambda: descriptors() == before)
    with sinks.collect() as results:
        jet.new_job(dag_of(sources.items([1]), results)).run(60)
    eventually(lambda: descriptors() == before)


def test_results_that_nobody_has_any_more_are_gone(jet: shmjet.JetInstance, eventually: Any) -> None:
    """An execution lets go of them in a callback, which comes after a thread that waits for its end goes on."""
    before = descriptors()
    for _ in range(5):
        results = sinks.collect()
        run(jet, sources.items([1]), results)
        assert list(results) == [1]
    del results
    eventually(lambda: descriptors() == before)
    run(jet, sources.items([1]), sinks.collect())  # the results are not read
    eventually(lambda: descriptors() == before)


def test_it_can_be_pickled_and_then_knows_no_results(jet: shmjet.JetInstance) -> None:
    results = sinks.collect("mine")
    run(jet, sources.items([1]), results)
    for copy in (pickle.loads(pickle.dumps(results)), cloudpickle.loads(cloudpickle.dumps(results))):
        assert isinstance(copy, sinks.Results)
        assert (copy.name, copy.parallelism, copy.supplier.address) == ("mine", 1, results.supplier.address)
        with pytest.raises(ShmjetError):
            list(copy)
    results.close()


def test_a_job_that_nobody_collects_from_fails(jet: shmjet.JetInstance) -> None:
    copy = pickle.loads(pickle.dumps(sinks.collect()))
    copy.supplier.__class__ = type("Silent", (type(copy.supplier),), {"on_client": None})
    with pytest.raises(JobFailedError, match="no client collects"):
        run(jet, sources.items([1]), copy)
