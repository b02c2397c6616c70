"""Observables of a running cluster: who observes, what ends, and what fails."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

import shmjet
from shmjet import (
    DAG,
    Batch,
    ConfigError,
    JobConfig,
    JobFailedError,
    JobStatus,
    Pipeline,
    ProcessingGuarantee,
    Processor,
    ShmjetError,
    between,
    sinks,
    sources,
)
from tests.sources.running import run

SOON_S = 60.0
_numbers = itertools.count()


@pytest.fixture
def name() -> str:
    return f"observable-{next(_numbers)}"


class Held(Processor):
    """Emits numbers without an end, one for each file of that name that there is: the test makes them."""

    is_endless = True

    def __init__(self, path: str) -> None:
        self._path = path
        self._number = 0

    def complete(self) -> bool:
        import os

        self.next_call = 0.001
        if os.path.exists(f"{self._path}{self._number}") and self.outbox.offer(self._number):
            self._number += 1
        return False


def held(path: Any, name: str) -> DAG:
    from functools import partial

    dag = DAG()
    source = dag.new_vertex("held", partial(Held, str(path)), 1)
    return dag.edge(between(source, dag.new_vertex("sink", sinks.observable(name).supplier)))


def test_observers_before_and_after_the_job_get_all_items_and_its_end(jet: shmjet.JetInstance, name: str) -> None:
    observable, heard, ended = jet.get_observable(name), list[Any](), threading.Event()
    observable.add_observer(heard.append, heard.append, ended.set)
    total = observable.to_future(sum)
    run(jet, sources.items(range(1000)), sinks.observable(name))
    assert list(observable) == list(range(1000))
    assert total.result(SOON_S) == sum(range(1000))
    assert ended.wait(SOON_S)
    assert heard == list(range(1000))


def test_items_come_while_the_job_runs(jet: shmjet.JetInstance, name: str, tmp_path: Any) -> None:
    execution = jet.new_job(held(tmp_path / "n", name)).execute()
    items = iter(jet.get_observable(name))
    for n in range(5):
        (tmp_path / f"n{n}").touch()
        assert next(items) == n
    execution.cancel()
    with pytest.raises(CancelledError, match="was cancelled"):
        next(items)
    with pytest.raises(StopIteration):
        next(items)
    with pytest.raises(CancelledError):
        list(jet.get_observable(name))
    run(jet, sources.items(["next"]), sinks.observable(name))
    assert list(jet.get_observable(name)) == [0, 1, 2, 3, 4, "next"]


def test_what_a_job_fails_with_comes_after_its_items(jet: shmjet.JetInstance, name: str) -> None:
    errors: SimpleQueue[BaseException] = SimpleQueue()
    observable = jet.get_observable(name)
    observable.add_observer(lambda item: None, errors.put)
    p = Pipeline()
    p.read_from(sources.items([4, 2, 0])).map(lambda n: 8 // n).write_to(sinks.observable(name))
    with pytest.raises(JobFailedError):
        jet.new_job(p).run()
    for items in (iter(observable), iter(observable)):
        with pytest.raises(JobFailedError, match="ZeroDivisionError") as failed:
            assert not list(items)  # what was fused with the error is gone
        assert isinstance(failed.value.cause, ZeroDivisionError)
    assert isinstance(errors.get(timeout=SOON_S), JobFailedError)


def test_the_last_items_are_kept_and_slow_observers_are_told_what_they_missed(
    jet: shmjet.JetInstance, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    observable = jet.get_observable(name).configure_capacity(100)
    early = iter(observable)
    run(jet, sources.items(range(1_000_000)), sinks.observable(name))
    assert list(observable) == list(range(999_900, 1_000_000))
    got = list(early)
    assert early.missed + len(got) == 1_000_000
    assert got[-100:] == list(range(999_900, 1_000_000))
    assert "too slow and missed" in caplog.text
    with pytest.raises(ConfigError, match="in use with a capacity of 100 items"):
        observable.configure_capacity(7)


def test_a_restart_and_a_suspension_do_not_end_anything(jet: shmjet.JetInstance, name: str, tmp_path: Any) -> None:
    config = JobConfig(processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE, snapshot_interval=0.02)
    job, items = jet.new_job(held(tmp_path / "n", name), config), iter(jet.get_observable(name))
    execution = job.execute()
    (tmp_path / "n0").touch()
    assert next(items) == 0
    job.restart()
    assert next(items) == 0  # the source has no state, so its items come again
    suspended = threading.Event()
    job.on_status(lambda old, new: suspended.set() if new is JobStatus.SUSPENDED else None)
    job.suspend()
    assert suspended.wait(SOON_S)
    job.resume()
    assert next(items) == 0
    execution.cancel()
    with pytest.raises(CancelledError):
        next(items)


def test_items_of_all_kinds_come_through(jet: shmjet.JetInstance, name: str) -> None:
    class Local:
        value = 5

    big = bytes(8 << 20)
    run(jet, sources.items(["a", big, Local(), Batch({"x": np.arange(5)})]), sinks.observable(name))
    text, same, local, batch = jet.get_observable(name)
    assert (text, len(same), local.value) == ("a", len(big), 5)
    assert batch["x"].tolist() == [0, 1, 2, 3, 4]


def test_two_jobs_write_to_one_observable(jet: shmjet.JetInstance, name: str, tmp_path: Any) -> None:
    observable, ends = jet.get_observable(name), threading.Semaphore(0)
    observable.add_observer(lambda item: None, lambda error: ends.release(), ends.release)
    held_one = jet.new_job(held(tmp_path / "n", name)).execute()
    (tmp_path / "n0").touch()
    items = iter(observable)
    assert next(items) == 0
    run(jet, sources.items(["other"]), sinks.observable(name))
    assert next(items) == "other"
    (tmp_path / "n1").touch()
    assert next(items) == 1  # iterating goes on after the end of the other job
    held_one.cancel()
    with pytest.raises(CancelledError):
        next(items)
    assert ends.acquire(timeout=SOON_S)
    assert ends.acquire(timeout=SOON_S)


def test_an_observer_that_raises_is_called_again(
    jet: shmjet.JetInstance, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    heard, ended = list[int](), threading.Event()

    def picky(item: int) -> None:
        heard.append(item)
        raise ValueError(f"not {item}")

    observable = jet.get_observable(name)
    key = observable.add_observer(picky, on_complete=ended.set)
    run(jet, sources.items([1, 2, 3]), sinks.observable(name))
    assert ended.wait(SOON_S)
    assert heard == [1, 2, 3]
    assert "picky) raised ValueError: not 3; it is called again" in caplog.text
    observable.remove_observer(key)
    with pytest.raises(ValueError, match="has no observer"):
        observable.remove_observer(key)
    run(jet, sources.items([4]), sinks.observable(name))
    assert list(observable) == [1, 2, 3, 4]
    assert heard == [1, 2, 3]


def test_an_observer_may_remove_itself_and_use_the_instance(jet: shmjet.JetInstance, name: str) -> None:
    observable, keys, done = jet.get_observable(name), list[Any](), threading.Event()

    def once(item: int) -> None:
        observable.remove_observer(keys[0])
        jet.get_list(name).append(item)
        done.set()

    keys.append(observable.add_observer(once))
    run(jet, sources.items(range(100)), sinks.observable(name))
    assert done.wait(SOON_S)
    assert list(jet.get_list(name)) == [0]


def test_destroying_ends_those_who_iterate(jet: shmjet.JetInstance, name: str) -> None:
    observable = jet.get_observable(name)
    everything = observable.to_future(list)
    run(jet, sources.items([1]), sinks.observable(name))
    again = iter(observable)
    assert next(again) == 1
    observable.destroy()
    assert list(again) == []
    assert everything.result(SOON_S) == [1]
    run(jet, sources.items([2]), sinks.observable(name))
    assert list(observable) == [2]


def test_a_future_has_what_its_function_raises(jet: shmjet.JetInstance, name: str) -> None:
    future = jet.get_observable(name).to_future(lambda items: 1 / next(iter(items)))
    run(jet, sources.items([0]), sinks.observable(name))
    assert isinstance(future.exception(SOON_S), ZeroDivisionError)


def test_arguments_are_checked(jet: shmjet.JetInstance, name: str) -> None:
    observable = jet.get_observable(name)
    for wrong in ("", 5, "x" * 1025, "\udc80"):
        with pytest.raises(TypeError, match="get_observable"):
            jet.get_observable(wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"sinks\.observable"):
            sinks.observable(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="on_error must be a function"):
        observable.add_observer(print, on_error=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="on_next must be a function"):
        observable.add_observer(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="fn must be a function"):
        observable.to_future(None)  # type: ignore[arg-type]
    wrong_ones: list[tuple[Any, Any]] = [(0, ValueError), (-1, ValueError), ("5", TypeError), (True, TypeError)]
    for capacity, error in [*wrong_ones, (10**8, ConfigError)]:
        with pytest.raises(error):
            observable.configure_capacity(capacity)


def test_an_instance_that_is_shut_down_ends_those_who_iterate(eventually: Callable[..., None]) -> None:
    outcome: list[BaseException] = []

    def iterate(items: Any) -> None:
        try:
            next(items)
        except BaseException as error:
            outcome.append(error)

    with shmjet.new_instance(shmjet.JetConfig(cores=1)) as jet:
        observable = jet.get_observable("x")
        items = iter(observable)
        future = observable.to_future(list)
        observable.add_observer(print)
        thread = threading.Thread(target=iterate, args=(items,))
        thread.start()
    thread.join(SOON_S)
    assert "this instance has been shut down" in str(outcome[0])
    assert isinstance(future.exception(SOON_S), ShmjetError)
    with pytest.raises(ShmjetError, match="has been shut down"):
        iter(observable)
    logging.getLogger("shmjet.client").debug("no thread is left, says the fixture")
