"""A worker's part in work stealing: which worker it asks for a tasklet, and which of its own it gives away.

All that workers know of each other lies in the control segment: how many tasklets each has, and a word in which a thief
leaves its number. What is given travels through the member (`docs/design/0006-stealing.md`). Must not know messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shmjet.execution import control
from shmjet.execution.control import WorkerControl
from shmjet.execution.deployment import Deployment
from shmjet.execution.messages import HandOver
from shmjet.execution.tasklet import ProcessorTasklet

Hosted = tuple[ProcessorTasklet, Deployment]
"""A tasklet and what it belongs to, as they stand on a worker's list."""

_ANSWER_NS = 5_000_000
"""How long a thief waits for an answer before it asks again."""
_WAIT_NS = 1_000_000
_LONGEST_WAIT_NS = 100_000_000
"""How long an idle worker sleeps before it looks again at a list that is longer than its own."""
_STAY_NS = 100_000_000
"""How long a tasklet that could not be handed over is left alone."""
_MOST_TRIES = 4
_LEAST_BUSY_NS = 1_000_000
"""What a tasklet has worked, at least, before it is given away: while it waits for its input it burdens its owner with
nothing, and lanes that have come to cross processes stay so."""
_LOOKED_AT_NS = 5_000_000
"""Over how long a worker looks at what it has slept: a short wait for a neighbour makes it no thief."""


@dataclass(frozen=True)
class Given:
    """A tasklet that has been taken out of its lanes here: the message with its state, and descriptors to close."""

    tasklet: ProcessorTasklet
    deployment: Deployment
    message: HandOver
    fds: list[int]


class Stealing:
    """One worker as thief and as victim.

    Args:
        index: the worker's; carriers, which have higher numbers than all workers, neither ask nor give.
        blocks: control blocks of all workers.
        margin: how many tasklets more than its own another must have for it to take one; None: never.
    """

    def __init__(self, index: int, blocks: Sequence[WorkerControl], margin: int | None) -> None:
        self._index = index
        self._all = blocks
        self._others = [block for i, block in enumerate(blocks) if i != index]
        self._margin = margin if index < len(blocks) else None
        self._asked_until_ns = 0
        self._wait_ns = 0
        self._since_ns = 0
        self._idle_ns = 0
        self._has_time = False

    # -- as a thief ---------------------------------------------------------------------------------------------

    def look_for_work(self, own: int, now: int) -> bool:
        """Ask the worker with the longest list for a tasklet, if it has enough more than the `own` ones and is awake.

        It asks for none while its own tasklets keep it awake for half of the time or more.

        Returns:
            whether there is such a worker.
        """
        margin = self._margin
        if margin is None:
            return False
        longest, victim = own + margin - 1, None
        for block in self._others:
            length = block.words[control.TASKLETS]
            if length > longest and (margin < 0 or not block.doorbell.sleeping):
                longest, victim = length, block
        if victim is None:
            return False
        if now >= self._asked_until_ns and (margin < 0 or self._would_have_time(own, now)):
            self._asked_until_ns = now + _ANSWER_NS
            victim.words[control.THIEF] = self._index + 1
        return True

    def _would_have_time(self, own: int, now: int) -> bool:
        """Return whether the worker, with so many tasklets, has lately slept for more than half of the time."""
        span = now - self._since_ns
        if span >= _LOOKED_AT_NS:
            idle = self._all[self._index].words[control.IDLE_NS]
            self._has_time = 2 * (idle - self._idle_ns) > span
            self._since_ns, self._idle_ns = now, idle
        return self._has_time or not own

    def next_look_ns(self) -> int:
        """Return how long to sleep at most before looking again; longer each time until something comes."""
        self._wait_ns = min(max(_WAIT_NS, self._wait_ns * 2), _LONGEST_WAIT_NS)
        return self._wait_ns

    def received(self) -> None:
        """Note that a tasklet has come."""
        self._wait_ns = 0

    # -- as a victim --------------------------------------------------------------------------------------------

    def wake_thieves(self, own: int) -> None:
        """Ring the workers that may be asleep and would want some of the `own` tasklets."""
        if self._margin is None:
            return
        for block in self._others:
            if own - block.words[control.TASKLETS] >= self._margin:
                block.doorbell.ring()

    def give(self, tasklets: Sequence[Hosted], now: int) -> Given | None:
        """Take the tasklet that has worked most out for the worker that has asked; None: none goes.

        Before it has worked a millisecond none goes, unless the margin is negative, as in tests.
        """
        if self._margin is None:
            return None
        words = self._all[self._index].words
        thief = words[control.THIEF] - 1
        words[control.THIEF] = 0
        if not 0 <= thief < len(self._all) or thief == self._index:
            return None
        if len(tasklets) - self._all[thief].words[control.TASKLETS] < self._margin:
            return None
        tries = 0
        for tasklet, deployment in sorted(tasklets, key=lambda pair: -pair[0].busy_ns):
            if now < tasklet.stays_until_ns or tries == _MOST_TRIES:
                continue
            if self._margin >= 0 and tasklet.busy_ns < _LEAST_BUSY_NS:
                break
            tries += 1
            handed = deployment.hand_over(tasklet, thief)
            if handed is not None:
                words[control.STOLEN] += 1
                return Given(tasklet, deployment, *handed)
            tasklet.stays_until_ns = now + _STAY_NS
        return None
