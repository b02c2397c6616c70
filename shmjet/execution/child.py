"""What a child process does to itself before it works: its place, its signals, and dying with its parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_NAME = 15
_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that forked it ends.

    Args:
        parent: the pid that the parent had; when it is gone already, this process exits at once.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        os._exit(1)


def name_process(name: str) -> None:
    """Set the name that `ps` and `top` show, at most 15 bytes of it."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def leave_terminal() -> None:
    """Make the process one that Ctrl-C does not reach: its own group, SIGINT ignored."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)


def pin(core: int | None) -> None:
    """Pin this process to one core; None leaves it where it is."""
    if core is not None:
        import psutil  # here and not above: the member imports this module too, and has no use for it

        psutil.Process().cpu_affinity([core])


def flush_output() -> None:
    """Flush what user code printed, whatever has become of the terminal."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue
