"""The marks that travel between items in a lane: watermarks, snapshot barriers, DONE.

They keep their place among the items. What they mean is the business of floors above; here they are values that have a
record kind of their own and cost 32 bytes in a ring. Names and roles are Hazelcast Jet's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, final


@final
@dataclass(frozen=True, slots=True, order=True)
class Watermark:
    """Says that no item with a smaller timestamp will follow in this lane.

    Args:
        timestamp: a signed 64-bit number in the unit of the items' own timestamps.

    Example:
        >>> Watermark(5) < Watermark(7)
        True
    """

    timestamp: int


IDLE: Final = Watermark((1 << 63) - 1)
"""The watermark of a lane that has nothing to say about time for now."""


def watermark_of(timestamp: int | None) -> Watermark | None:
    """Return the watermark with a timestamp, `IDLE` for that of `IDLE`; None for None.

    Example:
        >>> watermark_of(5), watermark_of(None)
        (Watermark(timestamp=5), None)
    """
    return None if timestamp is None else IDLE if timestamp == IDLE.timestamp else Watermark(timestamp)


@final
@dataclass(frozen=True, slots=True)
class Barrier:
    """Separates the items before a snapshot from those after it (Chandy and Lamport).

    Args:
        snapshot_id: a number that grows with each snapshot of an execution.
        terminal: the job ends after this snapshot.
    """

    snapshot_id: int
    terminal: bool = False


@final
class Done:
    """The type of `DONE`; there is one instance in each process, whatever is copied or unpickled."""

    __slots__ = ()
    _instance: Done | None = None

    def __new__(cls) -> Done:
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def __repr__(self) -> str:
        return "DONE"

    def __reduce__(self) -> tuple[type[Done], tuple[()]]:
        return Done, ()


DONE: Final = Done()
"""Nothing follows in this lane."""

Mark: TypeAlias = Watermark | Barrier | Done
