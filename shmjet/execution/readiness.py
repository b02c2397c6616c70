"""Who is ready to start, in shared memory, so that an execution starts without asking its member first.

Every process that takes part has a byte in the arena. It writes READY there when all its processors are initialised,
and looks whether all have; a process that finds that starts, and posts the doorbells of the processes that wait. If an
`init` fails, its process never writes, so none starts.

Two that write at the same instant may both miss the other's byte, because these are plain stores. The member finds all
of them ready, too, and tells all that have not STARTED: an order that comes late or twice changes nothing.
`docs/formats/arena.md` has the offsets.
"""

from __future__ import annotations

from collections.abc import Iterable

from shmjet.execution.layout import ArenaLayout

PREPARING, READY, STARTED = 0, 1, 2
"""Values of a byte; the byte of an endpoint without processors is STARTED from the beginning."""


class Readiness:
    """The bytes of one execution.

    Args:
        memory: writable memory of the arena.
        layout: of the arena.
    """

    def __init__(self, memory: memoryview, layout: ArenaLayout) -> None:
        self._bytes = memory[layout.ready : layout.ready + layout.endpoints]

    def reset(self, participants: Iterable[int]) -> None:
        """Begin: no participant is ready. The member calls it before it deploys."""
        self._bytes[:] = bytes([STARTED]) * len(self._bytes)
        for endpoint in participants:
            self._bytes[endpoint] = PREPARING

    def note(self, endpoint: int, state: int) -> None:
        """Write a process' own byte."""
        self._bytes[endpoint] = state

    def state_of(self, endpoint: int) -> int:
        """Return what a process has written."""
        return self._bytes[endpoint]

    def all_ready(self) -> bool:
        """Say whether every process has been ready."""
        return PREPARING not in self._bytes.tobytes()

    def waiting(self) -> list[int]:
        """Return the endpoints that are ready and have not started."""
        return [endpoint for endpoint, state in enumerate(self._bytes.tobytes()) if state == READY]

    def release(self) -> None:
        """Let go of the memory."""
        self._bytes.release()
