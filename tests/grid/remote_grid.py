"""Maps and lists over the operations of one store: what `RoutedGrid` does with several, without its search for one."""

from __future__ import annotations

from typing import Any

from shmjet.core.map_config import MapConfig, config_of
from shmjet.grid import IList, IMap
from shmjet.grid.blobs import INLINE_LIMIT
from shmjet.grid.entries import EntryCodec
from shmjet.grid.journal import Listeners
from shmjet.grid.layout import LIST_RECORD, MAP_RECORD, record_key
from shmjet.grid.operations import Describe, KeepClass, LoadClass
from shmjet.grid.pickles import ObjectCodec
from shmjet.grid.remote import Call, NumberedCalls, RemoteBlobs, RemoteTable, ask


class RemoteGrid:
    """The maps and lists of a store, seen from where it is not.

    Args:
        call: carries operations. Raises what the other side raised.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self._changes = NumberedCalls(call)
        self._codec: EntryCodec | None = None
        self._objects = ObjectCodec(INLINE_LIMIT, self._load_class, self._keep_class)
        self._environments = 0
        self._listeners = Listeners()
        self._maps: dict[str, MapConfig] = {}

    def get_map(self, name: str) -> IMap[Any, Any]:
        """Return the map `name`; raises as `Grid.get_map`."""
        key, codec = record_key(MAP_RECORD, name), self._known()
        tables: list[Any] = [RemoteTable(self._call, self._changes, index, key) for index in range(self._environments)]
        return IMap(name, tables, codec, config_of(name, self._maps), self._listeners)

    def get_list(self, name: str) -> IList[Any]:
        """Return the list `name`; raises as `Grid.get_list`."""
        key, codec = record_key(LIST_RECORD, name), self._known()
        partition, _ = codec.key(name)
        table: Any = RemoteTable(self._call, self._changes, partition % self._environments, key)
        return IList(name, table, codec)

    def end_listeners(self) -> None:
        """End the listeners of maps got from here."""
        self._listeners.close()

    def close(self) -> None:
        """End the listeners; nothing else is open."""
        self.end_listeners()

    def _known(self) -> EntryCodec:
        """Ask what the store is like, the first time."""
        if self._codec is None:
            described = ask(self._call, Describe(), tuple[int, int, dict[str, MapConfig]])
            partitions, self._environments, self._maps = described
            blobs: Any = RemoteBlobs(self._call)
            self._codec = EntryCodec(self._objects, blobs, partitions)
        return self._codec

    def forget(self) -> None:
        """Take that another member may have the maps and lists now: it lacks the classes that were kept so far."""
        self._objects.forget_kept()

    def _load_class(self, class_id: str) -> bytes | None:
        return ask(self._call, LoadClass(class_id), bytes | None)  # type: ignore[arg-type]

    def _keep_class(self, class_id: str, data: bytes) -> None:
        ask(self._call, KeepClass(class_id, data), None)
