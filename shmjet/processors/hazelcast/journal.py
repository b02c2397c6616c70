"""The changes of a map of a Hazelcast cluster, as an endless source. After Jet's `StreamEventJournalP`.

Each processor reads its share of the partitions. Each partition has one request that waits at its member until there
is a change; the next one is made when the last one's events have been handed out, so memory is bounded. Must not know
the messages.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from shmjet.core.broadcast_key import BroadcastKey
from shmjet.core.event_time import EventTimePolicy
from shmjet.core.processor import ProcessorContext
from shmjet.core.wake_up import wake_up_in
from shmjet.data.errors import ConfigError
from shmjet.grid.journal import MapEvent
from shmjet.processors.hazelcast.connection import Connection, Reply, connect
from shmjet.processors.hazelcast.settings import ClusterSettings
from shmjet.processors.time.timed_items import Run
from shmjet.processors.time.timed_source import TimedSource

AT_ONCE: Final = 256
"""Events in one reply, at most."""
_ENOUGH: Final = 2048
"""Events after which `read` returns."""


class _Came(NamedTuple):
    partition: int
    asked: int
    future: Any


class RemoteJournalProcessor(TimedSource):
    """Emits a `MapEvent` for each change.

    A partition's own sequences are its position. What the journal does not have any more is told as lost.

    Args:
        name: of the map.
        start: "oldest" or "latest".
        settings: how to reach the cluster.
        policy: of its event time; None: it has none.
    """

    state_kind = "remote_map_journal"
    is_cooperative = False

    def __init__(self, name: str, start: str, settings: ClusterSettings, policy: EventTimePolicy | None) -> None:
        super().__init__(policy)
        self._name = name
        self._start = start
        self._settings = settings
        self._connection: Connection | None = None

    def start(self, context: ProcessorContext) -> None:
        """Connect, and ask how far the journals reach."""
        self._what = f"remote map {self._name!r}"
        self._saved: dict[int, int] = {}
        self._came: deque[_Came] = deque()
        self._wake_up = wake_up_in(context)
        self._connection = connect(context, self._settings, self._what)
        count = self._connection.partition_count
        self._partitions = list(range(context.global_index, count, context.total_parallelism))
        try:
            self._map = self._connection.client.get_map(self._name)
            self._bounds = dict(zip(self._partitions, self._asked_bounds(self._partitions), strict=True))
        except Exception as error:
            failure = self._failure(error)
            self.close()
            raise failure from None
        self._sequences: dict[int, int] = {}
        self._lost: list[tuple[int, MapEvent]] = []
        self._is_reading = False
        self.read_again = 0.0

    def first_partitions(self) -> Sequence[Hashable]:
        """Return the cluster's partitions, each with a time of its own; with the time of reading one has it for all."""
        if self.policy is None or self.policy.timestamps == "ingestion":
            return super().first_partitions() if self._partitions else ()
        return self._partitions

    def read(self) -> Iterable[Run]:
        """Return what has come, and ask for more."""
        if not self._is_reading:
            self._begin_reading()
        runs = [self._run(partition, [event]) for partition, event in self._lost]
        self._lost = []
        taken = 0
        while self._came and taken < _ENOUGH:
            partition, asked, future = self._came.popleft()
            events = self._events(partition, asked, future)
            if events:
                taken += len(events)
                runs.append(self._run(partition, events))
            self._ask(partition)
        self.read_again = 0.0 if self._came or self._lost else math.inf
        return runs

    def _run(self, partition: int, events: list[MapEvent]) -> Run:
        own = self.policy is not None and self.policy.timestamps != "ingestion"
        return Run(events, partition // self.context.total_parallelism if own else 0)

    def _begin_reading(self) -> None:
        self._is_reading = True
        self._settle_positions()
        for partition in self._partitions:
            self._ask(partition)

    def _settle_positions(self) -> None:
        """Say where each partition goes on, and note what its journal has lost."""
        for partition, bounds in self._bounds.items():
            if partition in self._saved:
                self._go_on(partition, self._saved[partition], bounds)
            elif partition not in self._sequences:
                self._sequences[partition] = bounds.oldest if self._start == "oldest" else bounds.newest + 1
        self._saved = {}

    def _go_on(self, partition: int, sequence: int, bounds: Any) -> None:
        """Go on at a sequence; at the oldest event if the journal does not have it, or is another one by now."""
        is_another = sequence > bounds.newest + 1
        if is_another:
            self.context.logger.warning(
                "%s, partition %d: the journal ends at %d and was read up to %d: the map was destroyed, or its members "
                "were all lost; what is there now is read from its beginning",
                *(self._what, partition, bounds.newest, sequence - 1),
            )
        if is_another or bounds.oldest > sequence:
            missing = 0 if is_another else bounds.oldest - sequence
            self._lost.append((partition, _lost(partition, sequence, missing)))
            sequence = bounds.oldest
        self._sequences[partition] = sequence

    def _events(self, partition: int, asked: int, future: Any) -> list[MapEvent]:
        """Return the events of a reply. Where the member was lost there are none, and it is asked again."""
        from hazelcast.errors import OperationTimeoutError

        try:
            changes = future.result()
        except OperationTimeoutError:  # it has waited for a change for so long that the client does not repeat it
            return []
        except Exception as error:
            raise self._failure(error) from None
        if changes.first < asked:  # the member had nothing at this place, and has begun with the next change
            [bounds] = self._bounds_now(partition)
            self._go_on(partition, asked, bounds)
            return []
        events = [
            MapEvent(kind, key, old, new, partition, sequence) for kind, key, old, new, sequence in changes.events
        ]
        if changes.first > asked:
            events.insert(0, _lost(partition, asked, changes.first - asked))
        self._sequences[partition] = changes.following
        return events

    def _ask(self, partition: int) -> None:
        from shmjet.processors.hazelcast.protocol import read_journal

        sequence = self._sequences[partition]

        def arrived(future: Any) -> None:  # in a thread of the client
            self._came.append(_Came(partition, sequence, future))
            self._wake_up()

        read_journal(self._map, partition, sequence, AT_ONCE).add_done_callback(arrived)

    def _bounds_now(self, partition: int) -> list[Any]:
        try:
            return self._asked_bounds([partition])
        except Exception as error:
            raise self._failure(error) from None

    def _asked_bounds(self, partitions: Sequence[int]) -> list[Any]:
        from shmjet.processors.hazelcast.protocol import journal_bounds

        return Reply([journal_bounds(self._map, partition) for partition in partitions]).results()

    def _failure(self, error: Exception) -> Exception:
        from hazelcast.errors import UnsupportedOperationError

        assert self._connection is not None
        if isinstance(error, UnsupportedOperationError):
            return ConfigError(
                f"{self._connection.where}: the map has no event journal in cluster {self._settings.cluster_name!r}; "
                "enable it in the members' configuration: map > event-journal > enabled"
            )
        return self._connection.failure(error)

    def saved_positions(self) -> Iterable[tuple[Any, Any]]:
        """Return the next sequence of each partition."""
        if not self._is_reading:
            self._settle_positions()
        return [(BroadcastKey(("journal", self.context.global_index)), tuple(self._sequences.items()))]

    def restore_positions(self, entries: list[tuple[Any, Any]]) -> None:
        """Take how far the processors have read."""
        for _, sequences in entries:
            self._saved.update((partition, at) for partition, at in sequences if partition in self._bounds)

    def close(self) -> None:
        """End the client; requests that wait at members end with it."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            self._wake_up = _nothing
            connection.close()


def _lost(partition: int, sequence: int, count: int) -> MapEvent:
    return MapEvent("lost", None, None, None, partition, sequence, count)


def _nothing() -> None:
    """Wake nothing up: the processor has ended."""
