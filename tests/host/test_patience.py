"""How long another process is waited for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

from shmjet.host.patience import Patience, has_ended, is_stopped
from tests.stopping import stop


def test_time_in_which_this_process_stood_still_does_not_count() -> None:
    patience = Patience(step=1.0)
    assert [patience.waited(now) for now in (100.0, 101.0, 101.5)] == [0.0, 1.0, 1.5]
    assert patience.waited(5000.0) == 3.5
    assert patience.waited(5001.0) == 4.5
    patience.reset()
    assert patience.waited(6000.0) == 0.0


def test_stopped_and_ended_processes_are_told_apart(eventually: Callable[..., None]) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert not is_stopped(child.pid)
    stop(child.pid)
    eventually(lambda: is_stopped(child.pid))
    assert not has_ended(child.pid)
    child.kill()
    eventually(lambda: has_ended(child.pid))
    assert not is_stopped(child.pid)
    child.communicate()
    assert not has_ended(child.pid)
    assert not is_stopped(0)
    assert not has_ended(os.getpid())
