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
from shmjet.grid.map_event import MapEvent
from shmjet.processors.hazelcast.connection import Connection, Reply, connect
from shmjet.processors.hazelcast.settings import ClusterSettings
from shmjet.processors.time.timed_items import PartitionItems
from shmjet.processors.time.timed_source import TimedSource

AT_ONCE: Final = 256
"""Events in one reply, at most."""
_ENOUGH: Final = 2048
"""Events after which `read` returns."""


class _Place(NamedTuple):
    """A position in a partition: the cluster whose journal it is in, and the next sequence."""

    cluster: str
    sequence: int


class _Came(NamedTuple):
    """An answer, for a place, and the cluster that was there when it came."""

    partition: int
    asked: _Place
    cluster: str
    future: Any


class RemoteJournalProcessor(TimedSource):
    """Emits a `MapEvent` for each change.

    A partition's own sequences are its position, together with the cluster's identity: a cluster that has lost all its
    members begins to count anew. What the journal does not have any more is told as lost.

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
        self._saved: dict[int, _Place] = {}
        self._came: deque[_Came] = deque()
        self._wake_up = wake_up_in(context)
        self._connection = connect(context, self._settings, self._what)
        count = self._connection.partition_count
        self._partitions = list(range(context.global_index, count, context.total_parallelism))
        try:
            self._connection.client.lifecycle_service.add_listener(lambda state: self._wake_up())
            self._map = self._connection.client.get_map(self._name)
            self._bounds = dict(zip(self._partitions, self._asked_bounds(self._partitions), strict=True))
        except Exception as error:
            failure = self._failure(error)
            self.close()
            raise failure from None
        self._places: dict[int, _Place] = {}
        self._lost: list[tuple[int, MapEvent]] = []
        self._told: set[str] = set()
        """Clusters of which it was logged that their journals are others than the journals read before."""
        self._is_reading = False
        self.read_again = 0.0

    def first_partitions(self) -> Sequence[Hashable]:
        """Return the cluster's partitions, each with a time of its own; with the time of reading one has it for all."""
        if self.policy is None or self.policy.timestamps == "ingestion":
            return super().first_partitions() if self._partitions else ()
        return self._partitions

    def read(self) -> Iterable[PartitionItems]:
        """Return what has come, and ask for more."""
        if not self._is_reading:
            self._begin_reading()
        runs = [self._run(partition, [event]) for partition, event in self._lost]
        self._lost = []
        taken = 0
        while self._came and taken < _ENOUGH:
            came = self._came.popleft()
            if came.asked is not self._places[came.partition]:
                continue  # it was asked anew since
            events = self._events(came)
            if events:
                taken += len(events)
                runs.append(self._run(came.partition, events))
            self._ask(came.partition)
        if not self._came and self._cluster() != self._read_cluster:  # what the old one has answered counts
            self._begin_anew()
        self.read_again = 0.0 if self._came or self._lost else math.inf
        return runs

    def _run(self, partition: int, events: list[MapEvent]) -> PartitionItems:
        own = self.policy is not None and self.policy.timestamps != "ingestion"
        return PartitionItems(events, partition // self.context.total_parallelism if own else 0)

    def _begin_reading(self) -> None:
        self._is_reading = True
        self._read_cluster = self._cluster()
        self._settle_positions()
        for partition in self._partitions:
            self._ask(partition)

    def _begin_anew(self) -> None:
        """Go on in the journals of a cluster that has lost all its members.

        A request that has waited since before gets only what comes after it has reached the new cluster.
        """
        self._read_cluster = self._cluster()
        gone = [partition for partition in self._partitions if self._places[partition].cluster != self._read_cluster]
        for partition, bounds in zip(gone, self._bounds_now(gone), strict=True):
            self._go_on(partition, self._places[partition], bounds)
            self._ask(partition)

    def _settle_positions(self) -> None:
        """Say where each partition goes on, and note what its journal has lost."""
        for partition, bounds in self._bounds.items():
            if partition in self._saved:
                self._go_on(partition, self._saved[partition], bounds)
            elif partition not in self._places:
                sequence = bounds.oldest if self._start == "oldest" else bounds.newest + 1
                self._places[partition] = _Place(self._cluster(), sequence)
        self._saved = {}

    def _cluster(self) -> str:
        from shmjet.processors.hazelcast.protocol import cluster_id

        assert self._connection is not None
        return cluster_id(self._connection.client)

    def _go_on(self, partition: int, place: _Place, bounds: Any) -> None:
        """Go on at a place; at the oldest event if the journal does not have it, or is another one by now."""
        cluster, sequence = self._cluster(), place.sequence
        is_another = place.cluster != cluster or sequence > bounds.newest + 1
        if is_another and cluster not in self._told:
            self._told.add(cluster)
            self.context.logger.warning(
                "%s: partition %d was read up to %d of a journal that is gone: the map was destroyed, or all members "
                "were lost; what is there now is read from its beginning, in other partitions too",
                *(self._what, partition, sequence - 1),
            )
        if is_another or bounds.oldest > sequence:
            missing = 0 if is_another else bounds.oldest - sequence
            self._lost.append((partition, _lost(partition, sequence, missing)))
            sequence = bounds.oldest
        self._places[partition] = _Place(cluster, sequence)

    def _events(self, came: _Came) -> list[MapEvent]:
        """Return the events of an answer. Where the member was lost there are none, and it is asked again."""
        from hazelcast.errors import OperationTimeoutError

        partition, asked = came.partition, came.asked
        try:
            changes = came.future.result()
        except OperationTimeoutError:  # it has waited for a change for so long that the client does not repeat it
            return []
        except Exception as error:
            raise self._failure(error) from None
        if came.cluster != asked.cluster or changes.first < asked.sequence:
            # It is another journal, which had nothing at this place, maybe, and has begun with its next change.
            [bounds] = self._bounds_now([partition])
            self._go_on(partition, asked, bounds)
            return []
        events = [
            MapEvent(kind, key, old, new, partition, sequence) for kind, key, old, new, sequence in changes.events
        ]
        if changes.first > asked.sequence:
            events.insert(0, _lost(partition, asked.sequence, changes.first - asked.sequence))
        self._places[partition] = _Place(asked.cluster, changes.following)
        return events

    def _ask(self, partition: int) -> None:
        from shmjet.processors.hazelcast.protocol import cluster_id, read_journal

        assert self._connection is not None
        client = self._connection.client
        place = self._places[partition]

        def arrived(future: Any) -> None:  # in a thread of the client
            self._came.append(_Came(partition, place, cluster_id(client), future))
            self._wake_up()

        read_journal(self._map, partition, place.sequence, AT_ONCE).add_done_callback(arrived)

    def _bounds_now(self, partitions: Sequence[int]) -> list[Any]:
        try:
            return self._asked_bounds(partitions)
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
        """Return the place in each partition."""
        if not self._is_reading:
            self._settle_positions()
        positions = tuple((partition, *place) for partition, place in self._places.items())
        return [(BroadcastKey(("journal", self.context.global_index)), positions)]

    def restore_positions(self, entries: list[tuple[Any, Any]]) -> None:
        """Take how far the processors have read."""
        for _, positions in entries:
            self._saved.update(
                (partition, _Place(cluster, sequence))
                for partition, cluster, sequence in positions
                if partition in self._bounds
            )

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
