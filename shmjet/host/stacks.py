"""The Python stacks of a process of the engine, for a report: by py-spy where there is one, else by a signal.

Member, workers and carriers answer SIGUSR2 by writing the stacks of all their threads into a file of the instance's
folder, from C, at once, whatever Python code is doing; the kernel restarts the call that the signal interrupts.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

FILE = "stacks"
"""In the instance's folder; all processes append to it."""

_SIGNAL = signal.SIGUSR2
_PY_SPY_S = 10.0
_ANSWER_S = 5.0
_QUIET_S = 0.08
"""A stack is complete when nothing has been added for so long."""


def offer_stacks(folder: Path) -> None:
    """Answer the signal from now on, in this process.

    Args:
        folder: the instance's.
    """
    fd = os.open(folder / FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    faulthandler.register(_SIGNAL, file=fd, all_threads=True, chain=False)  # the descriptor stays open for it


def stacks_of(pid: int, folder: Path) -> tuple[str, str]:
    """Return where the stacks of a process of the engine come from ("py-spy", "faulthandler", "none"), and its stacks.

    Args:
        pid: of a member, worker or carrier of this user.
        folder: of its instance.
    """
    found = _by_py_spy(pid)
    if found is not None:
        return "py-spy", found
    if not answers(pid):
        return "none", f"process {pid} is gone, or does not answer SIGUSR2, and there is no py-spy that could look"
    return "faulthandler", _by_signal(pid, folder / FILE)


def py_spy() -> str | None:
    """Return the path of py-spy: next to this interpreter, or on the PATH."""
    import shutil  # its archive formats take long to import, and every process imports this module

    neighbour = Path(sys.executable).with_name("py-spy")
    return str(neighbour) if os.access(neighbour, os.X_OK) else shutil.which("py-spy")


def _by_py_spy(pid: int) -> str | None:
    program = py_spy()
    if program is None:
        return None
    try:
        command = [program, "dump", "--nonblocking", "--pid", str(pid)]
        found = subprocess.run(command, capture_output=True, text=True, timeout=_PY_SPY_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() if found.returncode == 0 and found.stdout.strip() else None  # it may not be allowed to


def answers(pid: int) -> bool:
    """Whether a process has a handler for the signal; to any other one it would be deadly."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (_SIGNAL - 1) & 1)
    return False


def _by_signal(pid: int, file: Path) -> str:
    start = size = file.stat().st_size
    try:
        os.kill(pid, _SIGNAL)
    except OSError as error:
        return f"process {pid}: {error.strerror}"
    deadline = time.monotonic() + _ANSWER_S
    changed = time.monotonic()
    while time.monotonic() < deadline and (size == start or time.monotonic() - changed < _QUIET_S):
        time.sleep(0.002)
        before, size = size, file.stat().st_size
        if size != before:
            changed = time.monotonic()
    if size == start:
        return f"process {pid} has not answered SIGUSR2 within {_ANSWER_S:.0f} s; it may be stopped"
    with file.open("rb") as opened:
        opened.seek(start)
        return opened.read(size - start).decode(errors="replace").strip()
