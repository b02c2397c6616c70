"""Which task goes to which worker, and how far ahead. Knows tasks and crewmen; must not know processes.

How many tasks are with one worker follows from what they cost: one, as long as that is not known or more than
`AHEAD_NS`; else as many as that time holds. What is there and has not begun can be taken back (`ring/claims.h`), and is
when its worker dies or hangs while another has nothing to do; so being ahead never makes a task wait for a stuck one.

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
"""Added to what a task costs, so that tasks of no cost are not without number."""
_TINY_NS: Final = 15e3
_TINY_AHEAD_NS: Final = 4e5
"""So much of tasks that take less than waking somebody is given to a worker that is awake, even if another is idle."""
_TOGETHER: Final = 32
"""Quick tasks that go in one frame; they wait for each other as long as their worker has so many to do."""
_UNKNOWN_NS: Final = 1e12
_MOST_AHEAD: Final = CELLS // 2
STUCK_NS: Final = 2 * 10**6
"""A worker that ends nothing for so long, while another is idle, gets its waiting tasks taken back."""

Failed = list[tuple[Task, BaseException | None]]
"""Tasks that will never run, each with the reason, None when they have been cancelled; their futures are told without
the lock."""


class Dispatcher:
    """The tasks that wait, and the workers that there are.

    Args:
        most: workers that there may be.
        hire: has one more worker forked; returns None when that cannot be done now.
        function_of: returns what is known of a function; raises when it cannot be pickled.
    """

    def __init__(
        self, most: int, hire: Callable[[], WorkerHandle | None], function_of: Callable[[Any], Function]
    ) -> None:
        self.pending: deque[Task] = deque()
        self.crew: dict[int, WorkerHandle] = {}
        self._most = most
        self._hire = hire
        self._function_of = function_of
        self._idle: dict[WorkerHandle, None] = {}
        self._open: deque[WorkerHandle] = deque()
        self._quick: Any = None
        self._fed: WorkerHandle | None = None
        self.unwatched = 0
        """Tasks given to workers since the collector last looked after them."""

    @property
    def is_busy(self) -> bool:
        """Whether any task waits or is with a worker."""
        return bool(self.pending) or any(man.inflight for man in self.crew.values())

    def submit(self, task: Task, failed: Failed) -> None:
        """Take a task on, and give it away at once if somebody can have it.

        One of a quick function waits for company if a worker that will answer soon has enough to do: with that answer,
        or when there are enough of them, they go together.
        """
        pending = self.pending
        pending.append(task)
        count = len(pending)
        if task.fn is self._quick and count < _TOGETHER and self._is_fed():
            return
        if count == 1 or self._idle or not count % _TOGETHER:
            self.dispatch(failed)

    def _is_fed(self) -> bool:
        """Whether the worker that got the last quick tasks has enough of them, and nobody else should have more."""
        man = self._fed
        if man is None or len(man.inflight) < _TOGETHER or man.suspect:
            return False
        return not self._idle or man.load < _TINY_AHEAD_NS

    def dispatch(self, failed: Failed) -> None:
        """Give pending tasks to workers as long as one has room."""
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
            man = self._pick(cost)
            if man is None:
                return
            is_quick = cost < _TINY_NS and function.number and task.columns is None
            self._quick, self._fed = (task.fn, man) if is_quick else (None, None)
            if is_quick and len(pending) > 1 and self._give_several(man, function, cost, failed):
                continue
            if not pending:  # they had all been cancelled
                self._put_back(man)
            else:
                self._give_one(man, cost, failed)

    def _give_one(self, man: WorkerHandle, cost: float, failed: Failed) -> None:
        """Give the task in front to a worker, if that has room: else another is asked."""
        pending = self.pending
        task = pending.popleft()
        if not task.begin():
            failed.append((task, None))
            self._put_back(man)
            return
        try:
            sent = man.push(task)
        except BaseException as error:
            failed.append((task, error))
            self._put_back(man)
            return
        if not sent:
            pending.appendleft(task)
            # One that has no task has not read its function yet, and both are large; or it is dead: see `welcome`.
            man.suspect = man.suspect or not man.inflight
            return
        task.cost = cost
        self._has_given(man, 1, cost)

    def _give_several(self, man: WorkerHandle, function: Function, cost: float, failed: Failed) -> int:
        """Give tasks of one quick function to a worker in one frame; returns how many, 0: they have to go singly."""
        limit = _TINY_AHEAD_NS if self._idle else AHEAD_NS
        room = min(int((limit - man.load) / cost), _MOST_AHEAD - len(man.inflight), 2 * _TOGETHER)
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
        sent = man.push_several(function, tasks) if len(tasks) > 1 else 0
        if sent < len(tasks):
            self.requeue(tasks[sent:])
        if sent:
            self._has_given(man, sent, cost)
        return sent

    def _has_given(self, man: WorkerHandle, count: int, cost: float) -> None:
        self.unwatched += count
        man.load += count * cost
        if man.load < AHEAD_NS and len(man.inflight) < _MOST_AHEAD and not man.is_open:
            self._open.append(man)
            man.is_open = True

    def _pick(self, cost: float) -> WorkerHandle | None:
        """Return a worker for a task of this cost: an idle one, a new one, or one with little to do."""
        if cost < _TINY_NS and self._open:  # waking another worker would cost more than it saves
            man = self._open[0]
            if man.inflight and man.load < _TINY_AHEAD_NS and not man.suspect and not man.retired:
                self._open.popleft()
                man.is_open = False
                return man
        if self._idle:
            return self._idle.popitem()[0]
        if len(self.crew) < self._most:
            return self._hire()
        while self._open:
            man = self._open[0]
            if not man.inflight or man.load >= AHEAD_NS or man.suspect or man.retired:
                self._open.popleft()
                man.is_open = False
                continue
            if man.load + cost > AHEAD_NS or man.files >= MOST_FILES:
                return None
            self._open.popleft()
            man.is_open = False
            return man
        return None

    def _put_back(self, man: WorkerHandle) -> None:
        if not man.inflight:
            self._idle[man] = None
        elif not man.is_open:
            self._open.append(man)
            man.is_open = True

    def settle(self, man: WorkerHandle, task: Task) -> None:
        """Take a task off a worker's account; it is no longer in flight."""
        man.load = man.load - task.cost if man.inflight else 0.0
        man.files -= task.in_file
        task.in_file = False

    def has_read(self, man: WorkerHandle) -> None:
        """See whether a worker whose results have been read may have more."""
        man.still_since = 0
        if not man.inflight and not man.retired:
            self._idle[man] = None
        elif man.load < AHEAD_NS and not man.is_open and man.inflight:
            self._open.append(man)
            man.is_open = True

    def take_back(self, man: WorkerHandle) -> list[Task]:
        """Revoke what a worker has not begun; in order."""
        taken = []
        for number in [n for n in man.inflight if man.claims.revoke(n)]:
            task = man.inflight.pop(number)
            self.settle(man, task)
            taken.append(task)
        return taken

    def requeue(self, tasks: Iterable[Task]) -> None:
        """Put tasks in front of those that wait, in their order."""
        self.pending.extendleft(reversed(list(tasks)))

    def rescue(self, man: WorkerHandle, now: int) -> bool:
        """Take tasks back from a worker that has ended nothing for `STUCK_NS`, if another can have them.

        On a busy machine that may be all of them. Such a worker will answer nothing: `welcome` sees when it is back.

        Args:
            man: it.
            now: of the monotonic clock, in ns.
        """
        if not man.still_since:
            man.still_since = now
            return False
        if now - man.still_since < STUCK_NS or not self.may_rescue(man):
            return False
        man.suspect = True
        taken = self.take_back(man)
        self.requeue(taken)
        return bool(taken)

    def welcome(self, man: WorkerHandle) -> bool:
        """Say whether a worker without a task has read all that lies before it, and may have more."""
        if man.tasks.free_items < QUEUE:
            return False
        man.suspect = False
        self.has_read(man)
        return True

    def may_rescue(self, man: WorkerHandle) -> bool:
        """Say whether a worker has tasks that wait, and another could have them.

        That is an idle one; a new one is hired only for those behind a task that runs, not because the machine is busy.
        """
        waits, runs = len(man.inflight) > 1, man.runs_a_task
        if self._idle:
            return waits or not runs
        return waits and runs and len(self.crew) < self._most

    def remove(self, man: WorkerHandle) -> None:
        """Forget a worker that is gone."""
        del self.crew[man.index]
        self._idle.pop(man, None)
        if man.is_open:
            self._open.remove(man)
        if self._fed is man:
            self._fed = None

    def cancel(self) -> list[Task]:
        """Drop the tasks that wait and have never begun; return them."""
        dropped = [task for task in self.pending if not task.begun]
        self.pending = deque(task for task in self.pending if task.begun)
        return dropped

    def drop_all(self) -> list[Task]:
        """Drop the tasks that wait; return them, and those that are with workers."""
        left = [*self.pending, *(task for man in self.crew.values() for task in man.inflight.values())]
        self.pending.clear()
        return left

    def clear(self) -> None:
        """Forget all workers."""
        self.crew.clear()
        self._idle.clear()
        self._open.clear()
