"""Sources that end: the entries of a map and the items of a list of a Hazelcast cluster, page by page.

Some pages are asked for ahead, so that the cluster works while what has come is emitted. A page is one reply and one
position: positions are pointers into the cluster's own tables, not counts, so they hold when a member is lost. After
Jet's `readRemoteMapP` and `streamRemoteListP`. Must not know the messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from typing import Any, Final

from shmjet.core.broadcast_key import BroadcastKey
from shmjet.core.processor import ProcessorContext
from shmjet.data.errors import ProcessorError
from shmjet.processors.general.base import BulkProcessor
from shmjet.processors.hazelcast.connection import Connection, Reply, connect
from shmjet.processors.hazelcast.settings import ClusterSettings

PAGE: Final = 2048
"""Entries in one reply, about."""
AHEAD: Final = 4
"""Pages that are asked for and not emitted yet, at most."""
_DONE: Final = None
"""The position of a share that has been emitted whole."""


class PagedReader(BulkProcessor):
    """Emits shares of a collection, page by page. A subclass says which shares there are, and asks for a page.

    Args:
        name: of the collection.
        settings: how to reach the cluster.
    """

    is_cooperative = False
    _saves_at_end = True
    what = ""
    """What it reads, for messages."""

    def __init__(self, name: str, settings: ClusterSettings) -> None:
        self._name = name
        self._settings = settings
        self._connection: Connection | None = None

    def start(self, context: ProcessorContext) -> None:
        """Connect."""
        self._saved: dict[Hashable, Any] = {}
        self._positions: dict[Hashable, Any] | None = None
        self._unasked: deque[tuple[Hashable, Any]] = deque()
        self._asked: deque[tuple[Hashable, Reply]] = deque()
        self._connection = connect(context, self._settings, f"{self.what} {self._name!r}")
        try:
            self.open(self._connection)
        except Exception as error:
            failure = self._connection.failure(error)
            self.close()
            raise failure from None

    def open(self, connection: Connection) -> None:
        """Open the collection."""
        raise NotImplementedError

    def first_shares(self) -> dict[Hashable, Any]:
        """Return the shares of this processor, each with the position of its beginning."""
        raise NotImplementedError

    def restored_shares(self, saved: dict[Hashable, Any]) -> dict[Hashable, Any]:
        """Return the shares of this processor with where to go on, out of the shares of all processors."""
        raise NotImplementedError

    def ask(self, share: Any, position: Any) -> Any:
        """Ask for a page of a share. Returns a future of the client."""
        raise NotImplementedError

    def page(self, share: Any, position: Any, answer: Any) -> tuple[list[Any], Any]:
        """Return the items of a page, and the position behind it; None at the end of the share."""
        raise NotImplementedError

    def complete(self) -> bool:
        """Emit a page, if one comes within a short wait; True when all shares are through."""
        positions = self._begun()
        if not self.emission.flush():
            return False
        self._ask_ahead(positions)
        if not self._asked:
            self.close()
            return True
        share, reply = self._asked[0]
        assert self._connection is not None
        if not reply.wait(self._connection.wait):
            return False
        self._asked.popleft()
        try:
            [answer] = reply.results()
            items, following = self.page(share, positions[share], answer)
        except Exception as error:
            raise self._connection.failure(error) from None
        positions[share] = following
        if following is not _DONE:
            self._unasked.appendleft((share, following))
        self._ask_ahead(positions)
        self.emission.put(items)
        return False

    def _begun(self) -> dict[Hashable, Any]:
        if self._positions is None:
            self._positions = self.restored_shares(self._saved) if self._saved else self.first_shares()
            self._unasked.extend((share, at) for share, at in self._positions.items() if at is not _DONE)
        return self._positions

    def _ask_ahead(self, positions: dict[Hashable, Any]) -> None:
        while self._unasked and len(self._asked) < AHEAD:
            share, position = self._unasked.popleft()
            self._asked.append((share, Reply([self.ask(share, position)])))

    def save_to_snapshot(self) -> bool:
        """Emit the page that was begun, then save the positions."""
        return self.emission.flush_rest() and super().save_to_snapshot()

    def saved_entries(self) -> Iterable[tuple[Any, Any]]:
        """Return how far each share has been read, as one entry."""
        return [(BroadcastKey(self.context.global_index), tuple(self._begun().items()))]

    def restore_entries(self, entries: list[tuple[Any, Any]]) -> None:
        """Take the positions of all processors."""
        for _, positions in entries:
            self._saved.update(positions)

    def close(self) -> None:
        """End the client."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class RemoteMapReader(PagedReader):
    """Emits (key, value) of its share of the partitions, or what a projection makes of the entries.

    Args:
        name: of the map.
        settings: how to reach the cluster.
        predicate, projection: of the client, or None.
    """

    state_kind = "remote_map"
    what = "remote map"

    def __init__(self, name: str, settings: ClusterSettings, predicate: Any, projection: Any) -> None:
        super().__init__(name, settings)
        self._predicate = predicate
        self._projection = projection

    def open(self, connection: Connection) -> None:
        """Open the map."""
        self._map = connection.client.get_map(self._name)
        self._partition_count = connection.partition_count

    def first_shares(self) -> dict[Hashable, Any]:
        """Return the processor's partitions."""
        from shmjet.processors.hazelcast.protocol import FIRST

        share = range(self.context.global_index, self._partition_count, self.context.total_parallelism)
        return dict.fromkeys(share, FIRST)

    def restored_shares(self, saved: dict[Hashable, Any]) -> dict[Hashable, Any]:
        """Return the processor's partitions with what has been read of them.

        Raises:
            ProcessorError: the cluster has another number of partitions than at the time of the snapshot.
        """
        if len(saved) != self._partition_count:
            raise ProcessorError(
                f"vertex {self.context.vertex_name!r}: remote map {self._name!r} had {len(saved)} partitions at the "
                f"time of the snapshot and has {self._partition_count} now; the positions in the snapshot do not hold "
                "any more"
            )
        return {partition: saved[partition] for partition in self.first_shares()}

    def ask(self, share: Any, position: Any) -> Any:
        """Ask for some entries of a partition."""
        from shmjet.processors.hazelcast.protocol import fetch_entries, fetch_with_query

        if self._predicate is None and self._projection is None:
            return fetch_entries(self._map, share, position, PAGE)
        from hazelcast.predicate import true
        from hazelcast.projection import multi_attribute

        predicate = true() if self._predicate is None else self._predicate
        projection = multi_attribute("__key", "this") if self._projection is None else self._projection
        return fetch_with_query(self._map, share, position, PAGE, projection, predicate)

    def page(self, share: Any, position: Any, answer: Any) -> tuple[list[Any], Any]:
        """Return its entries; None, which a projection may give, is left out."""
        items, following = answer
        if self._projection is not None:
            items = [item for item in items if item is not None]
        elif self._predicate is not None:
            items = [tuple(item) for item in items]
        return items, following


class RemoteListReader(PagedReader):
    """Emits the items that a list had at the beginning, in order; the first processor has all of them.

    A list lies on one member, whole. The position is an index and the size at the beginning.
    """

    state_kind = "remote_list"
    what = "remote list"

    def open(self, connection: Connection) -> None:
        """Open the list."""
        self._list = connection.client.get_list(self._name)
        self._size = self._list.size().result() if self.context.global_index == 0 else 0

    def first_shares(self) -> dict[Hashable, Any]:
        """Return the beginning of the list."""
        return {0: (0, self._size) if self._size else _DONE} if self.context.global_index == 0 else {}

    def restored_shares(self, saved: dict[Hashable, Any]) -> dict[Hashable, Any]:
        """Return how far the list has been read.

        Raises:
            ProcessorError: the list has become shorter.
        """
        if self.context.global_index:
            return {}
        position = saved[0]
        if position is not _DONE and position[1] > self._size:
            raise ProcessorError(
                f"vertex {self.context.vertex_name!r}: remote list {self._name!r} had {position[1]} items when the job "
                f"began and has {self._size} now; the positions in the snapshot do not hold any more"
            )
        return {0: position}

    def ask(self, share: Any, position: Any) -> Any:
        """Ask for some items."""
        at, size = position
        return self._list.sub_list(at, min(at + PAGE, size))

    def page(self, share: Any, position: Any, answer: Any) -> tuple[list[Any], Any]:
        """Return its items."""
        at, size = position
        return list(answer), (at + PAGE, size) if at + PAGE < size else _DONE
