"""The worker processes of a pool: started when there is work for them, and replaced when they die.

When workers repeatedly die before they are ready, the pool is broken.

Nothing in here is safe for two threads: the engine holds its lock around every call.
"""

from __future__ import annotations

import itertools
import logging
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Final

from shmjet._native import Codec, Doorbell
from shmjet.host.patience import Patience, has_ended, is_stopped
from shmjet.pool.dispatcher import Dispatcher, Failed
from shmjet.pool.layout import Layout
from shmjet.pool.results import Done, Results
from shmjet.pool.worker_handles import ChannelClosed, Exited, Forked, Server, WorkerHandle
from shmjet.ring.arena import Arena

LOOK_NS: Final = 10**9
"""How long the collector sleeps at most while tasks run: a worker that is killed while it rings could lose a bell."""
_END_S: Final = 5.0
WARN_S: Final = 2.0
"""Seconds after which a warning says that the fork server has not reported an event."""
STOPPED_S: Final = 10.0
"""Seconds after which a stopped fork server that has not reported an event is killed."""
_SILENT_S: Final = 120.0
"""The same for a server that is not stopped: it imports much when it starts, and the machine may be busy."""

logger = logging.getLogger("shmjet.pool")


class WorkerPool:
    """All worker processes of a pool, and the fork server that makes them.

    Args:
        cores: the core of each worker, None for a worker that is not pinned; as many as there may be workers.
        arena, layout: the arena of the pool and its layout.
        bell: the client's doorbell.
        settings: pickled `PoolSettings`.
        most_failed_starts: workers in a row that may die before they are ready.
        dispatcher: has the workers.
        results: reads the last results of a dead worker.
        ring: wakes the collector.
        logs: the socket on which workers send their log records.
    """

    def __init__(
        self,
        cores: Sequence[int | None],
        *,
        arena: Arena,
        layout: Layout,
        bell: Doorbell,
        settings: bytes,
        most_failed_starts: int,
        dispatcher: Dispatcher,
        results: Results,
        ring: Callable[[], None],
        logs: socket.socket,
    ) -> None:
        self._cores = cores
        self._arena = arena
        self._layout = layout
        self._bell = bell
        self._settings = settings
        self._most_failed_starts = most_failed_starts
        self._dispatcher = dispatcher
        self._results = results
        self._ring = ring
        self._logs = logs
        self._codec = Codec()
        self._tokens = itertools.count(1)
        self._failed_starts = 0
        self.broken: str | None = None
        """Why no task can run any more."""
        self._server: Server | None = Server(arena, logs)
        self._patience = Patience(LOOK_NS / 1e9)
        self._server_death = "the pool's fork server was killed"
        self._has_warned = False
        self._watch_at = 0.0

    def start_worker(self) -> WorkerHandle | None:
        """Have one more worker forked; None when the fork server is dead, which the collector then notices."""
        workers = self._dispatcher.workers
        index = next(i for i in range(len(self._cores)) if i not in workers)
        worker = WorkerHandle(index, next(self._tokens), self._arena, self._layout, self._codec, self._bell)
        try:
            if self._server is None:
                self._server = Server(self._arena, self._logs)
            self._server.fork(worker, self._cores[index], self._settings)
        except ChannelClosed:
            worker.close()
            self._ring()
            return None
        except BaseException:
            worker.close()
            raise
        worker.pid_deadline = time.monotonic() + LOOK_NS / 1e9
        workers[index] = worker
        return worker

    @property
    def has_messages(self) -> bool:
        """Whether the fork server has sent a message, or died."""
        return self._server is not None and self._server.has_messages

    def handle_messages(self, done: Done, failed: Failed) -> None:
        """Handle the messages of the fork server: which workers were forked, which have died."""
        if self._server is None:
            return
        workers = self._dispatcher.workers
        try:
            messages = self._server.messages()
        except ChannelClosed:
            self._server.close()
            self._server = None
            for worker in list(workers.values()):
                self._handle_exit(worker, self._server_death, done, failed)
            self._server_death = "the pool's fork server was killed"
            return
        if messages:  # it answers, so a later wait begins anew
            self._patience.reset()
            self._has_warned = False
        for message in messages:
            if isinstance(message, Forked):
                for worker in workers.values():
                    if worker.token == message.token:
                        worker.forked_as(message.pid)
            else:
                for worker in list(workers.values()):
                    if worker.pid == message.pid:
                        self._handle_exit(worker, _how(message), done, failed)
        for worker in list(workers.values()):
            if not worker.pid and time.monotonic() > worker.pid_deadline and _is_closed(worker):
                self._handle_exit(worker, "it could not be forked", done, failed)
        self._watch(done, failed)

    def _watch(self, done: Done, failed: Failed) -> None:
        """Handle exits that the fork server has not reported: it may be stopped, and the pool must not wait for ever.

        The exit of a worker is handled without the server. A server that does not fork is killed: if it went on later,
        its workers would use the same memory as the workers of the next server.
        """
        server, now = self._server, time.monotonic()
        if now < self._watch_at:
            return
        self._watch_at = now + LOOK_NS / 2e9
        assert server is not None
        waited = 0.0
        if any(not worker.pid or has_ended(worker.pid) for worker in self._dispatcher.workers.values()):
            waited = self._patience.waited(now)
        else:
            self._patience.reset()
            self._has_warned = False
        if waited < WARN_S:
            return
        pid, stopped = server.process_id, is_stopped(server.process_id)
        state = "is stopped (SIGSTOP)" if stopped else "does not answer"
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "the fork server (pid %d) of a pool %s; workers that have ended are not replaced", pid, state
            )
        for worker in list(self._dispatcher.workers.values()):
            if has_ended(worker.pid):
                self._handle_exit(worker, f"it has ended; the pool's fork server (pid {pid}) {state}", done, failed)
        if waited >= (STOPPED_S if stopped else _SILENT_S):
            self._server_death = f"the pool's fork server (pid {pid}) did not answer for {waited:.0f} s and was killed"
            logger.error("%s; its workers go with it", self._server_death)
            server.kill()
            self._patience.reset()

    def _handle_exit(self, worker: WorkerHandle, how: str, done: Done, failed: Failed) -> None:
        """Handle the exit of a worker: its written results count, tasks that it had not begun go to other workers."""
        dispatcher = self._dispatcher
        how = worker.killed_because or how
        self._results.read(worker, done)
        dispatcher.remove(worker)
        back = dispatcher.revoke_tasks(worker)
        for number, task in worker.inflight.items():
            error = worker.kill_errors.get(number) or BrokenProcessPool(
                f"A process in the process pool was terminated abruptly while the future was running: {how}"
            )
            failed.append((task, error))
        worker.inflight.clear()
        dispatcher.requeue(back)
        self._failed_starts = 0 if worker.up else self._failed_starts + 1
        if self._failed_starts >= self._most_failed_starts and not worker.retired and self.broken is None:
            self.mark_broken(f"A process in the process pool ended before it was ready: {how}")
        worker.close()
        if self.broken is not None:
            waiting = dispatcher.pending
            failed += [(task, BrokenProcessPool(self.broken) if task.begin() else None) for task in waiting]
            waiting.clear()

    def mark_broken(self, why: str) -> None:
        """Take no more tasks, for this reason, and kill all workers."""
        self.broken = why
        for worker in self._dispatcher.workers.values():
            worker.kill()

    def shut_down(self) -> None:
        """End the workers, then the server."""
        workers = self._dispatcher.workers
        for worker in workers.values():
            worker.end()
        deadline = time.monotonic() + _END_S
        while workers and self._server is not None and time.monotonic() < deadline:
            seen = self._bell.commands
            self.handle_messages([], [])
            if workers:
                self._bell.wait([], seen, 0, LOOK_NS // 10)
        for worker in workers.values():
            worker.close()
        if self._server is not None:
            self._server.close()

    def leave(self) -> None:
        """Forget all processes in a forked child, which does not own them."""
        if self._server is not None:
            self._server.leave()
        for worker in self._dispatcher.workers.values():
            worker.sock.close()
            worker.worker_sock.close()


def _how(message: Exited) -> str:
    return f"killed by signal {-message.status}" if message.status < 0 else f"exit status {message.status}"


def _is_closed(worker: WorkerHandle) -> bool:
    """Whether the other end of a worker's socket is closed, though no `Forked` came for it."""
    try:
        return not worker.sock.recv(1, 0x42)  # MSG_PEEK | MSG_DONTWAIT
    except BlockingIOError:
        return False
    except OSError:
        return True
