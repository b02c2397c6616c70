"""`PoolExecutor`: what it promises beyond CPython's own tests, which `test_cpython.py` runs."""

from __future__ import annotations

import concurrent.futures
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool, _RemoteTraceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shmjet
from shmjet import PoolExecutor
from shmjet._native import clock_ns
from shmjet.pool.layout import Layout
from tests.memory import held_bytes
from tests.pool.functions import double, fail_deep, raise_odd, touch_and_wait, wait_for_file
from tests.stopping import stop
from tests.waiting import until, until_there


def total_size_with(table: bytes) -> Callable[[bytes], int]:
    return lambda block: len(table) + len(block)


@pytest.fixture
def pool(request: pytest.FixtureRequest) -> Iterator[PoolExecutor]:
    failures = request.session.testsfailed
    with PoolExecutor(2) as executor:
        yield executor
        if request.session.testsfailed > failures:  # it may have left a task that waits for ever
            executor.kill_workers()


@pytest.fixture(scope="module")
def shared() -> Iterator[PoolExecutor]:
    """A pool for tests that leave it as it was, which spares them its start."""
    with PoolExecutor(2) as executor:
        yield executor


def test_lambdas_closures_and_methods_go_by_value(shared: PoolExecutor) -> None:
    factor = 3
    assert shared.submit(lambda x: x * factor, 5).result() == 15
    assert shared.submit([1, 2, 2].count, 2).result() == 2
    assert shared.submit("a-b".split, sep="-").result() == ["a", "b"]


def test_workers_look_for_garbage(shared: PoolExecutor) -> None:
    assert shared.submit(gc.isenabled).result(30)


def test_a_closure_that_changes_is_sent_again(shared: PoolExecutor) -> None:
    factor = 3

    def scaled(x: int) -> int:
        return x * factor

    assert shared.submit(scaled, 2).result() == 6
    factor = 4
    assert shared.submit(scaled, 2).result() == 8


def test_more_functions_than_workers_keep(shared: PoolExecutor) -> None:
    functions = [eval(f"lambda x: x + {i}") for i in range(600)]
    futures = [shared.submit(function, 1) for function in functions]
    assert [future.result() for future in futures] == [1 + i for i in range(600)]
    assert shared.submit(functions[0], 1).result() == 1


def test_a_large_function_and_a_large_argument_that_do_not_fit_a_ring_together() -> None:
    half = Layout(1).ring_capacity // 2
    with PoolExecutor(max_workers=1) as pool:
        for size in (half // 2, half - 1000, half + 1000):
            function = total_size_with(bytes(size))
            for argument in (half - 1000, half + 1000):
                assert pool.submit(function, bytes(argument)).result(60) == size + argument


@pytest.mark.parametrize("size", [0, 1, 10, 1_000, 100_000, 2_000_000])
def test_arrays_of_any_size_come_back_equal_and_writable(shared: PoolExecutor, size: int) -> None:
    array = np.arange(size, dtype=np.float64)
    result = shared.submit(double, array).result()
    assert result.dtype == array.dtype
    np.testing.assert_array_equal(result, array * 2)
    if size:
        result[0] = 7
        assert result[0] == 7
        assert array[0] == 0


def test_a_task_may_write_into_its_arguments(shared: PoolExecutor) -> None:
    def fill(array: Any) -> float:
        array[:] = 1
        return float(array.sum())

    for size in (100, 3_000_000):
        array = np.zeros(size)
        assert shared.submit(fill, array).result() == size
        assert not array.any()


def test_large_results_stay_when_the_pool_is_closed() -> None:
    with PoolExecutor(2) as executor:
        results = list(executor.map(np.full, [3_000_000, 10], [1.5, 2.5]))
    del executor
    gc.collect()
    assert results[0].sum() == 4_500_000
    assert results[1].sum() == 25


def test_many_large_results_hold_no_descriptors(pool: PoolExecutor) -> None:
    pool.submit(int).result()
    before = len(os.listdir("/proc/self/fd"))
    results = [pool.submit(np.ones, 1_200_000).result() for _ in range(5)]
    assert len(os.listdir("/proc/self/fd")) == before
    assert sum(float(result.sum()) for result in results) == 6_000_000


def test_batches_go_both_ways(shared: PoolExecutor) -> None:
    batch = shmjet.Batch({"n": np.arange(1000), "x": np.ones(1000)})
    result = shared.submit(lambda b: b.filter(b["n"] >= 990), batch).result()
    assert isinstance(result, shmjet.Batch)
    assert result["n"].tolist() == list(range(990, 1000))


@pytest.mark.parametrize(
    "value",
    [None, True, 1, -(2**63), 2**70, 1.5, "", "äöü", b"\0", (1, 2), {"a": [1]}, "x" * 5_000_000, b"y" * 9**7],
)
def test_values_come_back_equal(shared: PoolExecutor, value: Any) -> None:
    result = shared.submit(lambda x: x, value).result()
    assert result == value
    assert type(result) is type(value)


def test_exceptions_have_the_remote_traceback(shared: PoolExecutor) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        shared.submit(fail_deep, 0).result()
    assert type(caught.value.__cause__) is _RemoteTraceback
    assert "return 1 / x" in str(caught.value.__cause__)
    assert f'File "{shmjet.__path__[0]}{os.sep}' not in str(caught.value.__cause__)


def test_an_exception_that_cannot_be_pickled_still_says_what_it_was(shared: PoolExecutor) -> None:
    with pytest.raises(RuntimeError, match="Odd: 1 2"):
        shared.submit(raise_odd).result()


def test_arguments_that_cannot_be_pickled_fail_their_task_only(shared: PoolExecutor) -> None:
    bad = shared.submit(double, threading.Lock())
    with pytest.raises(TypeError, match="pickle"):
        bad.result()
    assert shared.submit(double, 2).result() == 4


def test_a_dead_worker_costs_what_it_ran_and_the_pool_heals(pool: PoolExecutor, tmp_path: Path) -> None:
    gate = str(tmp_path / "gate")
    survivor = pool.submit(wait_for_file, gate)
    victim = pool.submit(os._exit, 3)
    queued = [pool.submit(double, i) for i in range(50)]
    with pytest.raises(BrokenProcessPool, match="exit status 3"):
        victim.result(60)
    assert [future.result(60) for future in queued] == [2 * i for i in range(50)]
    Path(gate).touch()
    assert survivor.result(60) is None
    assert pool.submit(double, 21).result() == 42


def test_kill_9_of_an_idle_worker_is_not_noticed(pool: PoolExecutor, eventually: Any) -> None:
    pid = pool.submit(os.getpid).result()
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not os.path.exists(f"/proc/{pid}"))
    eventually(lambda: pid not in pool.worker_pids)
    assert pool.submit(os.getpid).result() != pid


def test_kill_9_of_the_fork_server_is_survived(pool: PoolExecutor, tmp_path: Path, eventually: Any) -> None:
    begun = str(tmp_path / "begun")
    stuck = pool.submit(touch_and_wait, begun, str(tmp_path / "never"))
    wait_for_file(begun)
    eventually(lambda: pool.worker_pids)  # the fork server says it when the worker runs already
    parent = int(Path(f"/proc/{max(pool.worker_pids)}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(parent, signal.SIGKILL)
    with pytest.raises(BrokenProcessPool):
        stuck.result(60)
    assert pool.submit(double, 4).result(60) == 8


def test_tasks_behind_a_stuck_one_run_elsewhere(pool: PoolExecutor, tmp_path: Path) -> None:
    def maybe_wait(path: str) -> int:
        if path:
            until_there(path)
        return 1

    assert sum(pool.submit(maybe_wait, "").result() for _ in range(200)) == 200  # known as a quick one now
    gate = str(tmp_path / "gate")
    futures = [pool.submit(maybe_wait, gate if i == 10 else "") for i in range(300)]
    others = [future for i, future in enumerate(futures) if i != 10]
    assert len(concurrent.futures.wait(others, 60).done) == 299
    assert not futures[10].done()
    Path(gate).touch()
    assert futures[10].result(60) == 1


def test_quick_tasks_behind_one_that_is_stuck_from_the_start_run_elsewhere(
    pool: PoolExecutor, tmp_path: Path, eventually: Any
) -> None:
    def maybe_wait(path: str) -> int:
        if path:
            until_there(path)
        return 1

    assert [pool.submit(maybe_wait, "").result() for _ in range(100)] == [1] * 100  # quick, and by one worker
    eventually(lambda: pool.worker_pids)
    assert len(pool.worker_pids) == 1
    gate = str(tmp_path / "gate")
    stuck, *others = [pool.submit(maybe_wait, path) for path in (gate, *[""] * 20)]
    assert len(concurrent.futures.wait(others, 60).done) == 20
    assert not stuck.done()
    Path(gate).touch()
    assert stuck.result(60) == 1


def test_a_worker_that_does_not_run_for_a_while_has_its_tasks_taken_and_is_used_again(
    pool: PoolExecutor, tmp_path: Path
) -> None:
    both = [pool.submit(touch_and_wait, str(tmp_path / a), str(tmp_path / b)) for a, b in ("ab", "ba")]
    pids = [future.result(60) for future in both]
    assert [pool.submit(double, 1).result(60) for _ in range(100)] == [2] * 100
    for pid in pids:  # one of the two is the next to get tasks
        stop(pid)
        try:
            assert [future.result(60) for future in [pool.submit(double, i) for i in range(5)]] == [0, 2, 4, 6, 8]
        finally:
            os.kill(pid, signal.SIGCONT)
        names = [(str(tmp_path / f"{pid}{a}"), str(tmp_path / f"{pid}{b}")) for a, b in ("ab", "ba")]
        assert {future.result(60) for future in [pool.submit(touch_and_wait, *pair) for pair in names]} == set(pids)


def test_what_is_known_of_workers_does_not_grow_with_their_tasks(pool: PoolExecutor) -> None:
    held = []
    for _ in range(300):
        assert pool.submit(double, 1).result(60) == 2
        held.append(held_bytes(pool))
    assert max(held[200:]) < 1.1 * max(held[:50])


def test_a_stuck_task_can_be_killed(pool: PoolExecutor) -> None:
    stuck = pool.submit(time.sleep, 60)
    other = pool.submit(double, 2)
    assert other.result(60) == 4
    assert pool.kill(stuck)
    with pytest.raises(BrokenProcessPool, match="kill"):
        stuck.result(60)
    assert not pool.kill(stuck)
    assert pool.submit(double, 3).result(60) == 6


def test_task_timeout_kills_only_the_late_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = 0  # nanoseconds: with a short time-out each task would be late on a machine that stands still for a moment
    monkeypatch.setattr("shmjet.pool.engine.clock_ns", lambda: clock_ns() + later)
    monkeypatch.setattr("shmjet.pool.engine.LOOK_NS", 10**7)
    begun = str(tmp_path / "begun")
    with PoolExecutor(2, task_timeout=300) as executor:
        late = executor.submit(touch_and_wait, begun, str(tmp_path / "never"))
        others = [executor.submit(double, i) for i in range(10)]
        assert [future.result(60) for future in others] == [2 * i for i in range(10)]
        wait_for_file(begun)
        later = 301 * 10**9
        with pytest.raises(TimeoutError, match="task_timeout=300 s"):
            late.result(60)
        later = 0
        assert executor.submit(double, 4).result(60) == 8


def test_task_timeout_is_kept_for_a_task_that_is_alone() -> None:
    with PoolExecutor(1, task_timeout=0.2) as executor:
        executor.submit(double, 1).exception(60)  # it may be late, too
        late = executor.submit(time.sleep, 60)  # no other event wakes the collector
        with pytest.raises(TimeoutError, match=r"task_timeout=0\.2 s"):
            late.result(60)


def test_workers_are_pinned_to_different_cores(tmp_path: Path) -> None:
    with PoolExecutor(2, cores=sorted(os.sched_getaffinity(0))[:1]) as executor:
        a, b = str(tmp_path / "a"), str(tmp_path / "b")
        first, second = executor.submit(touch_and_wait, a, b), executor.submit(touch_and_wait, b, a)
        pids = first.result(60), second.result(60)
        assert pids[0] != pids[1]
        assert all(len(os.sched_getaffinity(pid)) == 1 for pid in pids)


def test_workers_are_replaced_after_max_tasks() -> None:
    with PoolExecutor(1, max_tasks_per_child=3) as executor:
        pids = [executor.submit(os.getpid).result() for _ in range(9)]
        assert len(set(pids)) == 3
        assert len(set(executor.map(double, range(30)))) == 30


def test_a_failing_initializer_breaks_the_pool() -> None:
    with PoolExecutor(1, initializer=fail_deep, initargs=(0,)) as executor:
        with pytest.raises(BrokenProcessPool):
            executor.submit(int).result(60)
        with pytest.raises(BrokenProcessPool):
            executor.submit(int)


def test_a_worker_that_dies_in_its_initializer_breaks_the_pool() -> None:
    with PoolExecutor(1, initializer=os._exit, initargs=(3,)) as executor:
        for future in [executor.submit(int) for _ in range(4)]:
            with pytest.raises(BrokenProcessPool, match="exit status 3"):
                future.result(60)


@pytest.mark.parametrize("which", ["kill_workers", "terminate_workers"])
def test_all_workers_can_be_killed(which: str) -> None:
    executor = PoolExecutor(2)
    futures = [executor.submit(time.sleep, 60) for _ in range(4)]
    until(lambda: len(executor.worker_pids) == 2)
    getattr(executor, which)()
    for future in futures:
        with pytest.raises((BrokenProcessPool, concurrent.futures.CancelledError)):
            future.result(60)
    executor.shutdown()


def test_a_pool_that_has_ended_does_not_keep_the_module_that_it_is_in() -> None:
    namespace: dict[str, Any] = {"PoolExecutor": PoolExecutor}
    exec("pool = PoolExecutor(1)\ndef same(x): return x", namespace)
    with namespace["pool"] as executor:
        assert executor.submit(namespace["same"], 1).result() == 1
    found = weakref.ref(executor)
    del executor, namespace
    gc.collect()
    assert found() is None


def test_a_dropped_pool_ends_after_its_tasks(eventually: Any) -> None:
    before = set(threading.enumerate())
    executor = PoolExecutor(2)
    results = executor.map(double, range(20))
    pids = executor.worker_pids
    threads = set(threading.enumerate()) - before
    assert threads
    del executor
    gc.collect()
    assert list(results) == [2 * i for i in range(20)]
    del results
    eventually(lambda: not any(thread.is_alive() for thread in threads))
    eventually(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))


def test_leaving_the_with_ends_the_workers() -> None:
    with PoolExecutor(5) as executor:
        assert list(executor.map(abs, range(-5, 5))) == [5, 4, 3, 2, 1, 0, 1, 2, 3, 4]
        pids = executor.worker_pids
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_shutdown_without_waiting_still_gives_results() -> None:
    executor = PoolExecutor(2)
    results = executor.map(double, range(20))
    executor.shutdown(wait=False)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(int)
    assert list(results) == [2 * i for i in range(20)]
    executor.shutdown()


def test_arguments_are_checked() -> None:
    for wrong in ({"max_workers": 0}, {"max_tasks_per_child": 0}, {"task_timeout": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            PoolExecutor(**wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="initializer"):
        PoolExecutor(1, initializer=3)  # type: ignore[arg-type]


def test_submitting_from_many_threads(shared: PoolExecutor) -> None:
    found: list[int] = []

    def work(start: int) -> None:
        found.extend(shared.submit(double, i).result() for i in range(start, start + 100))

    threads = [threading.Thread(target=work, args=(100 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [2 * i for i in range(400)]


def test_callbacks_may_submit(shared: PoolExecutor) -> None:
    done = threading.Event()
    shared.submit(double, 1).add_done_callback(
        lambda _: shared.submit(double, 2).add_done_callback(lambda _: done.set())
    )
    assert done.wait(60)


def test_a_forked_child_has_a_pool_of_its_own(pool: PoolExecutor, eventually: Any) -> None:
    mine = pool.submit(os.getpid).result()
    eventually(lambda: mine in pool.worker_pids)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with pool:
                os.write(writer, str(pool.submit(os.getpid).result(60)).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    theirs = os.read(reader, 100)
    os.close(reader)
    assert os.waitpid(child, 0)[1] == 0
    assert int(theirs) not in pool.worker_pids
    assert mine in pool.worker_pids
    again = pool.submit(os.getpid).result()
    eventually(lambda: again in pool.worker_pids)


def test_a_pool_that_has_ended_closes_nothing_in_a_forked_child() -> None:
    with PoolExecutor(1) as ended:
        assert ended.submit(double, 1).result() == 2
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(16)]  # they have the numbers of what the pool has closed
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for fd in files:
                os.fstat(fd)
            status = 0
        finally:
            os._exit(status)
    for fd in files:
        os.close(fd)
    assert os.waitpid(child, 0)[1] == 0
    assert not ended.is_usable


def test_a_pool_inside_a_worker_works(shared: PoolExecutor) -> None:
    def inner(n: int) -> list[int]:
        with PoolExecutor(1) as nested:
            return list(nested.map(double, range(n)))

    assert shared.submit(inner, 4).result(60) == [0, 2, 4, 6]


def test_a_task_that_refers_to_its_own_pool_is_told_so(shared: PoolExecutor) -> None:
    with pytest.raises(TypeError, match="cannot be sent to a worker"):
        shared.submit(lambda: shared.submit(double, 1).result()).result(60)
    assert shared.submit(double, 1).result() == 2


def _run_script(tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "script.py"
    script.write_text(text)
    root = str(Path(shmjet.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": root}
    return subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, env=environment)


def test_a_script_without_a_guard(tmp_path: Path) -> None:
    done = _run_script(
        tmp_path,
        "import shmjet\n"
        "class Point:\n"
        "    def __init__(self, x): self.x = x\n"
        "def moved(p): return Point(p.x + 1)\n"
        "pool = shmjet.PoolExecutor(2)\n"
        "print(pool.submit(moved, Point(1)).result().x, [p.x for p in pool.map(moved, [Point(5)])], 'once')\n",
    )
    assert (done.stdout, done.stderr, done.returncode) == ("2 [6] once\n", "", 0)


def test_kill_9_of_the_user_leaves_nothing(tmp_path: Path, eventually: Any) -> None:
    done = _run_script(
        tmp_path,
        "import os, shmjet, time\n"
        "pool = shmjet.PoolExecutor(2)\n"
        "def parent(): return os.getpid(), os.getppid()\n"
        "print(*pool.submit(parent).result(), flush=True)\n"
        "pool.submit(time.sleep, 100)\n"
        "if os.fork() == 0:\n"
        "    os.close(1); os.close(2); time.sleep(3); os._exit(0)\n"
        "os.kill(os.getpid(), 9)\n",
    )
    assert done.returncode == -9
    pids = [int(word) for word in done.stdout.split()]
    eventually(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))
