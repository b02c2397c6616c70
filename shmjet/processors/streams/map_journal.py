"""The changes of a map, as an endless source. After Jet's `StreamEventJournalP`.

Each processor reads some of the environments that the map lies in. Must not know how the journal is kept.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from shmjet.core.broadcast_key import BroadcastKey
from shmjet.core.event_time import EventTimePolicy
from shmjet.core.grid_calls import journal_reader
from shmjet.core.processor import ProcessorContext
from shmjet.processors.grid.writers import grid_of
from shmjet.processors.time.timed_items import PartitionItems
from shmjet.processors.time.timed_source import TimedSource

_SHORTEST_WAIT, _LONGEST_WAIT = 0.0005, 0.01


class MapJournalProcessor(TimedSource):
    """Emits a `MapEvent` for each change.

    Args:
        name: of the map.
        start: "oldest" or "latest".
        policy: of its event time; None: it has none.
    """

    def __init__(self, name: str, start: str, policy: EventTimePolicy | None) -> None:
        super().__init__(policy)
        self._name = name
        self._start = start
        self._saved: dict[int, Any] = {}

    def start(self, context: ProcessorContext) -> None:
        """Open the journal, and note where it ends now, if that is where to begin."""
        self._map = grid_of(context).get_map(self._name)
        self._share = context.global_index, context.total_parallelism
        self._reader = journal_reader(self._map, self._start, self._share)

    def first_partitions(self) -> Sequence[Hashable]:
        """Return one source partition, or none if there is nothing for this processor to read."""
        return super().first_partitions() if self._reader.positions else ()

    def read(self) -> Iterable[PartitionItems]:
        """Return what is new."""
        events = self._reader.read()
        if events:
            self.read_again = 0.0
            return [PartitionItems(events)]
        self.read_again = min(_LONGEST_WAIT, max(_SHORTEST_WAIT, 2 * self.read_again))
        return ()

    def saved_positions(self) -> Iterable[tuple[Any, Any]]:
        """Return how far each environment has been read."""
        return [(BroadcastKey(("journal", index)), position) for index, position in self._reader.positions.items()]

    def restore_positions(self, entries: list[tuple[Any, Any]]) -> None:
        """Take how far the processors have read, and go on there."""
        for key, (incarnation, sequences) in entries:
            self._saved[key.key[1]] = incarnation, dict(sequences)
        self._reader = journal_reader(self._map, self._start, self._share, self._saved)
