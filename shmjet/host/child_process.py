"""What a child process does to itself before it works: its place, its signals, dying with its parent, and
its end."""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
import threading
from typing import NoReturn

from setproctitle import setproctitle

from shmjet._native import grow_stack

_PR_SET_NAME = 15
_PR_SET_PDEATHSIG = 1
_PR_SET_TIMERSLACK = 29
_SLACK_NS = 1_000
_STACK_BYTES = 1 << 20
"""Seven times what the kernel maps at first; Python's own frames do not lie there."""


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


def end_with(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends, until `outlive` is called.

    For a start: the thread that starts a process waits for it. Exits at once when the parent is gone; nothing is done
    where it lives but is not this process' own, because a program stands between them.

    Args:
        parent: the pid of the process that started this one.
    """
    if os.getppid() == parent:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() == parent:
            return
    try:
        os.kill(parent, 0)
    except ProcessLookupError:
        os._exit(1)


def outlive() -> None:
    """Take `end_with` back."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)


def hold_stack() -> None:
    """Let this process, and what it forks, have all the stack that they will need.

    The kernel maps a stack as it grows. Where there is no address space for that, the process is killed by SIGSEGV; so
    a lack of memory would be the end of a worker just when it is about to say so. One page of this is used now.
    """
    grow_stack(_STACK_BYTES)


def accept_signals() -> None:
    """Let all signals through, and those of children: who started this process may have blocked or ignored them."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def name_process(name: str, title: str) -> None:
    """Set what `ps` and `top` show of this process.

    Args:
        name: the short name, at most 15 bytes of it.
        title: in place of the command line, which is a kilobyte of Python for a process that shmjet starts.
    """
    setproctitle(f"shmjet: {title}")
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def leave_terminal() -> None:
    """Keep Ctrl-C from this process: its own group, SIGINT ignored."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)


def pin(core: int | None) -> None:
    """Pin this process to one core; None leaves it where it is."""
    if core is not None:
        os.sched_setaffinity(0, (core,))


def wake_in_time() -> None:
    """Have the kernel end the sleeps of this thread, and of threads that it starts, when their time is up.

    By default it may take 50 µs more, so that it wakes fewer times; that is longer than an item takes through a job.
    """
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, _SLACK_NS, 0, 0, 0)


def flush_output() -> None:
    """Flush what user code printed, whatever has become of the terminal."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue


def leave() -> NoReturn:
    """End this process with status 0 as the interpreter would, but without taking all modules apart.

    That, object by object, takes a fifth of the time that it took to load them. It waits for threads that are no
    daemons, exit functions run, and output is flushed.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # as in `multiprocessing`; no public name
    atexit._run_exitfuncs()
    flush_output()
    os._exit(0)
