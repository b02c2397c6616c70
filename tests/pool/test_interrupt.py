"""Ctrl-C ends a program with its pools, whatever their tasks do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

PROGRAM = """
import os, signal, time
from shmjet import PoolExecutor
signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored where tests run

def hang():
    print(os.getpid(), flush=True)
    time.sleep(1000)

"""
WAYS = {
    "in a with block": "with PoolExecutor(1) as pool:\n    pool.submit(hang).result()",
    "at the end of a with block": "with PoolExecutor(1) as pool:\n    pool.submit(hang)",
    "without a with block": "pool = PoolExecutor(1)\n[pool.submit(hang) for _ in range(10)][0].result()",
    "at the end of the program": "pool = PoolExecutor(1)\npool.submit(hang)",
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_ctrl_c_ends_a_program_whose_tasks_hang(way: str, eventually: Any) -> None:
    command = [sys.executable, "-c", PROGRAM + way]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        worker = int(program.stdout.readline())
        program.send_signal(signal.SIGINT)
        _, errors = program.communicate(timeout=60)
    assert errors.rstrip().rstrip(":").endswith("KeyboardInterrupt")
    eventually(lambda: not os.path.exists(f"/proc/{worker}"))
