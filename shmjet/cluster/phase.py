"""How far an execution has come on one member."""

from __future__ import annotations

import enum


class Phase(enum.Enum):
    """Each follows the one before; a failure or a cancellation leads from any of the first three to the end."""

    PROBING = enum.auto()
    """A worker looks at its suppliers, before there is a plan."""
    PREPARING = enum.auto()
    """Processors are made and initialised."""
    RUNNING = enum.auto()
    COMMITTING = enum.auto()
    """All tasklets have ended well, and what has something to commit does so."""
    AWAITING = enum.auto()
    """No tasklet is left on this member; others may have some."""
    FINISHING = enum.auto()
    """No tasklet is left anywhere, and all let go."""
    OVER = enum.auto()
