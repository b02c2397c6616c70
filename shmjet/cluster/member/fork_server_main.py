"""The program that a member executes as its fork server, and what the forked children run.

Here the floors meet: workers (floor 4) get the maps and lists (floor 5) without knowing them.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import mmap
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from shmjet.cluster.member.grid_caller import GridCaller
from shmjet.cluster.member.observable_writer import WorkerGrid
from shmjet.cluster.settings import SOCKET_NAME
from shmjet.data.decoders import from_msgpack, json_decoder, msgpack_decoder
from shmjet.execution.control import BLOCK_SIZE, WorkerControl
from shmjet.execution.forkserver import serve
from shmjet.execution.logs import send_logs
from shmjet.execution.messages import Broken, Command, Fork, WorkerSettings
from shmjet.execution.worker import Worker
from shmjet.grid import Grid
from shmjet.host.allocator import keep_freed_memory
from shmjet.host.child_process import pin, wake_in_time
from shmjet.host.stacks import offer_stacks
from shmjet.ipc.channel import Channel
from shmjet.ring.arena import ArenaError, map_segment
from shmjet.snapshots.manifest import Manifest


def run_child(request: Fork, fds: list[int], logs: socket.socket, levels: Sequence[int]) -> None:
    """Be a worker, or, with an arena in the request, a carrier, until the member lets go.

    Args:
        fds: of its channel to the member, the control segment, the arena if there is one; where there is a network,
            what wakes the link, and what takes log records for clients of other hosts.
        logs: where its log records go, of at least these levels.
    """
    others = fds[3:] if request.arena_size else fds[2:]
    relay = socket.socket(fileno=others[1]) if len(others) > 1 else None
    send_logs(logs, request.index, levels[0], levels[1], relay)
    settings = from_msgpack(request.settings, WorkerSettings)
    offer_stacks(Path(settings.folder))
    pin(request.core)
    wake_in_time()
    channel = Channel(socket.socket(fileno=fds[0]), Command)
    try:
        control = _mapped(fds[1], request.control_size, "control")
        if request.arena_size:
            arena = _mapped(fds[2], request.arena_size, "of its job")
            block = WorkerControl(arena, request.doorbell_offset)
        else:
            block = WorkerControl(control, request.index * BLOCK_SIZE)
    except ArenaError as error:
        channel.send(Broken(str(error)))
        raise
    member_socket = Path(settings.folder) / SOCKET_NAME

    def open_grid() -> Any:
        folder = Path(settings.folder) / "grid"
        if settings.is_networked:
            return WorkerGrid(GridCaller(member_socket, folder), member_socket)
        return WorkerGrid(Grid.open(folder), member_socket)

    Worker(
        request.index,
        channel,
        control_memory=control,
        block=block,
        settings=settings,
        open_grid=open_grid,
        link_eventfd=others[0] if others else -1,
    ).run()


def _mapped(fd: int, size: int, label: str) -> memoryview:
    """Map shared memory, but not for what user code forks: a copy of a worker that went on would be a second one.

    Raises:
        ArenaError: it cannot be mapped here; the text names the limit.
    """
    mapping = map_segment(fd, size, label)
    mapping.madvise(mmap.MADV_DONTFORK)
    os.close(fd)
    return memoryview(mapping)


def _import_whole(module: ModuleType) -> None:
    """Load what a package of this project would load when a name is first used: here all workers share it."""
    if module.__name__.startswith("shmjet."):
        for name in getattr(module, "__all__", ()):
            getattr(module, name)


def _know_messages() -> None:
    """Have msgspec look at the classes of what children decode: it notes on them what it has found out.

    That takes a millisecond and more, a fifth of the time from a worker's death until its successor has work.
    """
    msgpack_decoder(Command)
    msgpack_decoder(WorkerSettings)
    json_decoder(Manifest)


def main(sock: socket.socket, logs: int, levels: Sequence[int], preload: Sequence[str], cluster: str) -> None:
    """Serve fork requests that come in on this socket.

    Args:
        logs: descriptor of the socket for log records.
        levels: those from which they are sent.
        preload: modules that users' functions will probably need; imported here once, if they can be, so that all
            children share their pages.
        cluster: its name, for the list of processes.
    """
    for name in preload:
        with contextlib.suppress(Exception, SystemExit):  # a script that ends its process when it has run
            _import_whole(importlib.import_module(name))
    _know_messages()
    keep_freed_memory()  # for all children
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    serve(sock, functools.partial(run_child, logs=socket.socket(fileno=logs), levels=levels), cluster)
