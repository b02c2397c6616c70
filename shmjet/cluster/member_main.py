"""The program that a client executes: one fresh interpreter that becomes the member and its fork server.

It imports what both need, which is most of it, then splits while it still has one thread and has opened nothing, so
that no lock and no thread of anyone else is copied into children; each half then imports the rest. Two interpreters,
one started by the other, took three times as long to come up.
"""

from __future__ import annotations

import importlib
import os
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any

from shmjet.execution.child import die_with_parent

_BOTH = ("shmjet.execution.messages", "shmjet.execution.plan", "shmjet.grid")
"""What member and workers need alike; none of it starts a thread or imports numpy."""
_BLAS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def main(
    settings: dict[str, Any],
    ready: int,
    logs: int,
    cores: Sequence[int],
    preload: Sequence[str],
    secret_fd: int = -1,
) -> None:
    """Be a member, or in the forked child its fork server.

    Args:
        settings: the fields of `MemberSettings`.
        ready: descriptor on which the member says that it is up; -1 for one that says so on standard output.
        logs: of the socket on which all processes send their log records; -1 for standard error.
        cores: those that any of its processes may run on; empty for all.
        preload: modules that the fork server imports, so that all workers share them.
        secret_fd: where the member reads its secret; -1 for one without a network.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if logs < 0:  # nobody reads: each process writes its records to standard error
        reader, writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        reader.close()
        logs = writer.detach()
    os.set_inheritable(logs, False)
    for name in _BOTH:
        importlib.import_module(name)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a carrier takes one; workers and carriers inherit it
    if cores:
        os.sched_setaffinity(0, cores)
    ours, theirs = socket.socketpair()
    member = os.getpid()
    server = os.fork()
    if server == 0:
        ours.close()
        for fd in (ready, secret_fd):
            if fd >= 0:
                os.close(fd)
        os.setpgid(0, 0)
        threads = os.environ.get("SHMJET_BLAS_THREADS", "1")
        os.environ.update(dict.fromkeys(_BLAS, threads))
        die_with_parent(member)
        from shmjet.cluster import fork_main

        fork_main.main(theirs, logs, settings["log_levels"], preload)
    else:
        theirs.close()
        sys.modules["ssl"] = None  # type: ignore[assignment]  # asyncio does without it, as does a member: 5 ms
        import asyncio  # noqa: F401

        del sys.modules["ssl"]
        from shmjet.cluster import member_program as program

        program.main(settings, ready, logs, server, ours, secret_fd)
