"""The assignment of tasks to workers. Knows tasks and `WorkerHandle`s; must not know processes.

The cost of tasks decides how many are with one worker: one, as long as the cost is unknown or above `AHEAD_NS`; else as
many as that time holds. A task that a worker has and has not begun can be revoked (`ring/claims.h`). It is revoked when
its worker dies, or hangs while another has nothing to do; so no queued task waits for a stuck one.

Nothing in here is safe for two threads: the engine holds its lock around every call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from shmjet.pool.functions import Function
from shmjet.pool.layout import CELLS, QUEUE
from shmjet.pool.worker_handles import MOST_FILES, Task, WorkerHandle

AHEAD_NS: Final = 2e6
_OVERHEAD_NS: Final = 4e3
"""Added to the cost of a task, so that the number of very quick tasks has a limit."""
_TINY_NS: Final = 15e3
_TINY_AHEAD_NS: Final = 4e5
"""So much work of tasks below `_TINY_NS` (less than a wake-up) goes to a busy worker, even if another is idle."""
_TOGETHER: Final = 32
"""Quick tasks that travel in one frame; they wait for each other while their worker has this many to do."""
_UNKNOWN_NS: Final = 1e12
_MOST_AHEAD: Final = CELLS // 2
STUCK_NS: Final = 2 * 10**6
"""A worker that ends no task for so long, while another is idle, has its waiting tasks revoked."""

Failed = list[tuple[Task, BaseException | None]]
"""Tasks that will never run, each with its error, or None when it was cancelled; their futures are resolved without the
lock."""


class Dispatcher:
    """The waiting tasks and the workers.

    Args:
        most: the most workers.
        start_worker: has one more worker forked; returns None when that is not possible now.
        function_of: returns the `Function` of a callable; raises when it cannot be pickled.
    """

    def __init__(
        self, most: int, start_worker: Callable[[], WorkerHandle | None], function_of: Callable[[Any], Function]
    ) -> None:
        self.pending: deque[Task] = deque()
        self.workers: dict[int, WorkerHandle] = {}
        self._most = most
        self._start_worker = start_worker
        self._function_of = function_of
        self._idle: dict[WorkerHandle, None] = {}
        self._with_room: deque[WorkerHandle] = deque()
        self._quick_fn: Any = None
        self._quick_worker: WorkerHandle | None = None
        self.unwatched = 0
        """Tasks given to workers since the collector last checked them."""

    @property
    def is_busy(self) -> bool:
        """Whether any task waits or is with a worker."""
        return bool(self.pending) or any(worker.inflight for worker in self.workers.values())

    def submit(self, task: Task, failed: Failed) -> None:
        """Accept a task, and send it at once if a worker has room.

        A task of a quick function waits for more of them while a worker that will answer soon has enough to do: they go
        together when that answer comes, or when there are enough of them.
        """
        pending = self.pending
        pending.append(task)
        count = len(pending)
        if task.fn is self._quick_fn and count < _TOGETHER and self._has_enough():
            return
        if count == 1 or self._idle or not count % _TOGETHER:
            self.dispatch(failed)

    def _has_enough(self) -> bool:
        """Whether the worker that got the last quick tasks has enough of them, and no other should get more."""
        worker = self._quick_worker
        if worker is None or len(worker.inflight) < _TOGETHER or worker.suspect:
            return False
        return not self._idle or worker.load < _TINY_AHEAD_NS

    def dispatch(self, failed: Failed) -> None:
        """Send pending tasks while a worker has room."""
        pending = self.pending
        while pending:
            task = pending[0]
            function = task.function
            if function is None:
                try:
                    function = task.function = self._function_of(task.fn)
                except BaseException as error:
                    pending.popleft()
                    failed.append((task, error if task.begin() else None))
                    continue
            estimate = function.estimate
            cost = _UNKNOWN_NS if estimate is None else estimate * task.items + _OVERHEAD_NS
            worker = self._pick(cost)
            if worker is None:
                return
            is_quick = cost < _TINY_NS and function.number and task.columns is None
            self._quick_fn, self._quick_worker = (task.fn, worker) if is_quick else (None, None)
            if is_quick and len(pending) > 1 and self._give_several(worker, function, cost, failed):
                continue
            if not pending:  # they had all been cancelled
                self._put_back(worker)
            else:
                self._give_one(worker, cost, failed)

    def _give_one(self, worker: WorkerHandle, cost: float, failed: Failed) -> None:
        """Send the first pending task to a worker; without room there it stays pending, for another worker."""
        pending = self.pending
        task = pending.popleft()
        if not task.begin():
            failed.append((task, None))
            self._put_back(worker)
            return
        try:
            sent = worker.push(task)
        except BaseException as error:
            failed.append((task, error))
            self._put_back(worker)
            return
        if not sent:
            pending.appendleft(task)
            # A worker without tasks has not read its function yet, and both are large; or it is dead: see `readmit`.
            worker.suspect = worker.suspect or not worker.inflight
            return
        task.cost = cost
        self._has_given(worker, 1, cost)

    def _give_several(self, worker: WorkerHandle, function: Function, cost: float, failed: Failed) -> int:
        """Send tasks of one quick function in one frame; returns how many, 0 when they have to go one at a time."""
        limit = _TINY_AHEAD_NS if self._idle else AHEAD_NS
        room = min(int((limit - worker.load) / cost), _MOST_AHEAD - len(worker.inflight), 2 * _TOGETHER)
        pending, fn = self.pending, self.pending[0].fn
        tasks: list[Task] = []
        while pending and len(tasks) < room:
            task = pending[0]
            if task.fn is not fn or not task.is_plain:
                break
            del pending[0]
            if task.begin():
                task.function, task.cost = function, cost
                tasks.append(task)
            else:
                failed.append((task, None))
        sent = worker.push_several(function, tasks) if len(tasks) > 1 else 0
        if sent < len(tasks):
            self.requeue(tasks[sent:])
        if sent:
            self._has_given(worker, sent, cost)
        return sent

    def _has_given(self, worker: WorkerHandle, count: int, cost: float) -> None:
        self.unwatched += count
        worker.load += count * cost
        if worker.load < AHEAD_NS and len(worker.inflight) < _MOST_AHEAD and not worker.has_room:
            self._with_room.append(worker)
            worker.has_room = True

    def _pick(self, cost: float) -> WorkerHandle | None:
        """Return a worker for a task of this cost: idle, new, or with little to do; None when there is none."""
        if cost < _TINY_NS and self._with_room:  # waking another worker would cost more than it saves
            worker = self._with_room[0]
            if worker.inflight and worker.load < _TINY_AHEAD_NS and not worker.suspect and not worker.retired:
                self._with_room.popleft()
                worker.has_room = False
                return worker
        if self._idle:
            return self._idle.popitem()[0]
        if len(self.workers) < self._most:
            return self._start_worker()
        while self._with_room:
            worker = self._with_room[0]
            if not worker.inflight or worker.load >= AHEAD_NS or worker.suspect or worker.retired:
                self._with_room.popleft()
                worker.has_room = False
                continue
            if worker.load + cost > AHEAD_NS or worker.files >= MOST_FILES:
                return None
            self._with_room.popleft()
            worker.has_room = False
            return worker
        return None

    def _put_back(self, worker: WorkerHandle) -> None:
        if not worker.inflight:
            self._idle[worker] = None
        elif not worker.has_room:
            self._with_room.append(worker)
            worker.has_room = True

    def subtract_load(self, worker: WorkerHandle, task: Task) -> None:
        """Subtract a task, which is no longer in flight, from its worker's load."""
        worker.load = worker.load - task.cost if worker.inflight else 0.0
        worker.files -= task.in_file
        task.in_file = False

    def has_read(self, worker: WorkerHandle) -> None:
        """Offer a worker whose results have been read for more tasks, if it has room."""
        worker.still_since = 0
        if not worker.inflight and not worker.retired:
            self._idle[worker] = None
        elif worker.load < AHEAD_NS and not worker.has_room and worker.inflight:
            self._with_room.append(worker)
            worker.has_room = True

    def revoke_tasks(self, worker: WorkerHandle) -> list[Task]:
        """Revoke the tasks that a worker has not begun, and return them in order."""
        taken = []
        for number in [n for n in worker.inflight if worker.claims.revoke(n)]:
            task = worker.inflight.pop(number)
            self.subtract_load(worker, task)
            taken.append(task)
        return taken

    def requeue(self, tasks: Iterable[Task]) -> None:
        """Put tasks in front of the pending ones, in their order."""
        self.pending.extendleft(reversed(list(tasks)))

    def reclaim_stuck(self, worker: WorkerHandle, now: int) -> bool:
        """Revoke tasks of a worker that has ended none for `STUCK_NS`, if another can run them; True when any were.

        On a busy machine that may be all of its tasks. Such a worker will answer nothing: `readmit` finds out when it
        can have tasks again.

        Args:
            worker: the worker to check.
            now: time of the monotonic clock, in ns.
        """
        if not worker.still_since:
            worker.still_since = now
            return False
        if now - worker.still_since < STUCK_NS or not self.can_reclaim(worker):
            return False
        worker.suspect = True
        taken = self.revoke_tasks(worker)
        self.requeue(taken)
        return bool(taken)

    def readmit(self, worker: WorkerHandle) -> bool:
        """Make a suspect worker available again when it has read all records of its ring; False when it has not."""
        if worker.tasks.free_items < QUEUE:
            return False
        worker.suspect = False
        self.has_read(worker)
        return True

    def can_reclaim(self, worker: WorkerHandle) -> bool:
        """Whether a worker has waiting tasks that another could run.

        The other is an idle one. A new worker is started only for tasks that wait for a running task, not because the
        machine is busy.
        """
        waits, runs = len(worker.inflight) > 1, worker.runs_a_task
        if self._idle:
            return waits or not runs
        return waits and runs and len(self.workers) < self._most

    def remove(self, worker: WorkerHandle) -> None:
        """Forget a worker that is gone."""
        del self.workers[worker.index]
        self._idle.pop(worker, None)
        if worker.has_room:
            self._with_room.remove(worker)
        if self._quick_worker is worker:
            self._quick_worker = None

    def cancel(self) -> list[Task]:
        """Drop the pending tasks that have never begun; return them."""
        dropped = [task for task in self.pending if not task.begun]
        self.pending = deque(task for task in self.pending if task.begun)
        return dropped

    def drop_all(self) -> list[Task]:
        """Drop the pending tasks; return them and the tasks in flight."""
        left = [*self.pending, *(task for worker in self.workers.values() for task in worker.inflight.values())]
        self.pending.clear()
        return left

    def clear(self) -> None:
        """Forget all workers."""
        self.workers.clear()
        self._idle.clear()
        self._with_room.clear()
