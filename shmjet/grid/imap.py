"""IMap: a dictionary that all processes of an instance share.

A map is spread over the instance's partitions by the canonical bytes of its keys, as partitioned edges are, and the
partitions over a few environments that can be written at the same time. Each operation on one key is atomic;
everything that spans several keys is not, and says so. Where Hazelcast's IMap and Python's `MutableMapping`
disagree, the Python method keeps Python's meaning (`pop`, `setdefault`) and the Hazelcast method its own (`put`).

What users are promised is said here; `map_entries`, `map_scan` and `map_journal` do it. Must not know transactions, nor
how an entry is encoded.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, MutableMapping, ValuesView
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, cast

from shmjet.core.durations import Duration, milliseconds
from shmjet.core.map_config import PLAIN, MapConfig
from shmjet.grid.disk_errors import DiskErrors
from shmjet.grid.entries import EntryCodec
from shmjet.grid.journal import Journal, Listeners
from shmjet.grid.map_entries import MapEntries
from shmjet.grid.map_event import MapEvent, Position
from shmjet.grid.map_journal import MapJournal
from shmjet.grid.map_scan import MapScan
from shmjet.grid.read_ahead import ReadAhead
from shmjet.grid.table import Table
from shmjet.grid.times import LONGEST_NS

if TYPE_CHECKING:
    from shmjet.grid.journal_reader import JournalReader

K = TypeVar("K")
V = TypeVar("V")

_SLICE = 1 << 16
"""Pairs that put_all() sorts before it writes them: the more, the fewer pages each transaction touches."""
_MISSING: Any = object()


class IMap(MutableMapping[K, V]):
    """A map shared by the client, all workers and all jobs of an instance; get one with `jet.get_map(name)`.

    Keys are what partitioned edges take (text, numbers, bytes, tuples, dates and what has `__partition_key__`), and
    keys that are equal in Python are one key. Values are anything that can be pickled; each read gives a fresh copy, so
    a change to a value is stored only when it is put again. Neither may be None.

    Iteration is streamed in pages and is not a snapshot: an entry that is there from beginning to end appears exactly
    once, an entry that comes or goes meanwhile at most once. It may change the map. The order is that of storage.

    One operation on one key is atomic over all processes, `put_if_absent`, `setdefault` and `pop` included;
    `counts[key] += 1` is two operations, between which others may write.

    Any operation may raise `GridError` when the instance is gone, and a write `GridFullError`. In a cluster
    `MemberLostError` says that the member which had the map was lost meanwhile.

    Example:
        >>> counts = jet.get_map("counts")                  # doctest: +SKIP
        >>> counts.put_all({"a": 1, "b": 2})                # doctest: +SKIP
        >>> counts["a"], sorted(counts), dict(counts)       # doctest: +SKIP
        (1, ['a', 'b'], {'a': 1, 'b': 2})
    """

    def __init__(
        self,
        name: str,
        tables: list[Table],
        codec: EntryCodec,
        config: MapConfig = PLAIN,
        listeners: Listeners | None = None,
    ) -> None:
        self._name = name
        self._tables = tables
        self._codec = codec
        self._ahead: ReadAhead | None = None
        self._entries = MapEntries(tables, codec, config)
        self._scan = MapScan(tables, codec, self._entries)
        self._journal = MapJournal(name, repr(self), tables, codec, config, listeners or Listeners())

    @property
    def name(self) -> str:
        """The map's name."""
        return self._name

    @property
    def local_partitions(self) -> tuple[int, ...]:
        """The partitions that are kept on this member, ascending."""
        return tuple(range(self._codec.partition_count))

    # One key

    def __getitem__(self, key: K) -> V:
        ahead = self._ahead
        if ahead is not None:
            value = ahead.get(key, _MISSING)
            if value is not _MISSING:
                return value  # type: ignore[no-any-return]
            if ahead.is_useless:
                self._ahead = None
        value = self._entries.get(key, _MISSING)
        if value is _MISSING:
            raise KeyError(key)
        return value  # type: ignore[no-any-return]

    def get(self, key: K, default: Any = None) -> Any:
        """Return the value of `key`, or `default`.

        Raises:
            TypeError: a value of this type cannot be a key.

        Example:
            >>> counts.get("missing", 0)                    # doctest: +SKIP
            0
        """
        return self._entries.get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __setitem__(self, key: K, value: V) -> None:
        self._entries.set(key, value)

    def put(self, key: K, value: V, ttl: Duration | None = None) -> V | None:
        """Store `value` and return the value that it replaces, or None; `map[key] = value` spares reading the old one.

        Args:
            key: its place.
            value: what is stored.
            ttl: how long the entry lives, in seconds or as a `timedelta`, rounded to milliseconds, at least one; then
                it is gone as if it had been removed. None: until it is removed. Every write sets this anew.

        Raises:
            TypeError: key or value is None, cannot be a key, or cannot be pickled (`ItemEncodingError`); `ttl` is not a
                duration.
            ConfigError: `ttl` is below a millisecond, or not finite.
            GridError: `value` is stored, and the value that was there cannot be unpickled here.

        Example:
            >>> counts.put("a", 3)                          # doctest: +SKIP
            1
            >>> counts.put("session", "Ann", ttl=60)        # doctest: +SKIP
        """
        lives = 0 if ttl is None else min(LONGEST_NS, milliseconds("ttl", ttl) * 1_000_000)
        return cast("V | None", self._entries.put(key, value, lives))

    def replace(self, key: K, value: V) -> V | None:
        """Store `value` if the key has one, which is returned; else store nothing and return None. Atomic.

        Raises:
            TypeError: as `put`.

        Example:
            >>> counts.replace("missing", 3), "missing" in counts  # doctest: +SKIP
            (None, False)
        """
        return cast("V | None", self._entries.replace(key, value))

    def compute(self, key: K, fn: Callable[[V | None], V | None]) -> V | None:
        """Store `fn(value)`, atomically: if the entry is changed meanwhile, `fn` is called again with what it is then.

        `fn` runs in this process and without a lock, so it may take its time and use other maps, and it should have no
        other effects, because it may run several times.

        Args:
            key: its place.
            fn: gets the value, or None when there is none, and returns the new one; None removes the entry.

        Returns:
            what `fn` has returned.

        Raises:
            TypeError: as `put`.

        Example:
            >>> counts.compute("a", lambda count: (count or 0) + 1)  # doctest: +SKIP
            4
        """
        return cast("V | None", self._entries.compute(key, fn))

    def put_if_absent(self, key: K, value: V) -> V | None:
        """Store `value` unless the key has one; return the value that was there, or None. Atomic.

        Example:
            >>> counts.put_if_absent("a", 7)                # doctest: +SKIP
            3
        """
        return cast("V | None", self._entries.put_if_absent(key, value))

    def setdefault(self, key: K, default: Any = None) -> V:
        """Return the value of `key`; when it has none, store `default` and return that. Atomic."""
        found = self.put_if_absent(key, default)
        return cast(V, default if found is None else found)

    def remove(self, key: K) -> V | None:
        """Take `key` out and return its value, or None when it has none. Atomic; raises as `pop`."""
        return cast("V | None", self.pop(key, None))

    def pop(self, key: K, default: Any = _MISSING) -> Any:
        """Take `key` out and return its value, or `default`; without a default a missing key is a KeyError. Atomic.

        An entry whose value cannot be unpickled here is put back, and what unpickling raised is raised.

        Raises:
            GridError: it could not be unpickled, and not be put back: another one was put meanwhile, or its `ttl` is
                over.
        """
        value = self._entries.pop(key, _MISSING)
        if value is not _MISSING:
            return value
        if default is _MISSING:
            raise KeyError(key)
        return default

    def __delitem__(self, key: K) -> None:
        if not self._entries.remove(key):
            raise KeyError(key)

    def popitem(self) -> tuple[K, V]:
        """Take some entry out and return it, as (key, value); KeyError when the map is empty. Atomic."""
        for key in self:
            errors = DiskErrors()
            value = errors.result_of(partial(self.pop, key, _MISSING))
            if value is not _MISSING:
                errors.report((key, value))
                return key, value
        raise KeyError(f"{self!r} is empty")

    # Many keys

    def put_all(self, pairs: Mapping[K, V] | Iterable[tuple[K, V]]) -> None:
        """Store many entries: the fast way. Of equal keys the last one counts.

        Not atomic as a whole: others see the entries arrive in portions, and an error in one of the values leaves what
        was stored before it.

        Args:
            pairs: a mapping or an iterable of (key, value), consumed piece by piece.

        Raises:
            TypeError: as `put`.
        """
        source = iter(pairs.items() if isinstance(pairs, Mapping) else pairs)
        errors = DiskErrors()
        while portion := list(islice(source, _SLICE)):
            errors.result_of(partial(self._entries.put_portion, portion))
        errors.report()

    def _put_once(self, values: Mapping[K, V | None], marker: bytes, mark: int) -> None:
        """Put entries, and remove those whose value is None, unless that is done; in one transaction per environment.

        For sinks that repeat it after a restart.

        Args:
            values: at most a few thousand.
            marker, mark: see `table.Once`.
        """
        self._entries.put_once(values, marker, mark)

    def update(self, other: Any = (), /, **more: Any) -> None:
        """Put all entries of `other` (a mapping, or pairs) and of `more` in, as `dict.update`, through `put_all`."""
        if not isinstance(other, Mapping) and hasattr(other, "keys"):
            other = [(key, other[key]) for key in other.keys()]  # noqa: SIM118 - this is what dict.update() asks for
        pairs = other.items() if isinstance(other, Mapping) else other
        self.put_all(chain(pairs, cast("dict[K, V]", more).items()) if more else pairs)

    def get_all(self, keys: Iterable[K]) -> dict[K, V]:
        """Return a dict of those of `keys` that are there.

        Example:
            >>> counts.get_all(["a", "missing"])             # doctest: +SKIP
            {'a': 3}
        """
        return self._entries.get_all(keys)

    def clear(self) -> None:
        """Remove all entries. Atomic for each environment; entries that others put meanwhile may stay."""
        self._drop(keep_name=True)

    def destroy(self) -> None:
        """Remove the map; its name may be used again at once, also through this object."""
        self._drop(keep_name=False)

    def _drop(self, *, keep_name: bool) -> None:
        errors = DiskErrors()
        for table in self._tables:
            errors.result_of(partial(table.drop, keep_name=keep_name))
        errors.report()

    # All keys

    def size(self) -> int:
        """Return the number of entries; it is kept, not counted."""
        return sum(table.size() for table in self._tables)

    def partition_sizes(self) -> dict[int, int]:
        """Return the number of entries by partition, without partitions that are empty; it is kept, not counted.

        An entry with a `ttl` counts until a write has removed it.
        """
        sizes: dict[int, int] = {}
        for table in self._tables:
            sizes.update((partition, size) for partition, size in table.sizes().items() if size)
        return dict(sorted(sizes.items()))

    def __len__(self) -> int:
        return self.size()

    def __iter__(self) -> Iterator[K]:
        knows = isinstance(self._tables[0].announced, memoryview)  # dict(map) asks for all keys, then for each value
        self._ahead = ReadAhead(self._entries.locate, self._codec, knows_commits=knows)
        return self._scan.keys()

    def keys(self) -> KeysView[K]:
        """Return a view of the keys, streamed; values are not looked at."""
        return _Keys(self)

    def items(self) -> ItemsView[K, V]:
        """Return a view of the (key, value) pairs, streamed."""
        return _Items(self)

    def values(self) -> ValuesView[V]:
        """Return a view of the values, streamed."""
        return _Values(self)

    def items_of(self, partitions: Iterable[int]) -> Iterator[tuple[K, V]]:
        """Yield the (key, value) pairs of some partitions, streamed: what a parallel source reads.

        Raises:
            ValueError: a partition does not exist.
        """
        return self._scan.pairs_of(partitions)

    # Changes

    def journal(self, start: str = "oldest") -> Journal:
        """Return an endless iterator of the changes of the map, which waits for the next one.

        Changes of one partition come in their order; so do those of one key. The map keeps the last
        `MapConfig.journal_capacity` changes: a reader that was overtaken gets an event of kind "lost" with their number
        for each partition.

        Args:
            start: "oldest": with the first change of the map, and what the journal does not have any more is told as
                lost; "latest": with the first change from now on.

        Returns:
            an iterator of `MapEvent`; its `close()` ends it, from another thread too.

        Raises:
            ConfigError: the map has no journal; ValueError: `start` is another text.

        Iterating raises `GridError` when the map was destroyed, and `MemberLostError` when its member was lost. What
        unpickling raises is raised, and the next step begins with the same changes: nothing is left out.

        Example:
            >>> for event in counts.journal():              # doctest: +SKIP
            ...     print(event.kind, event.key, event.old, event.new)
        """
        return self._journal.follow(start)

    def add_listener(self, fn: Callable[[MapEvent], object], key: K | None = None) -> Callable[[], None]:
        """Call a function with each change from now on, in a thread of this process that reads the journal.

        An error that it raises is logged, `SystemExit` too, and the next change comes. The listener ends with the
        instance, whose end waits some seconds for a call that is under way.

        Args:
            fn: gets a `MapEvent`; one of kind "lost" when it was too slow, or this process cannot unpickle a key or
                value of the change, which is logged.
            key: only changes of this entry, and lost ones of its partition; None: all.

        Returns:
            a function that removes the listener; after it has returned `fn` is not called any more.

        Raises:
            ConfigError: the map has no journal; TypeError: `fn` cannot be called, or `key` cannot be a key.

        Example:
            >>> remove = counts.add_listener(print)         # doctest: +SKIP
        """
        return self._journal.listen(fn, key)

    def _journal_reader(
        self, start: str, share: tuple[int, int] = (0, 1), positions: Mapping[int, Position] | None = None
    ) -> JournalReader:
        """Return what reads the journal; for sources, see `MapJournal.reader`."""
        return self._journal.reader(start, share, positions)

    def __repr__(self) -> str:
        return f"IMap({self._name!r})"

    def _repr_html_(self) -> str:
        """Show some of its entries, in a notebook."""
        from shmjet.data.html_tables import MOST_ROWS
        from shmjet.grid.collection_html import collection_html

        return collection_html(repr(self), lambda: (len(self), list(islice(self.items(), MOST_ROWS))), is_map=True)

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be pickled; processors get it with context.grid.get_map({self._name!r})")


class _Keys(KeysView[K], Generic[K]):
    _mapping: IMap[K, Any]

    def __iter__(self) -> Iterator[K]:
        return iter(self._mapping)


class _Items(ItemsView[K, V], Generic[K, V]):
    _mapping: IMap[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return self._mapping._scan.pairs()


class _Values(ValuesView[V], Generic[V]):
    _mapping: IMap[Any, V]

    def __iter__(self) -> Iterator[V]:
        return self._mapping._scan.values()
