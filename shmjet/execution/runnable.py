"""Which tasklets a worker calls in a round: those with a reason. A worker that leaves out all of them may sleep.

The rule is apart from the worker's loop so that tests follow it as well: a tasklet that nothing wakes is a deadlock
there, as it is on a worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from shmjet.execution.tasklet import ProcessorTasklet

_Owner = TypeVar("_Owner")


def due(hosted: Iterable[tuple[ProcessorTasklet, _Owner]]) -> Iterator[tuple[ProcessorTasklet, _Owner]]:
    """Yield, one after the other, the tasklets for which a call may do something.

    That is so when the last call did something, a neighbour on the same worker has touched a lane that they share, one
    of its rings has what it waits for, it polls, or its timer has run out. Each is looked at only when those before it
    have been called.

    Args:
        hosted: tasklets, each with what it belongs to.
    """
    for pair in hosted:
        tasklet = pair[0]
        if tasklet.runnable or tasklet.poller.ready() or tasklet.polling or (tasklet.due_ns and tasklet.is_due()):
            yield pair


def any_polls(hosted: Iterable[tuple[ProcessorTasklet, _Owner]]) -> bool:
    """Say whether one of the tasklets has to be called again soon although nothing wakes it."""
    return any(tasklet.polling for tasklet, _ in hosted)


def any_postponed(hosted: Iterable[tuple[ProcessorTasklet, _Owner]]) -> bool:
    """Say whether one of the tasklets has numbers that are to be published soon."""
    return any(tasklet.meter.is_postponed for tasklet, _ in hosted)


def earliest(hosted: Iterable[tuple[ProcessorTasklet, _Owner]]) -> int:
    """Return when the first timer of these tasklets runs out, in nanoseconds of their clock; 0 when none is set."""
    return min((tasklet.due_ns for tasklet, _ in hosted if tasklet.due_ns), default=0)
