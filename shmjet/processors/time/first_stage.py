"""What the first stages of windows in two stages save: they hand over what they have, and keep the next frame alone.

Must not know: what a frame holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shmjet.core.broadcast_key import BroadcastKey
from shmjet.processors.time.window_processor import WindowProcessor

NEXT_WINDOW = BroadcastKey("next window")
"""The key under which each processor saves the end of the next window that it will emit."""


class FirstStage(WindowProcessor):
    """A window processor whose results are states, which a second stage combines and saves."""

    _frames: Any
    _next: int
    """The end of the next frame to be emitted; what belongs to earlier frames is late."""
    _restored: int | None = None

    def save_to_snapshot(self) -> bool:
        """Emit the states of all frames, which are the second stage's from now on."""
        if self.emission.idle and self._frames:
            self.emission.start(self.results())
        return super().save_to_snapshot()

    def saved_entries(self) -> Iterable[tuple[Any, Any]]:
        """Return the next frame, if late events go anywhere; else the second stage drops them after a restart."""
        return [] if self._late_ordinal is None else [(NEXT_WINDOW, self._next)]

    def restore_entries(self, entries: list[tuple[Any, Any]]) -> None:
        """Go on from the least of the frames that were saved."""
        least = min(value for _, value in entries)
        self._next = least if self._restored is None else min(self._restored, least)
        self._restored = self._next
