"""The phases of an attempt, as a whole and on one member, and the progress of each participant."""

from __future__ import annotations

import enum

import msgspec


class Phase(enum.Enum):
    """Each follows the one before. An error or a cancellation leads from any of the first three to STOPPING."""

    PROBING = enum.auto()
    """A worker of the coordinator's member looks at the suppliers, before there is a plan."""
    PREPARING = enum.auto()
    """Processors are made and initialised."""
    RUNNING = enum.auto()
    STOPPING = enum.auto()
    """It ends before its time."""
    ENDED = enum.auto()
    """No tasklet is left on this member; others may have some."""
    COMMITTING = enum.auto()
    """All tasklets have ended well everywhere, and what has something to commit does so."""
    FINISHING = enum.auto()
    """No tasklet is left anywhere, and all let go."""
    OVER = enum.auto()

    @property
    def is_early(self) -> bool:
        """Whether tasklets may still be made, or run, unless something stops them."""
        return self in _EARLY


_EARLY = (Phase.PROBING, Phase.PREPARING, Phase.RUNNING)


class Progress(msgspec.Struct):
    """How far a member is for the coordinator, or a process for its member.

    Args:
        ready: its processors are made.
        ended: it has no tasklet left.
        commits: it has something to commit when all others have ended well.
        finished: it has let go of everything.
        adopted: tasklets that were handed over to it. Of processes only.
    """

    ready: bool = False
    ended: bool = False
    commits: bool = False
    finished: bool = False
    adopted: int = 0

    def is_out(self) -> None:
        """Note that nothing more is to come of it."""
        self.ready = self.ended = self.finished = True
        self.commits = False
