"""The program that a client executes: one fresh interpreter that becomes the member, its link and its fork server.

It imports what they need alike, which is most of it, then splits while it still has one thread and has opened nothing,
so that no lock and no thread of anyone else is copied into children; each part then imports the rest. Two interpreters,
one started by the other, took three times as long to come up.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import os
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from shmjet.cluster.member.start_report import StartReport
from shmjet.host.allocator import share_one_heap
from shmjet.host.child_process import accept_signals, die_with_parent, end_with, hold_stack, leave
from shmjet.host.memory_reserve import hold_reserve
from shmjet.host.standard_descriptors import fill_standard_descriptors
from shmjet.net.forked_link import ForkedLink

_COMMON = ("shmjet.execution.messages", "shmjet.execution.plan", "shmjet.grid.store")
"""What member, link and workers need alike; none of it starts a thread or imports numpy."""
_BLAS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def main(
    settings: dict[str, Any],
    ready: int,
    logs: int,
    cores: Sequence[int],
    preload: Sequence[str],
    secret_fd: int = -1,
    errors_fd: int = -1,
) -> NoReturn:
    """Be a member, or in a forked child its link or its fork server.

    Args:
        settings: the fields of `MemberSettings`.
        ready: descriptor on which the member says that it is up; -1 to say so on standard output.
        logs: of the socket on which all processes send their log records; -1 for standard error.
        cores: that its processes may run on; empty for all.
        preload: modules that the fork server imports, so that all workers share them.
        secret_fd: where the member reads its secret; -1 for one without a network.
        errors_fd: what standard error is to be from now on. Until now it is a file that the starter looks into when
            this process does not come up; a signal has the stacks of all threads written there. -1: no such file.
    """
    gc.disable()  # until each half has imported all: none of it is garbage, and looking takes a tenth of the time
    fill_standard_descriptors()
    accept_signals()
    early = -1
    if errors_fd >= 0:
        early = os.dup(2)
        os.dup2(errors_fd, 2)
        os.close(errors_fd)
        faulthandler.register(signal.SIGUSR2, file=early, all_threads=True, chain=False)
    report = StartReport(ready, early)
    if settings["client_pid"]:
        end_with(settings["client_pid"])
    try:
        _split(settings, report, logs, cores, preload, secret_fd)
        leave()
    except Exception as error:
        report.failed(error)
        if not isinstance(error, OSError):
            raise
        sys.exit(1)


def _split(
    settings: dict[str, Any],
    report: StartReport,
    logs: int,
    cores: Sequence[int],
    preload: Sequence[str],
    secret_fd: int,
) -> None:
    if signal.SIGINT not in settings.get("stop_signals", ()):  # else Ctrl-C ends the member before it is up, too
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if logs < 0:  # no receiver: each process writes its records to standard error
        reader, writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        reader.close()
        logs = writer.detach()
    os.set_inheritable(logs, False)
    with _without("typing_extensions"):  # msgspec then takes the same from `typing`: 6 ms
        import msgspec  # noqa: F401
    report.phase("importing its modules")
    for name in _COMMON:
        importlib.import_module(name)
    hold_stack()
    hold_reserve()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a carrier takes one; workers and carriers inherit it
    if cores:
        os.sched_setaffinity(0, cores)
    link = None
    if settings.get("bind") is not None:
        report.phase("forking its link")
        link = _fork_link(settings, report, logs, secret_fd)
    report.phase("forking its fork server")
    ours, theirs = socket.socketpair()
    member = os.getpid()
    server = os.fork()
    if server == 0:
        ours.close()
        if link is not None:
            link.socket.close()
        _leave_start(report, secret_fd)
        threads = os.environ.get("SHMJET_BLAS_THREADS", "1")
        os.environ.update(dict.fromkeys(_BLAS, threads))
        die_with_parent(member)
        from shmjet.cluster.member import fork_server_main

        fork_server_main.main(theirs, logs, settings["log_levels"], preload, settings["cluster_name"])
    else:
        theirs.close()
        share_one_heap()
        report.phase("importing its own half of the modules")
        with _without("ssl"):  # asyncio does without it, as does a member: 5 ms
            import asyncio  # noqa: F401
        from shmjet.cluster.member import program as program

        gc.freeze()
        gc.enable()
        program.main(settings, report, logs, server, ours, secret_fd, link)


@contextlib.contextmanager
def _without(module: str) -> Iterator[None]:
    """Let no import find a module that has not been loaded yet."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[module]


def _fork_link(settings: dict[str, Any], report: StartReport, logs: int, secret_fd: int) -> ForkedLink:
    """Return the link that a member needs for its network; the child never returns."""
    ours, theirs = socket.socketpair()
    member = os.getpid()
    pid = os.fork()
    if pid > 0:
        theirs.close()
        return ForkedLink(pid, ours)
    ours.close()
    _leave_start(report, secret_fd)
    os.close(logs)
    die_with_parent(member)
    with open(os.devnull) as nothing:  # a member that runs in a terminal may read from it
        os.dup2(nothing.fileno(), 0)
    try:
        from shmjet.host.memory_policy import prefer_nodes
        from shmjet.net import link_main

        prefer_nodes(settings["memory_nodes"])
        link_main.main(theirs.detach())
    except Exception:
        traceback.print_exc()
        sys.exit(1)


def _leave_start(report: StartReport, secret_fd: int) -> None:
    """Let go, in a child, of what the member alone needs to come up, and of its process group and Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if report.has_reader:
        faulthandler.unregister(signal.SIGUSR2)
    report.close()
    if secret_fd >= 0:
        os.close(secret_fd)
    os.setpgid(0, 0)
