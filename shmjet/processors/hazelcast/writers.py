"""Sinks: maps and lists of a Hazelcast cluster, written in batches. After Jet's `writeRemoteMapP`, `writeRemoteListP`.

One write is under way at a time, so that writes are in order; meanwhile items are gathered and serialized for the next
one. All writes are through before a barrier is. Must not know the messages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final

from shmjet.core.inbox import Inbox
from shmjet.core.latency_policy import policy_in
from shmjet.core.processor import ProcessorContext
from shmjet.data.errors import ProcessorError
from shmjet.processors.general.base import BulkProcessor
from shmjet.processors.hazelcast.connection import Connection, Reply, connect
from shmjet.processors.hazelcast.settings import ClusterSettings

_LOOK_AGAIN: Final = 0.1
"""Seconds after which a write that is under way is looked at, when nothing else comes: it may have failed."""


class RemoteWriter(BulkProcessor):
    """Gathers items and writes them together: as many, and as soon, as the job's latency policy says.

    Args:
        name: of the collection.
        settings: how to reach the cluster.
    """

    is_cooperative = False
    what = ""
    """What it writes, for messages."""

    def __init__(self, name: str, settings: ClusterSettings) -> None:
        self._name = name
        self._settings = settings
        self._connection: Connection | None = None

    def start(self, context: ProcessorContext) -> None:
        """Connect."""
        policy = policy_in(context)
        self._most, self._delay_s = policy.write_items, policy.write_delay_ns / 1e9
        self._buffer: list[Any] = []
        self._due = 0.0
        self._ready: Callable[[], list[Any]] | None = None
        self._under_way: Reply | None = None
        self.next_call = math.inf
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

    def prepare(self, items: list[Any]) -> Callable[[], list[Any]]:
        """Serialize a list of items. Returns what writes them, which returns futures of the client.

        Raises what the client cannot write.
        """
        raise NotImplementedError

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Gather items up to one batch, and serialize and write it when it is full."""
        if not self._buffer:
            self._due = monotonic() + self._delay_s
        self._buffer += inbox.take(self._most - len(self._buffer))
        if len(self._buffer) >= self._most:
            self._begin()
        self.next_call = None if inbox else self._wait()

    def try_process(self) -> bool:
        """Begin to write what has waited long enough."""
        assert self._connection is not None
        if self._send(self._connection.wait):
            if self._buffer and monotonic() >= self._due:
                self._begin()
            elif self._under_way is not None:
                self._is_written(0)
        self.next_call = self._wait()
        return True

    def save_to_snapshot(self) -> bool:
        """Write what came before the barrier."""
        return self._write_all()

    def finish(self) -> bool:
        """Write the rest."""
        if not self._write_all():
            return False
        self.close()
        return True

    def close(self) -> None:
        """End the client."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _wait(self) -> float:
        """Return the seconds until there is something to do."""
        if self._ready is not None:
            return 0.0  # it waits for the write that is under way
        if self._buffer:
            return max(self._due - monotonic(), 0.0)
        return math.inf if self._under_way is None else _LOOK_AGAIN

    def _write_all(self) -> bool:
        assert self._connection is not None
        return self._begin() and self._send(self._connection.wait) and self._is_written(self._connection.wait)

    def _begin(self) -> bool:
        """Serialize the buffer, and begin to write it if the last write is through.

        Returns:
            False when what was serialized before still waits: then the buffer does, too.
        """
        connection = self._connection
        assert connection is not None
        if not self._send(connection.wait):
            return False
        if self._buffer:
            items, self._buffer = self._buffer, []
            try:
                self._ready = self.prepare(items)
            except Exception as error:
                raise connection.failure(error) from None
            self._send(0)
        return True

    def _send(self, seconds: float) -> bool:
        """Begin to write what is serialized, if the last write is through within so many seconds."""
        if self._ready is None:
            return True
        if not self._is_written(seconds):
            return False
        write, self._ready = self._ready, None
        try:
            futures = write()
        except Exception as error:
            assert self._connection is not None
            raise self._connection.failure(error) from None
        self._under_way = Reply(futures) if futures else None
        return True

    def _is_written(self, seconds: float) -> bool:
        """Wait for the write that is under way. Raises what has made it fail."""
        if self._under_way is None:
            return True
        if not self._under_way.wait(seconds):
            return False
        reply, self._under_way = self._under_way, None
        try:
            reply.results()
        except Exception as error:
            assert self._connection is not None
            raise self._connection.failure(error) from None
        return True

    def unwritable(self, kind: str, value: Any) -> ProcessorError | None:
        """Return what is wrong with a value, or None when the client can write it.

        Args:
            kind: what it is, "key" for example.
            value: what came.
        """
        assert self._connection is not None
        where = self._connection.where
        shown = f"{type(value).__name__} {value!r:.80}"
        if value is None:
            return ProcessorError(f"{where}: a {kind} is None, which Hazelcast has no place for; filter it out")
        try:
            self.to_data(value)
        except Exception as error:
            advice = (
                "integers are written as Java's int: use config={'default_int_type': IntType.LONG}, of hazelcast.config"
                if type(value) is int
                else "write numbers, str, bytes, lists, or what config has a serializer for"
            )
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            return ProcessorError(f"{where}: cannot write the {kind} {shown}: {text}; {advice}")
        return None

    def to_data(self, value: Any) -> Any:
        """Have the client serialize a value."""
        raise NotImplementedError


class RemoteMapWriter(RemoteWriter):
    """Puts items into a map."""

    what = "remote map"

    def __init__(
        self,
        name: str,
        settings: ClusterSettings,
        key_fn: Callable[[Any], Any] | None,
        value_fn: Callable[[Any], Any] | None,
    ) -> None:
        super().__init__(name, settings)
        self._key_fn = key_fn
        self._value_fn = value_fn

    def open(self, connection: Connection) -> None:
        """Open the map."""
        from shmjet.processors.hazelcast.protocol import prepare_put_all

        self._prepare_put_all = prepare_put_all
        self._map = connection.client.get_map(self._name)

    def prepare(self, items: list[Any]) -> Callable[[], list[Any]]:
        """Serialize entries."""
        key_fn, value_fn = self._key_fn, self._value_fn
        if key_fn is not None and value_fn is not None:
            items = [(key_fn(item), value_fn(item)) for item in items]
        try:
            ready = [self._prepare_put_all(self._map, entries) for entries in _as_dicts(items)]
        except Exception as error:
            raise self._explained(items) or error from None
        return lambda: [future for write in ready for future in write()]

    def _explained(self, items: list[Any]) -> ProcessorError | None:
        """Return what is wrong with the first item that cannot be put."""
        assert self._connection is not None
        for item in items:
            if not _is_pair(item):
                return ProcessorError(
                    f"{self._connection.where}: expected (key, value) items, got {type(item).__name__} {item!r:.80}; "
                    "give a key_fn and a value_fn"
                )
            wrong = self.unwritable("key", item[0]) or self.unwritable("value", item[1])
            if wrong is not None:
                return wrong
        return None

    def to_data(self, value: Any) -> Any:
        """Have the client serialize a value."""
        return self._map._to_data(value)


class RemoteListWriter(RemoteWriter):
    """Appends items to a list."""

    what = "remote list"

    def open(self, connection: Connection) -> None:
        """Open the list."""
        self._list = connection.client.get_list(self._name)

    def prepare(self, items: list[Any]) -> Callable[[], list[Any]]:
        """Leave it to the client, which serializes as it sends."""

        def write() -> list[Any]:
            try:
                return [self._list.add_all(items)]
            except Exception as error:
                wrong = (self.unwritable("item", item) for item in items)
                raise next(filter(None, wrong), error) from None

        return write

    def to_data(self, value: Any) -> Any:
        """Have the client serialize a value."""
        return self._list._to_data(value)


def _as_dicts(items: Sequence[tuple[Any, Any]]) -> list[dict[Any, Any]]:
    """Return entries as dicts for `put_all`: one, unless keys of several types are equal in Python and not in Java.

    Of the same key the last value stays.
    """
    if {*map(type, items)} != {tuple} and not all(map(_is_pair, items)):
        raise TypeError("expected (key, value) items")
    entries = dict(items)
    if len(entries) == len(items):
        return [entries]
    by_type: dict[type, dict[Any, Any]] = {}
    for key, value in items:
        by_type.setdefault(type(key), {})[key] = value
    return list(by_type.values())


def _is_pair(item: Any) -> bool:
    return isinstance(item, Sequence) and not isinstance(item, str | bytes) and len(item) == 2
