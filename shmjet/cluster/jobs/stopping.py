"""The stopping of an execution in processes whose code does not return: first a signal, then the end of the process.

A process that has to do something for an execution (stop its part, close its suppliers) gets some time for it. Then
it is signalled, which ends what loops or waits in Python; what swallows that, or waits in C, is ended with its process,
and all jobs that share the process are told whose code it was. The control blocks say whose code runs where.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from shmjet.cluster.processes.workers import Child, Workers
from shmjet.execution import control
from shmjet.host.patience import Patience
from shmjet.host.process_usage import waited_for_core

INTERRUPT_S = 0.2
"""How long a process may take to stop its part of a failed or cancelled execution before it is interrupted there."""
INTERRUPT_SOON_S = 0.01
"""The same of a job with a guarantee: nothing is lost when it is interrupted, and its next attempt waits."""
GRACE_S = 1.2
"""How long it may take before it is killed, without the time in which it waited for a core;"""
MOST_GRACE_S = 6.0
"""and how long with it."""
LEAST_GRACE_S = 0.05
"""What is left of the grace below this is not waited for."""
CLOSE_S = 5.0
"""How long a process may take to close suppliers of an execution that has ended, before it is interrupted there."""
CLOSE_GRACE_S = 6.0
"""How long it may take before it is killed."""
AGAIN_S = 0.2
"""After how long a process is interrupted once more: it may have been in the next `close` already."""


class Stopping:
    """The timers of one execution. They act on the processes that `pending` gives when they are due.

    Args:
        execution_id: of the execution.
        name: how its job is called in messages.
        workers: they live there.
        pending: the processes that have not done yet what they were told to do.
        name_of: how the job of another execution is called, by that execution's number; None when it is unknown.
    """

    def __init__(
        self,
        execution_id: int,
        name: str,
        workers: Workers,
        pending: Callable[[], Iterable[Child]],
        name_of: Callable[[int], str | None],
    ) -> None:
        self._id = execution_id
        self._name = name
        self._workers = workers
        self._pending = pending
        self._name_of = name_of
        self._timers: list[asyncio.TimerHandle] = []
        self._patience = Patience(AGAIN_S)
        """Counts the seconds since `stop`, or since the first interruption in a `close`, in which the member ran."""
        self._starved: dict[int, float] = {}
        """How long each process had waited for a core when it was told to stop, by its pid."""

    def stop(self, *, soon: bool = False) -> None:
        """Watch processes that have been told to stop their part.

        Args:
            soon: interrupt code that does not return almost at once.
        """
        self._waited()
        self._starved = {child.pid: waited_for_core(child.pid) for child in self._left()}
        self._watch(INTERRUPT_SOON_S if soon else INTERRUPT_S, GRACE_S, self._kill_all)

    def close(self) -> None:
        """Watch processes that have been told to close what is left; they have all stopped."""
        self._patience.reset()
        self._watch(CLOSE_S, CLOSE_GRACE_S, self._kill_closing)

    def end(self) -> None:
        """Watch no more."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _watch(self, interrupt_s: float, kill_s: float, kill: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        self._timers.append(loop.call_later(interrupt_s, self._interrupt))
        self._timers.append(loop.call_later(kill_s, kill))

    def _interrupt(self) -> None:
        """Signal the processes that run this execution's code still."""
        self._waited()
        left = self._left()
        for child in left:
            if child.block.request_interrupt(self._id):
                self._workers.interrupt(child)
        if left:
            self._again(self._interrupt)

    def _kill_all(self) -> None:
        """Kill the processes that have not stopped, whosever code keeps them: a cancelled job has to end.

        On a busy host a process may hardly have run since it was told; then it gets the time that it lacks. Where the
        whole host stood still, so did the member, and that time does not count.
        """
        passed = self._waited()
        lacking = []
        for child in self._left():
            starved = min(waited_for_core(child.pid) - self._starved.get(child.pid, 0.0), passed)
            rest = min(GRACE_S - (passed - starved), MOST_GRACE_S - passed)
            if rest < LEAST_GRACE_S:
                self._kill(child)
            else:
                lacking.append(rest)
        if lacking:
            self._timers.append(asyncio.get_running_loop().call_later(min(lacking), self._kill_all))

    def _kill_closing(self) -> None:
        """Kill the processes that do not come back from a `close` of this execution; others will get to theirs."""
        left = self._left()
        if self._waited() >= CLOSE_GRACE_S - CLOSE_S - LEAST_GRACE_S:
            for child in left:
                if self._running_in(child) == self._id:
                    self._kill(child)
        if left:
            self._again(self._kill_closing)

    def _waited(self) -> float:
        return self._patience.waited(asyncio.get_running_loop().time())

    def _left(self) -> list[Child]:
        """Return the processes to watch; the member itself waits for processes that it has told to exit."""
        return [child for child in self._pending() if not (child.lost or child.stopping)]

    def _again(self, step: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        self._timers = [timer for timer in self._timers if timer.when() > loop.time()]  # the others have run
        self._timers.append(loop.call_later(AGAIN_S, step))

    def _running_in(self, child: Child) -> int:
        return child.block.words[control.CURRENT_EXECUTION]

    def _kill(self, child: Child) -> None:
        running = self._running_in(child)
        other = self._name_of(running) if running not in (0, self._id) else None
        if other is None:
            child.killed_because = f"job {self._name} did not stop when it was told to"
        else:
            child.killed_because = f"job {other} did not come back from its code while job {self._name} had to end"
        self._workers.kill(child)
