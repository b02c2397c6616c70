"""The program of a pool's fork server, and the code that its children run.

It is a fresh interpreter with one thread, so that no lock of the client is copied, and `__main__` is not run again.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import mmap
import os
import signal
import socket
import sys
from collections.abc import Sequence

from shmjet._native import Doorbell
from shmjet.execution.forkserver import ForkServer
from shmjet.execution.messages import Fork
from shmjet.host.child_process import accept_signals, hold_stack, name_process, pin
from shmjet.host.memory_reserve import hold_reserve
from shmjet.ipc.channel import Channel
from shmjet.pool.logs import send_task_logs
from shmjet.pool.worker import PoolWorker

_ALWAYS = ("multiprocessing.process", "cloudpickle")
"""Modules imported once, so that all workers share them."""
_BLAS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class _RingingChannel(Channel):
    """A channel whose reader sleeps on a doorbell."""

    def __init__(self, sock: socket.socket, bell: Doorbell) -> None:
        super().__init__(sock, Fork)
        self._bell = bell

    def send(self, message: object, fds: Sequence[int] = ()) -> None:
        super().send(message, fds)
        self._bell.post()


def run_child(request: Fork, fds: list[int], logs: socket.socket, levels: Sequence[int]) -> None:
    """Run a worker until the client ends it.

    Args:
        request: describes the worker.
        fds: its socket to the client, and the pool's arena.
        logs: the socket for its log records.
        levels: the lowest levels of these records.
    """
    gc.unfreeze()
    pin(request.core)
    mapping = mmap.mmap(fds[1], request.control_size)
    mapping.madvise(mmap.MADV_DONTFORK)  # a forked copy that went on would be a second worker in the same memory
    os.close(fds[1])
    sock = socket.socket(fileno=fds[0])
    worker = PoolWorker(request.index, memoryview(mapping), sock, request.settings)
    send_task_logs(logs, request.index, levels, worker.running, worker.client_bell)
    worker.run()


def main(
    sock_fd: int,
    arena_fd: int,
    size: int,
    logs_fd: int,
    levels: Sequence[int],
    client: int,
    path: Sequence[str],
    preload: Sequence[str],
) -> None:
    """Serve fork requests until the client is gone.

    Args:
        sock_fd: socket to the client.
        arena_fd, size: the pool's arena, which starts with the client's doorbell.
        logs_fd: socket on which workers send their log records.
        levels: the lowest levels of these records, for shmjet's loggers and for all others.
        client: the client's pid.
        path: the client's `sys.path`.
        preload: modules that all workers share, because the client's functions will probably need them.
    """
    accept_signals()
    watch = os.pidfd_open(client)
    if os.getppid() != client:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    name_process("shmjet-pool", f"fork server of pool {client}")
    sys.path[:] = path
    hold_reserve()
    threads = os.environ.get("SHMJET_BLAS_THREADS", "1")
    os.environ.update(dict.fromkeys(_BLAS, threads))
    for name in (*_ALWAYS, *preload):
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    hold_stack()
    mapping = mmap.mmap(arena_fd, size)
    mapping.madvise(mmap.MADV_DONTFORK)
    os.close(arena_fd)
    bell = Doorbell(memoryview(mapping), 0)
    channel = _RingingChannel(socket.socket(fileno=sock_fd), bell)
    logs = socket.socket(fileno=logs_fd)
    ForkServer(channel, functools.partial(run_child, logs=logs, levels=levels), f"pool {client}", watch).run()
    sys.stdout.flush()
    os._exit(0)
