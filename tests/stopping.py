"""Processes that a test stops."""

from __future__ import annotations

import os
import signal

from shmjet.host.patience import is_stopped
from tests.waiting import until


def stop(pid: int) -> None:
    """Stop a process with SIGSTOP, and return when it stands: on a busy machine it may run on for a while."""
    os.kill(pid, signal.SIGSTOP)
    until(lambda: is_stopped(pid))
