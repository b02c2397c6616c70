"""`shmjet member`: it ends when it is told to, from its first moment on."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.cli.conftest import ROOT
from tests.waiting import until


def test_ctrl_c_while_a_member_starts_ends_it_without_a_traceback(environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "shmjet", "member", "--cores", "1"]
    with subprocess.Popen(command, env=environment, cwd=ROOT, stderr=subprocess.PIPE, text=True) as member:
        try:
            children = Path(f"/proc/{member.pid}/task/{member.pid}/children")
            until(lambda: children.read_text())  # it has forked its fork server, and is not up yet
            member.send_signal(signal.SIGINT)
            _, errors = member.communicate(timeout=60)
        finally:
            member.kill()
    assert member.returncode in (-signal.SIGINT, 0), errors  # 0: it was up already
    assert "Traceback" not in errors
