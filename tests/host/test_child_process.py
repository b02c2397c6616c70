"""How a child process ends."""

from __future__ import annotations

import subprocess
import sys


def test_a_process_that_leaves_waits_for_threads_and_runs_exit_functions_but_takes_nothing_apart() -> None:
    program = (
        "import atexit, sys, threading\n"
        "from shmjet.host.child_process import leave\n"
        "class Kept:\n"
        "    def __del__(self): print('taken apart')\n"
        "kept = Kept()\n"
        "atexit.register(print, 'exit function', end='')\n"
        "waiting = threading.Event()\n"
        "threading.Thread(target=lambda: (waiting.wait(), print('thread'))).start()\n"
        "threading.Thread(target=lambda: (threading.main_thread().join(), waiting.set()), daemon=True).start()\n"
        "leave()\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "thread\nexit function", "")
