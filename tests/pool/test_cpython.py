"""CPython's own tests of executors, `wait`, `as_completed` and process pools, run against `PoolExecutor`.

They come from `test.test_concurrent_futures` of the running Python. Some builds do not install that package (3.11.7 and
3.12.1, for example); `SHMJET_CPYTHON_TESTS` may then name the `Lib/test` folder of the same minor version, which
`.ci/run` takes from Debian. Each test that is left out is listed in `LEFT_OUT` with its reason.
"""

from __future__ import annotations

import functools
import importlib
import multiprocessing
import os
import sys
import unittest
from typing import Any

import pytest

import shmjet
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

_MINE = "looks into attributes of ProcessPoolExecutor's own machinery (_call_queue, _ExecutorManagerThread)"
LEFT_OUT = {
    "test_killed_child": "asserts that a pool is lost with one worker; this one heals (test_pool.py has both halves)",
    "test_max_workers_too_large": "Windows only",
    "test_python_finalization_error": "patches the start of ProcessPoolExecutor's second thread; here is only one",
    "test_gh105829_should_not_deadlock_if_wakeup_pipe_full": _MINE,
    "test_del_shutdown": _MINE + "; test_pool.py has the same test without them",
    "test_shutdown_no_wait": _MINE + "; test_pool.py has the same test without them",
    "test_context_manager_shutdown": "names ProcessPoolExecutor itself; test_pool.py has the same test",
    "test_max_tasks_per_child_defaults_to_spawn_context": "asserts which multiprocessing context is taken; none is",
    "test_force_shutdown_workers_invalid_op": _MINE,
    "test_force_shutdown_workers": _MINE + "; test_pool.py tests kill_workers and terminate_workers",
    "test_force_shutdown_workers_stops_queue": _MINE,
    "test_kill_workers": _MINE + "; test_pool.py tests kill_workers",
    "test_terminate_workers": _MINE + "; test_pool.py tests terminate_workers",
    "test_process_pool_executor_terminate_workers": _MINE,
    "test_process_pool_executor_kill_workers": _MINE,
    "test_terminate_workers_dead_processes": _MINE,
    "test_kill_workers_dead_processes": _MINE,
}
_OWN = os.environ.get("SHMJET_CPYTHON_TESTS")


class _Process:
    """A worker as the tests expect to find it among `_processes`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def join(self) -> None:
        until(lambda: not os.path.exists(f"/proc/{self.pid}"))

    def terminate(self) -> None:
        os.kill(self.pid, 15)


class PoolExecutor(shmjet.PoolExecutor):
    """`PoolExecutor` with the private attributes that the tests read."""

    @property
    def _processes(self) -> dict[int, _Process]:
        until(lambda: self._engine is None or len(self.worker_pids) >= self._engine.workers)
        return {pid: _Process(pid) for pid in self.worker_pids}

    @property
    def _broken(self) -> str | None:
        return self._engine.broken if self._engine else None

    @property
    def _executor_manager_thread(self) -> Any:
        return self._engine._thread  # noqa: SLF001  # which CPython's tests wait for, and the pool shows no one


class PoolMixin:
    """What `ProcessPoolSpawnMixin` is for ProcessPoolExecutor."""

    executor_type = PoolExecutor

    def get_context(self) -> Any:
        return _Context(self)


class _Context:
    """The spawn context, but its semaphores can be sent to processes that it has not started."""

    def __init__(self, case: Any) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._case = case

    def Semaphore(self, value: int) -> Any:
        manager = self._context.Manager()
        self._case.addCleanup(manager.shutdown)
        return manager.Semaphore(value)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


def _package() -> Any:
    """Return the tests: those of the running Python, else those in the folder that was named.

    That folder comes last in `sys.path`, which workers are told too: they import the tests' functions from there.
    """
    try:
        return importlib.import_module("test.test_concurrent_futures")
    except ImportError:
        pass
    if not _OWN:
        return None
    sys.path.append(_OWN)
    try:
        return importlib.import_module("test_concurrent_futures")
    except ImportError:
        return None


def _in_shmjet(run: Any) -> Any:
    """Have a script that CPython's tests run in an interpreter of its own import the pool from here."""

    @functools.wraps(run)
    def assert_python_ok(*args: str, **env: str) -> Any:
        script = args[-1].replace("from concurrent.futures import", "from shmjet import")
        script = script.replace(", mp_context=context", "")
        path = _root()
        if _OWN and _OWN in sys.path:
            script, path = script.replace("from test.test_concurrent", "from test_concurrent"), f"{path}:{_OWN}"
        return run(*args[:-1], script, PYTHONPATH=path, **env)

    return assert_python_ok


def _root() -> str:
    return os.path.dirname(os.path.dirname(shmjet.__file__))


_PLACES = (
    ("test_process_pool", "ProcessPoolExecutorTest"),  # has those of ExecutorTest, too
    ("test_shutdown", "ProcessPoolShutdownTest"),
    ("test_init", "InitializerMixin"),
    ("test_init", "FailingInitializerMixin"),
    ("test_deadlock", "ExecutorDeadlockTest"),
    ("test_wait", "WaitTests"),
    ("test_as_completed", "AsCompletedTests"),
)


def _cases() -> dict[str, type[unittest.TestCase]]:
    """Make a test case of each of CPython's mixins for the pool."""
    package = _package()
    if package is None:
        return {}
    made = {}
    is_package = hasattr(package, "__path__")
    for module_name, class_name in _PLACES:
        try:
            module = importlib.import_module(f"{package.__name__}.{module_name}") if is_package else package
        except ImportError:
            continue
        mixin = getattr(module, class_name, None)
        if mixin is None:
            continue
        util = importlib.import_module(f"{package.__name__}.util") if is_package else package
        if hasattr(module, "assert_python_ok") and not hasattr(module.assert_python_ok, "__wrapped__"):
            module.assert_python_ok = _in_shmjet(module.assert_python_ok)
        bases = (PoolMixin, mixin, util.ExecutorMixin, util.BaseTestCase)
        if issubclass(mixin, util.ExecutorMixin):
            bases = (PoolMixin, mixin, util.BaseTestCase)
        made[class_name] = type(f"Pool{class_name}", bases, {"__module__": __name__})
    return made


CASES = _cases()
_TESTS = [(place, name) for place, case in CASES.items() for name in unittest.TestLoader().getTestCaseNames(case)]


@pytest.mark.skipif(not CASES, reason="this Python was installed without test.test_concurrent_futures")
@pytest.mark.parametrize(("place", "name"), _TESTS or [("none", "none")])
def test_cpython(place: str, name: str) -> None:
    if name in LEFT_OUT:
        pytest.skip(LEFT_OUT[name])
    result = unittest.TestResult()
    CASES[place](name).run(result)
    for _, why in result.skipped:
        pytest.skip(why)
    assert not [text for _, text in (*result.failures, *result.errors)]
    assert result.testsRun == 1
