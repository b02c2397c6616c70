"""Processes that a test stops."""

from __future__ import annotations

import os
import signal
import time

from shmjet.host.patience import is_stopped

_PATIENCE_S = 60.0


def stop(pid: int) -> None:
    """Stop a process with SIGSTOP, and return when it stands: on a busy machine it may run on for a while."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + _PATIENCE_S
    while not is_stopped(pid):
        assert time.monotonic() < deadline, f"process {pid} does not stop"
        time.sleep(0.001)
