"""Log records of tasks arrive in this process' own handlers, with worker and task."""

from __future__ import annotations

import functools
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import shmjet
from shmjet import PoolExecutor


def say(text: str) -> int:
    logging.getLogger("users.own").warning("said %s", text, extra={"item": 7, "held": object()})
    return os.getpid()


def fail_and_say() -> None:
    try:
        raise ValueError("bad")
    except ValueError:
        logging.getLogger("users.own").exception("it failed")


def say_in_child(text: str) -> int:
    child = os.fork()
    if child == 0:
        say(text)
        os._exit(0)
    return os.waitpid(child, 0)[1]


def records_of(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [record for record in caplog.records if record.name == "users.own"]


def test_a_record_is_there_before_the_result_and_names_worker_and_task(
    caplog: pytest.LogCaptureFixture, eventually: Any
) -> None:
    with PoolExecutor(2) as pool:
        for number in range(1, 31):
            pid = pool.submit(say, str(number)).result()
            assert len(records_of(caplog)) == number
        record = records_of(caplog)[-1]
        assert (record.getMessage(), record.levelname, record.item) == ("said 30", "WARNING", 7)
        eventually(lambda: pid in pool.worker_pids)
        assert (record.task, record.process, record.worker) == ("say", pid, pool.worker_pids.index(pid))
        assert record.processName == f"shmjet-w{record.worker}"
        assert record.task_number >= 1
        assert (record.filename, record.funcName) == ("test_logs.py", "say")
        assert not hasattr(record, "held")


def test_what_a_task_calls_is_named_however_it_came(caplog: pytest.LogCaptureFixture) -> None:
    with PoolExecutor(1) as pool:
        pool.submit(functools.partial(say, "partial")).result()
        list(pool.map(say, ["one", "two"]))
        pool.submit(fail_and_say).result()
        pool.submit(lambda: say("lambda")).result()
    assert [record.task for record in records_of(caplog)[:4]] == ["say", "say", "say", "fail_and_say"]
    assert records_of(caplog)[-1].task.endswith("<lambda>")
    assert records_of(caplog)[3].exc_text.endswith("ValueError: bad")


def test_records_of_initializer_and_of_forked_children_arrive_too(caplog: pytest.LogCaptureFixture) -> None:
    with PoolExecutor(1, initializer=say, initargs=("initializer",)) as pool:
        assert pool.submit(say_in_child, "child").result() == 0
    assert [record.getMessage() for record in records_of(caplog)] == ["said initializer", "said child"]
    assert records_of(caplog)[0].task == ""


def test_many_records_do_not_stop_anybody(caplog: pytest.LogCaptureFixture) -> None:
    with PoolExecutor(2) as pool:
        list(pool.map(say, map(str, range(2000)), chunksize=100))
    assert sorted(int(record.getMessage().split()[1]) for record in records_of(caplog)) == list(range(2000))


def test_the_reader_ends_with_the_pool() -> None:
    with PoolExecutor(1) as pool:
        pool.submit(int).result()
        assert any(thread.name == "shmjet-logs" for thread in threading.enumerate())
    assert not any(thread.name == "shmjet-logs" for thread in threading.enumerate())


def test_without_configuration_they_go_to_standard_error() -> None:
    program = (
        "import logging, shmjet\n"
        "def say(x):\n"
        "    logging.getLogger('mine').warning('hello %s', x)\n"
        "    logging.getLogger('mine').info('not worth sending')\n"
        "with shmjet.PoolExecutor(1) as pool:\n"
        "    pool.submit(say, 3).result()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(shmjet.__file__).parent.parent)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=environment, check=True
    )
    (line,) = done.stderr.splitlines()
    assert line.endswith("WARNING mine [shmjet-w0 say] hello 3")
