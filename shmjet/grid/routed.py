"""The maps and lists of a cluster, which lie on all its members: `IMap` and `IList` over `RoutedTable`.

A map without journal and limit is *spread*: each entry lies in the partition of its key. A list, and a map with a
journal or a limit, lies at *home*: all of it in the partition of its name. Partitions move among members while this is
used.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from shmjet._native import partition_of
from shmjet.core.keys import canonical_bytes
from shmjet.core.map_config import MapConfig, config_of
from shmjet.grid.blobs import INLINE_LIMIT, BlobStore, BlobVanishedError
from shmjet.grid.carried import CarryingCodec, place_of
from shmjet.grid.disk_errors import DiskErrors
from shmjet.grid.divided_table import Count
from shmjet.grid.entries import EntryCodec
from shmjet.grid.errors import GridError, PartitionMovedError
from shmjet.grid.ilist import IList
from shmjet.grid.imap import IMap
from shmjet.grid.journal import Listeners
from shmjet.grid.layout import LIST_RECORD, MAP_RECORD, record_key
from shmjet.grid.map_entries import MapEntries
from shmjet.grid.map_scan import MapScan
from shmjet.grid.operations import DeleteBlobs, Describe, KeepClass, LoadClass
from shmjet.grid.ownership import MOVED
from shmjet.grid.pickles import ObjectCodec
from shmjet.grid.remote import PORTION_ENTRIES, ask, read_blob
from shmjet.grid.routed_table import RoutedTable
from shmjet.grid.routes import Carrier, Routes
from shmjet.grid.scan import Page
from shmjet.grid.side_by_side import SideBySide, one_after_the_other
from shmjet.grid.store import Opened

if TYPE_CHECKING:
    from typing_extensions import Buffer

K = TypeVar("K")
V = TypeVar("V")

_REFUSED_S, _PAUSE_S = 2.0, 0.02
"""For how long members that refuse to keep a class are asked again, and how often."""


class RoutedGrid:
    """See the module. Fulfils `shmjet.core.context.DataGrid`.

    Args:
        carrier: leads to members.
        store: of the nearest member, where this process can open it.
        settle, check: see `Routes`.
        requests: how many of one call may be under way at the same time.
    """

    def __init__(
        self,
        carrier: Carrier,
        store: Opened | None = None,
        settle: Callable[[int, int], None] | None = None,
        check: Callable[[], None] | None = None,
        requests: int = 1,
    ) -> None:
        self._side_by_side = None if requests == 1 else SideBySide(requests)
        self._routes = Routes(carrier, store, settle, check)
        self._objects = ObjectCodec(INLINE_LIMIT, self._load_class, self._keep_class)
        self._codec: EntryCodec | None = None
        self._environments = 0
        self._listeners = Listeners()
        self._maps: dict[str, MapConfig] = {}

    def get_map(self, name: str) -> IMap[Any, Any]:
        """Return the map `name`; raises as `Grid.get_map`."""
        key, codec = record_key(MAP_RECORD, name), self._known()
        config = config_of(name, self._maps)
        if config.is_plain:
            do_all = one_after_the_other if self._side_by_side is None else self._side_by_side.do_all
            return SpreadMap(name, self._tables(key, None), codec, self._listeners, self._routes, do_all)
        home = partition_of(name, codec.partition_count, canonical_bytes)
        tables: list[Any] = self._tables(key, home)
        found: HomeMap[Any, Any] = HomeMap(name, tables, codec, config, self._listeners)
        found.lie_in(home, self._routes)
        return found

    def get_list(self, name: str) -> IList[Any]:
        """Return the list `name`; raises as `Grid.get_list`."""
        key, codec = record_key(LIST_RECORD, name), self._known()
        home = partition_of(name, codec.partition_count, canonical_bytes)
        table: Any = RoutedTable(self._routes, home % self._environments, self._environments, key, home)
        return IList(name, table, codec)

    def _tables(self, key: bytes, home: int | None) -> list[RoutedTable]:
        count = self._environments
        return [RoutedTable(self._routes, index, count, key, home) for index in range(count)]

    def end_listeners(self) -> None:
        """End the listeners of maps got from here."""
        self._listeners.close()

    def close(self) -> None:
        """End the listeners, and what is under way."""
        self.end_listeners()
        if self._side_by_side is not None:
            self._side_by_side.close()

    def _known(self) -> EntryCodec:
        """Ask what the stores are like, the first time."""
        if self._codec is None:
            described = self._routes.until_found(
                lambda: ask(self._routes.to(""), Describe(), tuple[int, int, dict[str, MapConfig]])
            )
            partitions, self._environments, self._maps = described
            blobs: Any = RoutedBlobs(self._routes)
            self._codec = CarryingCodec(self._objects, blobs, partitions)
        return self._codec

    def forget(self) -> None:
        """Take that members may have gone, and their classes with them."""
        self._objects.forget_kept()

    def _load_class(self, class_id: str) -> bytes | None:
        for member in dict.fromkeys(("", *self._routes.fetched().members)):
            with contextlib.suppress(PartitionMovedError):
                found: bytes | None = ask(self._routes.to(member), LoadClass(class_id), bytes | None)  # type: ignore[arg-type]
                if found is not None:
                    return found
        return None

    def _keep_class(self, class_id: str, data: bytes) -> None:
        """Keep a class on all members; a member that comes later gets it with the first partition.

        Who has joined meanwhile may have got all classes before this one, so members are looked up until there are no
        others. A member that is leaving may refuse.
        """
        kept: set[str] = set()
        until = time.monotonic() + _REFUSED_S
        while missing := [member for member in self._routes.fetched().members if member not in kept]:
            for member in missing:
                with contextlib.suppress(PartitionMovedError):
                    ask(self._routes.to(member), KeepClass(class_id, data), None)
                    kept.add(member)
            if not kept.issuperset(missing):
                if time.monotonic() > until:
                    break
                time.sleep(_PAUSE_S)
        if not kept:
            raise GridError("no member can be reached that would keep a class")


class RoutedBlobs(BlobStore):
    """The files of large values on all members: read and deleted where their partition is.

    Args:
        routes: to the members.
    """

    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    def read(self, name: bytes) -> list[bytearray]:
        """See `BlobStore.read`."""
        place = place_of(name)

        def look() -> list[bytearray]:
            owner = self._routes.owner(place)
            try:
                return read_blob(self._routes.to(owner), name)
            except BlobVanishedError:
                self._routes.forget()
                if self._routes.owner(place) != owner:
                    raise PartitionMovedError(MOVED) from None
                raise

        return self._routes.until_found(look)

    def delete(self, names: Iterable[bytes]) -> None:
        """See `BlobStore.delete`."""
        wanted = [bytes(name) for name in names]
        for at in range(0, len(wanted), PORTION_ENTRIES):
            left = wanted[at : at + PORTION_ENTRIES]

            def work(left: list[bytes] = left) -> None:
                groups: dict[str, list[bytes]] = {}
                for name in left:
                    groups.setdefault(self._routes.owner(place_of(name)), []).append(name)
                for member, some in groups.items():
                    ask(self._routes.to(member), DeleteBlobs(some), None)
                    for name in some:
                        left.remove(name)

            if left:
                self._routes.until_found(work)

    def write(self, parts: Sequence[Buffer]) -> bytes:
        """Refuse: large values travel in their entries, see `carried`."""
        raise GridError("a large value of a cluster's map is written where its entry is")


class HomeMap(IMap[K, V]):
    """A map that lies in the partition of its name."""

    def lie_in(self, home: int, routes: Routes) -> None:
        """Note which partition that is."""
        self._home, self._routes = home, routes

    @property
    def local_partitions(self) -> tuple[int, ...]:
        """The partitions that are kept on this member: all or none."""
        owners = self._routes.fetched()
        is_here = owners.members[owners.primaries[self._home]] == owners.here
        return super().local_partitions if is_here else ()


class SpreadMap(IMap[K, V]):
    """A map that is spread over the members by its keys.

    Args:
        name: of the map.
        tables: of the map, one for each environment.
        codec: turns objects into entries.
        listeners: all that end together.
        routes: to the members.
        do_all: see `MapEntries`.
    """

    def __init__(
        self,
        name: str,
        tables: list[RoutedTable],
        codec: EntryCodec,
        listeners: Listeners,
        routes: Routes,
        do_all: Callable[[Sequence[Callable[[], None]]], None] = one_after_the_other,
    ) -> None:
        anys: list[Any] = list(tables)
        super().__init__(name, anys, codec, MapConfig(), listeners)
        self._entries = MapEntries(anys, codec, MapConfig(), do_all)
        self._scan = SpreadScan(tables, codec, self._entries)
        self._routed = tables
        self._routes = routes

    @property
    def local_partitions(self) -> tuple[int, ...]:
        """The partitions that are kept on this member, ascending."""
        owners = self._routes.fetched()
        here = owners.members.index(owners.here) if owners.here in owners.members else -1
        return tuple(partition for partition, place in enumerate(owners.primaries) if place == here)

    def size(self) -> int:
        """Return the number of entries; it is kept, not counted."""
        return sum(count.entries - count.ended for count in self._counts())

    def partition_sizes(self) -> dict[int, int]:
        """See `IMap.partition_sizes`."""
        return dict(sorted((count.partition, count.entries) for count in self._counts() if count.entries))

    def _counts(self) -> Iterator[Count]:
        return chain.from_iterable(table.counts().values() for table in self._routed)

    def clear(self) -> None:
        """Remove all entries, partition by partition; entries that others put meanwhile may stay."""
        errors = DiskErrors()
        for table in self._routed:
            errors.result_of(table.drop_spread)
        errors.report()

    def destroy(self) -> None:
        """Remove the map; its name may be used again at once, also through this object."""
        self.clear()


class SpreadScan(MapScan):
    """The streams of a spread map.

    Args:
        tables: of the map, one for each environment.
        codec: turns entries into objects.
        entries: where a value that was replaced meanwhile is looked up.
    """

    def __init__(self, tables: Sequence[RoutedTable], codec: EntryCodec, entries: MapEntries) -> None:
        anys: list[Any] = list(tables)
        super().__init__(anys, codec, entries)
        self._routed = tables

    def _pages_of(self, partitions: Iterable[int]) -> Iterator[Page]:
        by_environment: dict[int, list[int]] = {}
        for partition in partitions:
            if not 0 <= partition < self._codec.partition_count:
                raise ValueError(f"partition {partition} is not one of 0 to {self._codec.partition_count - 1}")
            by_environment.setdefault(partition % len(self._routed), []).append(partition)
        yield from self._read(by_environment)

    def _all(self) -> Iterator[Page]:
        yield from self._read({index: list(table.partitions) for index, table in enumerate(self._routed)})

    def _read(self, wanted: dict[int, list[int]]) -> Iterator[Page]:
        """Read partitions of environments; what is lost from now on is noticed."""
        lineages = {
            count.partition: count.lineage for index in wanted for count in self._routed[index].counts().values()
        }
        for index, partitions in wanted.items():
            yield from self._routed[index].pages_of(partitions, lineages)
