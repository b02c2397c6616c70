"""The futures of tasks behave as the futures of `concurrent.futures`."""

from __future__ import annotations

import concurrent.futures
import threading
from concurrent.futures import CancelledError, InvalidStateError

import pytest

from shmjet.pool.future import TaskFuture


def test_a_result_that_is_there_needs_no_condition() -> None:
    future = TaskFuture()
    assert future.begin()
    future.finish(7)
    assert future.result() == 7
    assert future.done()
    assert not isinstance(vars(future)["_condition"], threading.Condition)
    assert "_waiters" not in vars(future)
    assert "state=finished returned int" in repr(future)
    assert (future.exception(), future.running(), future.cancelled(), future.cancel()) == (None, False, False, False)
    found = []
    future.add_done_callback(found.append)
    assert found == [future]
    with pytest.raises(InvalidStateError):
        future.set_result(8)


def test_a_result_that_somebody_waits_for_reaches_them() -> None:
    for finish in (lambda future: future.finish(7), lambda future: future.set_result(7)):
        future, found = TaskFuture(), []
        waiting = threading.Thread(target=lambda future=future, found=found: found.append(future.result(60)))
        future.add_done_callback(lambda done, found=found: found.append("called"))
        waiting.start()
        assert future.begin()
        assert future.running()
        finish(future)
        waiting.join()
        assert sorted(map(str, found)) == ["7", "called"]


def test_what_has_ended_is_not_ended_again() -> None:
    future = TaskFuture()
    future.begin()
    future.fail(LookupError("first"))
    future.finish(7)
    future.fail(ValueError("later"))
    with pytest.raises(LookupError, match="first"):
        future.result()
    assert isinstance(future.exception(), LookupError)


def test_a_task_begins_or_is_cancelled() -> None:
    begun, cancelled = TaskFuture(), TaskFuture()
    assert begun.begin()
    assert not begun.cancel()
    called = []
    cancelled.add_done_callback(called.append)
    assert cancelled.cancel()
    assert not cancelled.begin()
    cancelled.drop()
    assert cancelled.cancel()
    assert called == [cancelled]
    with pytest.raises(CancelledError):
        cancelled.result(0)
    assert concurrent.futures.wait([cancelled], 0).done == {cancelled}


def test_exactly_one_of_beginning_and_cancelling_wins() -> None:
    for _ in range(200):
        future, outcomes, barrier = TaskFuture(), [], threading.Barrier(2)

        def cancel(future: TaskFuture, outcomes: list[bool], barrier: threading.Barrier) -> None:
            barrier.wait()
            outcomes.append(future.cancel())

        thread = threading.Thread(target=cancel, args=(future, outcomes, barrier))
        thread.start()
        barrier.wait()
        outcomes.append(future.begin())
        thread.join()
        assert sorted(outcomes) == [False, True]


def test_waiting_for_all_while_they_end_misses_none() -> None:
    futures = [TaskFuture() for _ in range(3000)]

    def end() -> None:
        for number, future in enumerate(futures):
            future.begin()
            future.finish(number)

    thread = threading.Thread(target=end)
    thread.start()
    for start in range(0, len(futures), 100):
        assert not concurrent.futures.wait(futures[start : start + 100], 30).not_done
    assert [future.result() for future in concurrent.futures.as_completed(futures, 60)]
    thread.join()
    assert [future.result() for future in futures] == list(range(3000))


def test_an_unknown_attribute_is_named() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = TaskFuture().nothing
