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
    of its rings has what it waits for, or it polls. Each is looked at only when those before it have been called.

    Args:
        hosted: tasklets, each with what it belongs to.
    """
    for pair in hosted:
        tasklet = pair[0]
        if tasklet.dirty or tasklet.poller.ready() or tasklet.polling:
            yield pair


def any_polls(hosted: Iterable[tuple[ProcessorTasklet, _Owner]]) -> bool:
    """Say whether one of the tasklets has to be called again soon although nothing wakes it."""
    return any(tasklet.polling for tasklet, _ in hosted)
