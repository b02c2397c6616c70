"""The processes that take part in one member's run of a job, and how far each has come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from signal import SIGKILL

from shmjet.cluster.workers import Child
from shmjet.execution.failure import worker_lost
from shmjet.execution.messages import Failure


@dataclass(eq=False)
class Participant:
    """One process.

    `ready`: its processors are made. `ended`: it has no tasklet left. `finished`: it has let go of everything.
    `adopted`: tasklets that were handed over to it.
    """

    child: Child
    ready: bool = False
    ended: bool = False
    finished: bool = False
    adopted: int = 0

    def is_out(self) -> None:
        """Note that nothing more is to come of it."""
        self.ready = self.ended = self.finished = True


class Participants(dict[int, Participant]):
    """All of them, by endpoint."""

    def add(self, child: Child, *, ready: bool = False) -> Participant:
        """Take a process that takes part from now on."""
        found = self[child.index] = Participant(child, ready)
        return found

    def of(self, child: Child) -> Participant | None:
        """Return what is known of a process; None when it does not take part, or took part in its place before."""
        found = self.get(child.index)
        return found if found is not None and found.child is child else None

    @property
    def have_ended(self) -> bool:
        """Whether no tasklet is left anywhere."""
        return all(part.ended for part in self.values())

    @property
    def have_finished(self) -> bool:
        """Whether all have let go."""
        return all(part.finished for part in self.values())

    def unended(self) -> Iterator[Child]:
        """Yield the processes with tasklets."""
        return (part.child for part in self.values() if not part.ended)

    def unfinished(self) -> Iterator[Child]:
        """Yield the processes that have not let go."""
        return (part.child for part in self.values() if not part.finished)

    @property
    def carriers(self) -> list[Child]:
        """The processes that were forked for one processor each."""
        return [part.child for part in self.values() if part.child.is_carrier]


def loss_of(child: Child, vertices: list[str]) -> Failure:
    """Describe the death of a process.

    Args:
        child: that has died.
        vertices: of which it ran processors.
    """
    status = child.status
    if status is None and child.killed_because is not None:
        status = -SIGKILL
    return worker_lost(
        worker=child.index,
        pid=child.pid,
        signal=-status if status is not None and status < 0 else 0,
        status=status,
        vertices=vertices,
        carrier=child.is_carrier,
        because=child.killed_because,
        last_words=child.last_words,
        end=child.end,
    )
