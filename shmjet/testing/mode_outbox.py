"""The outbox of a mode, and what happens to the entries that are saved in it."""

from __future__ import annotations

from typing import Any

from shmjet.core.broadcast_key import BroadcastKey
from shmjet.core.keys import partition_id
from shmjet.core.outbox import DEFAULT_HIGH_WATER_MARK, LastingState, Ordinals, Outbox
from shmjet.ring import pickling

Entries = list[tuple[Any, Any]]


class Calls:
    """Counts the callbacks of all processors of one run, so that every other one finds its outbox full."""

    def __init__(self) -> None:
        self.processing = 0
        self.saving = 0


class ModeOutbox(Outbox):
    """With `full_at` it has one slot per bucket and none at every other callback; so has its bucket for snapshots.

    Args:
        bucket_count: outbound ordinals.
        full_at: as `Mode.full_at`.
        calls: those of the run.
    """

    __slots__ = ("_calls", "_full_at", "_is_shut")

    def __init__(self, bucket_count: int, full_at: int | None, calls: Calls) -> None:
        super().__init__([DEFAULT_HIGH_WATER_MARK if full_at is None else 1] * bucket_count)
        self._full_at = full_at
        self._calls = calls
        self._is_shut = False

    @property
    def is_shut(self) -> bool:
        """Whether nothing is accepted in this callback."""
        return self._is_shut

    def begin_callback(self) -> None:
        """As `Outbox.begin_callback`."""
        self._calls.processing += 1
        self._begin(self._calls.processing)

    def begin_saving(self, lasting: LastingState | None = None) -> None:
        """As `Outbox.begin_saving`."""
        self._calls.saving += 1
        self._saving = True
        self._lasting = lasting
        self._begin(self._calls.saving)

    def _begin(self, call: int) -> None:
        super().begin_callback()
        self._is_shut = call % 2 == self._full_at
        if self._is_shut:
            self._caps = [0] * len(self._caps)

    def room(self, ordinal: Ordinals = -1) -> int:
        """As `Outbox.room`."""
        if self._is_shut:
            return 0
        room = super().room(ordinal)
        return min(room, 1 - len(self._sink)) if self._full_at is not None and not self.buckets else room

    def _entry_limit(self, *step: int) -> int:
        if self._full_at is None:
            return super()._entry_limit(*step)
        return 0 if self._is_shut else 1


def carried(entries: Entries) -> Entries:
    """Return entries as they come out of a snapshot: pickled and unpickled, so that nothing is shared.

    Raises:
        TypeError: a key has no partition, or something cannot be pickled; the text shows it.
    """
    for key, _ in entries:
        if not isinstance(key, BroadcastKey):
            partition_id(key)
    carried_over: Entries = pickling.loads(b"".join(pickling.dumps(entries)))
    return carried_over
