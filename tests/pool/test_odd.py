"""Whatever tasks raise and return, and whatever callbacks do: the other tasks of a pool get their results."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
import time
import types
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, InvalidStateError, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from shmjet import PoolExecutor
from shmjet._native import Codec, Doorbell
from shmjet.pool.layout import Layout
from shmjet.pool.worker_handles import Forked, Server, WorkerHandle
from shmjet.ring.arena import Arena
from tests.odd import ODD, ExitsOnArrival, ExitsOnDeparture, NamelessKind, SlowToArrive, raise_odd, raise_odd_at
from tests.pool.functions import touch_and_wait, wait_for_file
from tests.stopping import stop
from tests.waiting import until, until_there

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def pool() -> Iterator[PoolExecutor]:
    with PoolExecutor(2) as executor:
        yield executor


def pids_of(pool: PoolExecutor) -> set[int]:
    """Return the workers, all of which are started."""
    list(pool.map(time.sleep, [0.01] * 4, chunksize=1))
    return set(started(pool, 2))


def started(pool: PoolExecutor, count: int) -> tuple[int, ...]:
    """Return the workers as soon as there are so many: the fork server says it when they run already."""
    return until(lambda: pids if len(pids := pool.worker_pids) >= count else ())


@pytest.mark.parametrize("name", sorted(ODD))
def test_an_odd_exception_costs_its_task_only(pool: PoolExecutor, name: str) -> None:
    workers = pids_of(pool)
    odd = [pool.submit(raise_odd, name) for _ in range(3)]
    others = [pool.submit(pow, 2, i) for i in range(20)]
    chunks = pool.map(raise_odd_at, range(20), [name] * 20, chunksize=10)
    for future in odd:
        error = future.exception(PATIENCE_S)
        assert issubclass(type(error), BaseException)
        assert future.exception() is error
    assert [future.result(PATIENCE_S) for future in others] == [2**i for i in range(20)]
    found = []
    with pytest.raises(BaseException) as raised:
        found.extend(chunks)
    assert type(raised.value) is not BrokenProcessPool
    assert pids_of(pool) == workers


def test_an_exception_that_unpickles_to_something_else_says_so(pool: PoolExecutor) -> None:
    error = pool.submit(raise_odd, "no exception").exception(PATIENCE_S)
    assert str(error) == "tests.odd.NoException: "
    assert "unpickles to int" in str(error.__cause__)
    assert "in raise_odd" in str(error.__cause__)


@pytest.mark.parametrize("value", [ExitsOnArrival, ExitsOnDeparture])
def test_a_value_that_exits_where_it_is_pickled_costs_its_task_only(pool: PoolExecutor, value: type) -> None:
    workers = pids_of(pool)
    assert pool.submit(value).exception(PATIENCE_S) is not None
    assert pool.submit(id, value()).exception(PATIENCE_S) is not None
    assert pool.submit(pow, 2, 3).result(PATIENCE_S) == 8
    assert set(pool.worker_pids) == workers


def test_a_callable_of_a_hostile_class_costs_its_task_only(pool: PoolExecutor) -> None:
    callee = NamelessKind("Callee", (), {"__call__": lambda self: 1})()
    assert isinstance(pool.submit(callee).exception(PATIENCE_S), SystemExit)
    assert pool.submit(pow, 2, 3).result(PATIENCE_S) == 8


def test_a_function_of_a_module_that_workers_cannot_import_says_what_to_do(
    pool: PoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("made_by_its_user")
    exec("def f(x):\n    return 2 * x\n\ndef g(x):\n    return 3 * x", module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with pytest.raises(ModuleNotFoundError, match=r"'made_by_its_user': .*register_pickle_by_value") as caught:
        pool.submit(module.f, 1).result(PATIENCE_S)
    assert caught.value.name == "made_by_its_user"
    cloudpickle.register_pickle_by_value(module)
    try:
        assert pool.submit(module.g, 1).result(PATIENCE_S) == 3
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def test_a_value_whose_reading_takes_long_holds_up_nobody_else(pool: PoolExecutor, tmp_path: Path) -> None:
    go = tmp_path / "go"
    slow = pool.submit(SlowToArrive, str(go))
    wait([slow], PATIENCE_S)
    reader = threading.Thread(target=slow.result)
    reader.start()
    try:
        assert [pool.submit(list, range(3)).result(PATIENCE_S) for _ in range(10)] == [[0, 1, 2]] * 10
        assert slow.done()
        assert reader.is_alive()
    finally:
        go.touch()
        reader.join(PATIENCE_S)
    assert slow.result() == 5


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, RuntimeError])
def test_what_a_callback_raises_is_logged(
    pool: PoolExecutor, kind: type[BaseException], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    go, called = tmp_path / "go", threading.Event()

    def callback(_: Future[Any]) -> None:
        raise kind("from a callback")

    first = pool.submit(os.path.exists, SlowArgument(str(go)))
    first.add_done_callback(callback)
    first.add_done_callback(lambda _: called.set())
    others = [pool.submit(pow, 2, i) for i in range(50)]
    go.touch()
    assert [future.result(PATIENCE_S) for future in others] == [2**i for i in range(50)]
    assert called.wait(PATIENCE_S)
    records = [record for record in caplog.records if record.name == "concurrent.futures"]
    assert [record.levelno for record in records] == [logging.ERROR]
    assert records[0].getMessage().startswith("exception calling callback for <TaskFuture")


class SlowArgument:
    """A path that a worker unpickles when it is there."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return _when_there, (self.path,)


def _when_there(path: str) -> str:
    until_there(path)
    return path


def test_a_handler_that_raises_does_not_end_the_pool(pool: PoolExecutor) -> None:
    class Broken(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:
            raise SystemExit("handled")

    handler = Broken()
    logging.getLogger().addHandler(handler)
    try:
        assert pool.submit(logging.getLogger("odd").error, "hear me").result(PATIENCE_S) is None
        assert pool.submit(pow, 2, 3).result(PATIENCE_S) == 8
    finally:
        logging.getLogger().removeHandler(handler)
    assert pool.submit(pow, 2, 3).result(PATIENCE_S) == 8


def test_whoever_ends_a_future_of_a_pool_ends_nothing_else(pool: PoolExecutor, tmp_path: Path) -> None:
    go = tmp_path / "go"
    running = [pool.submit(_when_there, str(go)) for _ in range(2)]
    waiting = [pool.submit(pow, 2, i) for i in range(60)]
    for future in waiting[0:10]:
        future.set_result("mine")
    for future in waiting[10:20]:
        future.set_exception(LookupError("mine"))
    for future in waiting[20:30]:
        assert future.set_running_or_notify_cancel()
        with pytest.raises(RuntimeError):
            future.set_running_or_notify_cancel()
    for future in waiting[30:40]:
        assert future.cancel()
        assert not future.set_running_or_notify_cancel()
    for future in waiting[40:50]:
        future.set_result("mine")
        with pytest.raises(InvalidStateError):
            future.set_exception(LookupError())
        assert not future.cancel()
    running[0].set_result("mine")
    go.touch()
    assert running[0].result(PATIENCE_S) == "mine"
    assert running[1].result(PATIENCE_S) == str(go)
    assert [future.result(PATIENCE_S) for future in (*waiting[:10], *waiting[40:50])] == ["mine"] * 20
    assert all(isinstance(future.exception(PATIENCE_S), LookupError) for future in waiting[10:20])
    assert [future.result(PATIENCE_S) for future in waiting[20:30]] == [2**i for i in range(20, 30)]
    for future in waiting[30:40]:
        with pytest.raises(CancelledError):
            future.result(PATIENCE_S)
    assert [future.result(PATIENCE_S) for future in waiting[50:]] == [2**i for i in range(50, 60)]


def test_cancelled_futures_that_somebody_said_run_end_with_the_pool(tmp_path: Path) -> None:
    go = tmp_path / "go"
    with PoolExecutor(1) as own:
        running = own.submit(_when_there, str(go))
        waiting = own.submit(pow, 2, 3)
        assert waiting.set_running_or_notify_cancel()
        own.shutdown(wait=False, cancel_futures=True)
        assert isinstance(waiting.exception(PATIENCE_S), CancelledError)
        go.touch()
        assert running.result(PATIENCE_S) == str(go)


def test_worker_pids_are_those_of_processes(tmp_path: Path) -> None:
    go = tmp_path / "go"
    with PoolExecutor(4) as own:
        seen = []
        futures = [own.submit(_when_there, str(go)) for _ in range(4)]
        while len(own.worker_pids) < 4:
            seen.append(own.worker_pids)
        go.touch()
        for future in futures:
            future.result(PATIENCE_S)
    assert all(pid > 0 for pids in seen for pid in pids)


def test_a_worker_that_has_run_a_task_is_among_worker_pids(monkeypatch: pytest.MonkeyPatch) -> None:
    received = Server.messages

    def without_forked(server: Server) -> list[Any]:
        return [message for message in received(server) if not isinstance(message, Forked)]

    monkeypatch.setattr(Server, "messages", without_forked)  # as if it were slower than the worker
    with PoolExecutor(1) as own:
        assert own.submit(os.getpid).result(PATIENCE_S) in own.worker_pids


def test_a_signal_to_a_worker_that_is_being_forked_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    layout = Layout(1)
    arena = Arena.create(layout.size, label="pool")
    bell = Doorbell(arena.memory, 0)
    worker = WorkerHandle(0, 1, arena, layout, Codec(), bell)
    worker.kill(signal.SIGTERM)
    assert sent == []
    worker.forked_as(7)
    assert sent == [(7, signal.SIGTERM)]
    worker.close()
    bell.close()
    arena.close()


def test_an_initializer_that_hangs_is_ended_by_task_timeout() -> None:
    with PoolExecutor(1, initializer=time.sleep, initargs=(3600,), task_timeout=0.2) as own:
        error = own.submit(pow, 2, 3).exception(PATIENCE_S)
    assert isinstance(error, BrokenProcessPool)
    assert "initializer ran for more than task_timeout=0.2 s" in str(error)


def test_pickling_and_showing_an_exception_is_part_of_its_task() -> None:
    with PoolExecutor(1, task_timeout=0.3) as own:
        assert isinstance(own.submit(raise_slow_text).exception(PATIENCE_S), TimeoutError)
        while isinstance((after := own.submit(pow, 2, 3)).exception(PATIENCE_S), TimeoutError):
            pass  # the machine stood still for a moment
        assert after.result() == 8


class SlowText(Exception):
    """Takes for ever to be shown."""

    def __str__(self) -> str:
        threading.Event().wait()
        return ""


def raise_slow_text() -> None:
    raise SlowText


def overwrite_results(byte: int) -> None:
    """Overwrite this worker's ring of results, of a pool with one worker, from its first word to its last, and stay."""
    layout = Layout(1)
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(part, 16) for part in line.split()[0].split("-"))
        if "/dev/shm/shmjet-" in line and last - first >= layout.size:
            start = layout.slot(0).results
            ctypes.memset(first + start, byte, layout.size - start)
            threading.Event().wait()


def test_a_worker_that_overwrites_its_results_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shmjet.pool.engine.IDLE_NS", 2 * 10**8)
    with PoolExecutor(1) as own:
        assert own.submit(pow, 2, 3).result(PATIENCE_S) == 8
        future = own.submit(overwrite_results, 0x5A)
        error = future.exception(PATIENCE_S)
        assert isinstance(error, BrokenProcessPool)
        assert "its results cannot be read" in str(error)
        assert own.submit(pow, 2, 3).result(PATIENCE_S) == 8


def fork_server_of(pool: PoolExecutor) -> int:
    return int(Path(f"/proc/{started(pool, 1)[0]}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_stopped_fork_server_is_waited_for_so_long(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr("shmjet.pool.engine.IDLE_NS", 2 * 10**8)
    with PoolExecutor(1) as own:
        worker = own.submit(os.getpid).result(PATIENCE_S)
        server = fork_server_of(own)
        monkeypatch.setattr("shmjet.pool.worker_pool.WARN_S", 0.1)
        monkeypatch.setattr("shmjet.pool.worker_pool.STOPPED_S", 0.5)
        stop(server)
        lost = own.submit(touch_and_wait, str(tmp_path / "begun"), str(tmp_path / "never"))
        wait_for_file(str(tmp_path / "begun"))
        waiting = own.submit(pow, 2, 3)
        os.kill(worker, signal.SIGKILL)
        assert isinstance(lost.exception(PATIENCE_S), BrokenProcessPool)
        assert waiting.result(PATIENCE_S) == 8
        assert fork_server_of(own) != server
        stop(fork_server_of(own))
    texts = [record.getMessage() for record in caplog.records if record.name == "shmjet.pool"]
    assert any(f"(pid {server}) of a pool is stopped (SIGSTOP)" in text for text in texts)
    assert any(f"(pid {server}) did not answer" in text for text in texts)
