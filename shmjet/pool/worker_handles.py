"""The client's handles of a pool's worker processes, and of the fork server that makes them.

They must not know what a task is for: they number tasks and write them; `engine` and `dispatcher` decide which and
when.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from shmjet._native import Claims, Codec, Doorbell, Poller, RingConsumer, RingProducer, ring_format
from shmjet.cluster.client.log_levels import levels
from shmjet.execution.messages import Exited, Fork, Forked
from shmjet.host.own_code import program
from shmjet.host.patience import is_stopped
from shmjet.host.shared_modules import shared_modules
from shmjet.ipc.channel import Channel, ChannelClosed
from shmjet.pool import layout as records
from shmjet.pool.functions import Function, parts_of
from shmjet.pool.future import TaskFuture
from shmjet.pool.layout import CELLS, HEAD, INITIALIZER, QUEUE, Layout
from shmjet.pool.payload import PLAIN, size_of, to_file
from shmjet.ring.arena import Arena
from shmjet.ring.frames import KIND_DONE
from shmjet.ring.pickling import Buffer, dumps_by_value

_SHARED: Final = ("numpy", "shmjet.data.batch", "pandas", "scipy", "sklearn")
"""Modules that workers share with the fork server, as far as the client has loaded them."""
_END_S: Final = 5.0
MOST_FILES: Final = 2
"""Most payloads in files at one worker at once; each is a descriptor in a socket."""


class Task:
    """One submitted call: the function, its arguments and its future.

    `columns` is set for a chunk of `map`, of `items` items. `parts` is the payload while it waits for room;
    `is_columnar` says that it is not pickled. Attributes that few tasks have are defaults of the class, because tasks
    are made often.
    """

    columns: tuple[Sequence[Any], ...] | None = None
    items = 1
    function: Function | None = None
    parts: list[Buffer] | None = None
    begun = False
    in_file = False
    is_columnar = False
    cost = 0.0

    def __init__(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.future: TaskFuture = TaskFuture()
        self.fn = fn
        self.args = args
        self.kwargs = kwargs

    def begin(self) -> bool:
        """Mark it as given to a worker, perhaps once more; False when it has been cancelled before."""
        if self.begun:
            return True
        self.begun = self.future.begin()
        return self.begun

    @property
    def is_plain(self) -> bool:
        """Whether its arguments can go as columns."""
        if self.kwargs or self.columns is not None or self.parts is not None:
            return False
        for value in self.args:  # noqa: SIM110  # all() with a generator takes four times as long
            if type(value) not in PLAIN:
                return False
        return True


class WorkerHandle:
    """One worker process, from the client's side.

    Args:
        index: its slot in the arena.
        token: by which the fork server answers.
        arena, layout: the pool's.
        codec: for tasks.
        bell: the client's.
    """

    def __init__(self, index: int, token: int, arena: Arena, layout: Layout, codec: Codec, bell: Doorbell) -> None:
        self.index = index
        self.token = token
        self.pid = 0
        """0 until the fork server or the worker has sent it."""
        self.up = False
        self.damage: str | None = None
        """Why its results are not read any more."""
        self.killed_because: str | None = None
        """Why this pool has killed it, if so."""
        self.retired = False
        self.pid_deadline = 0.0
        self.load = 0.0
        self.files = 0
        self.has_room = False
        self.suspect = False
        self.inflight: dict[int, Task] = {}
        self.kill_errors: dict[int, BaseException] = {}
        self.known: set[int] = set()
        self.to_forget: list[int] = []
        self.path: list[str] | None = None
        self.next = 1
        self.still_since = 0
        self._signal: int | None = None
        self._codec = codec
        slot = layout.slot(index)
        memory = arena.memory
        memory[slot.doorbell : slot.tasks] = bytes(slot.tasks - slot.doorbell)
        for offset in (slot.tasks, slot.results):
            ring_format(memory, offset, layout.ring_capacity, QUEUE)
        self.bell = Doorbell(memory, slot.doorbell)
        self.claims = Claims(memory, slot.claims, CELLS)
        self.claims.put(INITIALIZER)
        self.tasks = RingProducer(memory, slot.tasks, self.bell)
        self.results = RingConsumer(memory, slot.results, self.bell)
        self.poller = Poller([self.results], [self.tasks])
        self.sock, self.worker_sock = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        del bell

    @property
    def runs_a_task(self) -> bool:
        """Whether a task runs, and not the initializer."""
        return self.claims.running()[0] not in (0, INITIALIZER)

    def push(self, task: Task) -> bool:
        """Write one task; False when there is no room now.

        Raises:
            BaseException: any error of pickling; nothing has been written then.
        """
        function = task.function
        assert function is not None
        number = self.next
        if function.number and function.number not in self.known and not self._send_function(function):
            return False
        if function.number and task.is_plain:
            self.claims.put(number)
            accepted = self.tasks.push(self._codec, [(number, function.number, *task.args)], 0, 1)
            if accepted >= 0:
                return accepted == 1 and self._sent(number, task)
        if task.parts is None:
            items = self._as_columns(task)
            task.is_columnar = items is not None
            task.parts = _pickled(task) if items is None else [items]
            if task.columns is not None:
                function.item_bytes = max(0.75 * function.item_bytes, size_of(task.parts) / task.items)
        self.claims.put(number)
        if task.is_columnar:
            sent = self._put(records.KIND_ITEMS, number, function.number, task.parts, task.items)
        else:
            kind = records.KIND_CALL if task.columns is None else records.KIND_CHUNK
            sent = self._put(kind, number, function.number, task.parts)
        if not sent:
            return False
        task.in_file = sent == 2
        self.files += task.in_file
        task.parts = None
        return self._sent(number, task)

    def push_several(self, function: Function, tasks: list[Task]) -> int:
        """Write tasks of one function whose arguments are plain; returns how many had room.

        Returns 0 as well when the codec refuses them, for example an integer of more than 64 bits: `push` takes any
        task.
        """
        if function.number not in self.known and not self._send_function(function):
            return 0
        first = self.next
        rows = [(number, function.number, *task.args) for number, task in enumerate(tasks, first)]
        self.claims.put_several(first, len(rows))
        sent = max(0, self.tasks.push(self._codec, rows, 0, len(rows)))
        self.next = first + sent
        self.inflight.update(zip(range(first, first + sent), tasks, strict=False))
        return sent

    def _as_columns(self, task: Task) -> bytes | None:
        """Return the items of a task of `map` in the codec's form; None when they are not plain, or too many for it."""
        assert task.function is not None
        if task.columns is None or len(task.columns) != 1 or not task.function.number:
            return None
        items = task.columns[0]
        found = self._codec.encode(items, 0, task.items) if type(items) is list else None
        return found if found is not None and HEAD.size + len(found) <= self.tasks.max_record else None

    def _sent(self, number: int, task: Task) -> bool:
        self.next = number + 1
        self.inflight[number] = task
        return True

    def _send_function(self, function: Function) -> bool:
        while self.to_forget:
            if not self._put(records.KIND_FORGET, 0, self.to_forget[-1], []):
                return False
            self.to_forget.pop()
        has_path = self.path != sys.path
        if not self._put(records.KIND_FUNCTION, 0, function.number, parts_of(function, has_path)):
            return False
        self.known.add(function.number)
        if has_path:
            self.path = list(sys.path)
        return True

    def _put(self, kind: int, number: int, function: int, parts: list[Buffer], items: int = 0) -> int:
        """Write a record: 1 when it is in the ring, 2 when its payload is in a file, 0 when there is no room now."""
        size = size_of(parts)
        if HEAD.size + size <= self.tasks.max_record:
            return int(self.tasks.push_bytes(kind, 0, 0, 1, [HEAD.pack(number, function, items, 0), *parts]))
        if self.files >= MOST_FILES or not self.tasks.admit(1, HEAD.size):
            return 0
        fd = to_file(parts)
        try:
            socket.send_fds(self.sock, [b"f"], [fd])
        except (BrokenPipeError, ConnectionResetError):
            return 0  # it is dead: the fork server reports that
        finally:
            os.close(fd)
        return 2 * self.tasks.push_bytes(kind, 0, 0, 1, [HEAD.pack(number, function, 0, size)])

    def forget(self, number: int) -> None:
        """Have the worker drop a function that will not be called again, when it next gets one."""
        if number in self.known:
            self.known.discard(number)
            self.to_forget.append(number)

    def receive(self) -> int:
        """Return the descriptor that belongs to the record just read."""
        _, fds, _, _ = socket.recv_fds(self.sock, 1, 1)
        return fds[0]

    def end(self) -> None:
        """Tell it that there will be no more tasks."""
        self.tasks.push_mark(KIND_DONE, 0)

    def forked_as(self, pid: int) -> None:
        """Take the process id, from the fork server or the worker itself; a signal that waited for it is sent now."""
        was_known, self.pid = bool(self.pid), pid
        if self._signal is not None and not was_known:
            self.kill(self._signal)

    def kill(self, number: int = signal.SIGKILL, because: str | None = None) -> None:
        """Signal the process, as soon as it is known, if it lives."""
        self.killed_because = self.killed_because or because
        self._signal = number
        if self.pid > 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def close(self) -> None:
        """Let go of memory and sockets."""
        self.sock.close()
        self.worker_sock.close()
        self.claims.close()
        self.tasks.close()
        self.results.close()
        self.bell.close()


def _pickled(task: Task) -> list[Buffer]:
    assert task.function is not None
    if task.columns is not None:
        return dumps_by_value((None if task.function.number else task.fn, task.columns))
    if task.function.number:
        return dumps_by_value((task.args, task.kwargs))
    return dumps_by_value(((task.fn, *task.args), task.kwargs))


class Server:
    """The fork server of a pool: a child of this process, and a channel to it.

    Args:
        arena: of the pool; the server's answers ring the doorbell at its start.
        logs: on which workers send their log records.
    """

    def __init__(self, arena: Arena, logs: socket.socket) -> None:
        self.pid = os.getpid()
        ours, theirs = socket.socketpair()
        preload = shared_modules()
        if preload is None:
            preload = [name for name in _SHARED if name in sys.modules]
        code = (
            "import gc; gc.disable()\n"  # no module that it loads is garbage; the fork server enables it
            "from shmjet.pool.server_main import main\n"
            f"main({theirs.fileno()}, {arena.fd}, {arena.size}, {logs.fileno()}, {levels()!r}, {os.getpid()}, "
            f"{sys.path!r}, {preload!r})"
        )
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", program(code)],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), arena.fd, logs.fileno()],
                process_group=0,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._channel = Channel(ours, Forked | Exited)
        self._look = select.poll()
        self._look.register(self._channel, select.POLLIN)
        self._arena = arena
        self._outgoing: deque[socket.socket] = deque()

    def fork(self, worker: WorkerHandle, core: int | None, settings: bytes) -> None:
        """Ask for the process of a worker.

        Raises:
            ChannelClosed: the server is gone.
        """
        request = Fork(worker.token, worker.index, core, self._arena.size, settings, 0, 0)
        self._channel.send(request, [worker.worker_sock.fileno(), self._arena.fd])
        worker.worker_sock.close()

    @property
    def has_messages(self) -> bool:
        """Whether `messages` would return or raise something; the server rings for all but its own death."""
        return bool(self._look.poll(0))

    def messages(self) -> list[Any]:
        """Return the messages since the last call: `Forked` and `Exited`.

        Raises:
            ChannelClosed: the server is gone, and all workers with it.
        """
        return [message for message, _ in self._channel.poll()]

    @property
    def process_id(self) -> int:
        """The server's process id."""
        return self._process.pid

    def kill(self) -> None:
        """Kill the server, and with it all workers; `messages` raises then."""
        self._process.kill()

    def close(self) -> None:
        """End the server and its remaining children."""
        self._channel.close()
        if is_stopped(self._process.pid):
            self._process.kill()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def leave(self) -> None:
        """Forget the server in a forked child, which has no part in it."""
        self._channel.close()
        self._process.returncode = 0  # it is not a child of this process, which must not wait for it


__all__ = ["ChannelClosed", "Exited", "Forked", "Server", "Task", "WorkerHandle"]
