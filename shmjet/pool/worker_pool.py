"""The workers of a pool as processes: hired when there is work for them, replaced when they die, given up when they
cannot start.

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
_WARN_S: Final = 2.0
"""Seconds for which the fork server may say nothing, though something has happened, before that is logged,"""
_STOPPED_S: Final = 10.0
"""before it is killed when it is stopped,"""
_SILENT_S: Final = 120.0
"""and when it is not: to start, it imports much, and the machine may be busy."""

logger = logging.getLogger("shmjet.pool")


class WorkerPool:
    """All worker processes of a pool, and the fork server that makes them.

    Args:
        cores: the core of each worker, None for one that is not pinned; their number is the most there will be.
        arena, layout: the pool's.
        bell: the client's doorbell.
        settings: pickled `PoolSettings`.
        most_stillborn: workers that may die one after the other before they are ready.
        dispatcher: has those that work.
        results: reads what a dead one has left.
        ring: wakes the collector.
        logs: on which workers send their log records.
    """

    def __init__(
        self,
        cores: Sequence[int | None],
        arena: Arena,
        layout: Layout,
        bell: Doorbell,
        settings: bytes,
        most_stillborn: int,
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
        self._most_stillborn = most_stillborn
        self._dispatcher = dispatcher
        self._results = results
        self._ring = ring
        self._logs = logs
        self._codec = Codec()
        self._tokens = itertools.count(1)
        self._stillborn = 0
        self.broken: str | None = None
        """Why no task can run any more."""
        self._server: Server | None = Server(arena, logs)
        self._patience = Patience(LOOK_NS / 1e9)
        self._server_lost = "the pool's fork server was killed"
        self._has_warned = False
        self._watch_at = 0.0

    def hire(self) -> WorkerHandle | None:
        """Have one more worker forked; None when the fork server is dead, which the collector then finds."""
        crew = self._dispatcher.crew
        index = next(i for i in range(len(self._cores)) if i not in crew)
        man = WorkerHandle(index, next(self._tokens), self._arena, self._layout, self._codec, self._bell)
        try:
            if self._server is None:
                self._server = Server(self._arena, self._logs)
            self._server.fork(man, self._cores[index], self._settings)
        except ChannelClosed:
            man.close()
            self._ring()
            return None
        except BaseException:
            man.close()
            raise
        man.pid_deadline = time.monotonic() + LOOK_NS / 1e9
        crew[index] = man
        return man

    @property
    def has_news(self) -> bool:
        """Whether the fork server has said something, or died."""
        return self._server is not None and self._server.has_news

    def hear_news(self, done: Done, failed: Failed) -> None:
        """Take what the fork server says: who was forked, who has died."""
        if self._server is None:
            return
        crew = self._dispatcher.crew
        try:
            news = self._server.news()
        except ChannelClosed:
            self._server.close()
            self._server = None
            for man in list(crew.values()):
                self._bury(man, self._server_lost, done, failed)
            self._server_lost = "the pool's fork server was killed"
            return
        for message in news:
            if isinstance(message, Forked):
                for man in crew.values():
                    if man.token == message.token:
                        man.forked_as(message.pid)
            else:
                for man in list(crew.values()):
                    if man.pid == message.pid:
                        self._bury(man, _how(message), done, failed)
        for man in list(crew.values()):
            if not man.pid and time.monotonic() > man.pid_deadline and _is_closed(man):
                self._bury(man, "it could not be forked", done, failed)
        self._watch(done, failed)

    def _watch(self, done: Done, failed: Failed) -> None:
        """See to what the fork server should have said: it may be stopped, and nobody must wait for it for ever.

        A worker whose process has ended is buried without it. One that does not fork is killed, for workers of a server
        that goes on later would meet those of the next in the same memory.
        """
        server, now = self._server, time.monotonic()
        if now < self._watch_at:
            return
        self._watch_at = now + LOOK_NS / 2e9
        assert server is not None
        waited = 0.0
        if any(not man.pid or has_ended(man.pid) for man in self._dispatcher.crew.values()):
            waited = self._patience.waited(now)
        else:
            self._patience.reset()
            self._has_warned = False
        if waited < _WARN_S:
            return
        pid, stopped = server.process_id, is_stopped(server.process_id)
        state = "is stopped (SIGSTOP)" if stopped else "does not answer"
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "the fork server (pid %d) of a pool %s; workers that have ended are not replaced", pid, state
            )
        for man in list(self._dispatcher.crew.values()):
            if has_ended(man.pid):
                self._bury(man, f"it has ended; the pool's fork server (pid {pid}) {state}", done, failed)
        if waited >= (_STOPPED_S if stopped else _SILENT_S):
            self._server_lost = f"the pool's fork server (pid {pid}) did not answer for {waited:.0f} s and was killed"
            logger.error("%s; its workers go with it", self._server_lost)
            server.kill()
            self._patience.reset()

    def _bury(self, man: WorkerHandle, how: str, done: Done, failed: Failed) -> None:
        """Settle what a dead worker leaves: results that it wrote count, tasks that it had not begun go to others."""
        dispatcher = self._dispatcher
        how = man.killed_because or how
        self._results.read(man, done)
        dispatcher.remove(man)
        back = dispatcher.take_back(man)
        for number, task in man.inflight.items():
            error = man.excuses.get(number) or BrokenProcessPool(
                f"A process in the process pool was terminated abruptly while the future was running: {how}"
            )
            failed.append((task, error))
        man.inflight.clear()
        dispatcher.requeue(back)
        self._stillborn = 0 if man.up else self._stillborn + 1
        if self._stillborn >= self._most_stillborn and not man.retired and self.broken is None:
            self.give_up(f"A process in the process pool ended before it was ready: {how}")
        man.close()
        if self.broken is not None:
            waiting = dispatcher.pending
            failed += [(task, BrokenProcessPool(self.broken) if task.begin() else None) for task in waiting]
            waiting.clear()

    def give_up(self, why: str) -> None:
        """Take no more tasks, because workers cannot start, and kill those that there are."""
        self.broken = why
        for man in self._dispatcher.crew.values():
            man.kill()

    def dismiss(self) -> None:
        """End the workers, then the server."""
        crew = self._dispatcher.crew
        for man in crew.values():
            man.end()
        deadline = time.monotonic() + _END_S
        while crew and self._server is not None and time.monotonic() < deadline:
            seen = self._bell.commands
            self.hear_news([], [])
            if crew:
                self._bell.wait([], seen, 0, LOOK_NS // 10)
        for man in crew.values():
            man.close()
        if self._server is not None:
            self._server.close()

    def leave(self) -> None:
        """Forget all of them in a forked child, which has no part in them."""
        if self._server is not None:
            self._server.leave()
        for man in self._dispatcher.crew.values():
            man.sock.close()
            man.other.close()


def _how(message: Exited) -> str:
    return f"killed by signal {-message.status}" if message.status < 0 else f"exit status {message.status}"


def _is_closed(man: WorkerHandle) -> bool:
    """Whether the other end of a worker's socket is closed, though it was never said to have been forked."""
    try:
        return not man.sock.recv(1, 0x42)  # MSG_PEEK | MSG_DONTWAIT
    except BlockingIOError:
        return False
    except OSError:
        return True
