"""IMap: a dictionary that all processes of an instance share.

A map is spread over the instance's partitions by the canonical bytes of its keys, as partitioned edges are, and the
partitions over a few environments that can be written at the same time. Each operation on one key is atomic;
everything that spans several keys is not, and says so. Where Hazelcast's IMap and Python's `MutableMapping`
disagree, the Python method keeps Python's meaning (`pop`, `setdefault`) and the Hazelcast method its own (`put`).
"""

from __future__ import annotations

import os
from collections.abc import (
    Callable,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    MutableMapping,
    ValuesView,
)
from itertools import chain, islice
from operator import itemgetter
from typing import Any, Generic, NoReturn, TypeVar, cast

from shmjet.core.durations import Duration, milliseconds
from shmjet.core.map_config import PLAIN, MapConfig
from shmjet.data.errors import ConfigError
from shmjet.data.html_tables import MOST_ROWS
from shmjet.grid.blobs import BlobVanishedError
from shmjet.grid.changes import Entry
from shmjet.grid.collection_html import collection_html
from shmjet.grid.entries import EntryCodec
from shmjet.grid.journal import STARTS, Journal, JournalReader, Listener, Listeners, Log, MapEvent, Position
from shmjet.grid.layout import PARTITION
from shmjet.grid.read_ahead import ReadAhead
from shmjet.grid.scan import Page, of_one_store
from shmjet.grid.table import Once, Table
from shmjet.grid.times import LONGEST_NS

K = TypeVar("K")
V = TypeVar("V")

_SLICE = 1 << 16
"""Pairs that put_all() sorts before it writes them: the more, the fewer pages each transaction touches."""
_MISSING: Any = object()
_first: Any = itemgetter(0)
_second: Any = itemgetter(1)


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
        self._listeners = listeners or Listeners()
        self._tables = tables
        self._codec = codec
        self._config = config
        self._heads: tuple[tuple[bytes, ...], list[bytes]] = ((), [])
        self._ahead: ReadAhead | None = None

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
        value = self.get(key, _MISSING)
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
        table, tail = self._locate(key)
        while True:
            stored = table.find(tail)
            if stored is None:
                return default
            try:
                return self._codec.value(stored)
            except BlobVanishedError:
                continue  # replaced or removed between the two reads

    def __contains__(self, key: object) -> bool:
        table, tail = self._locate(key)
        return table.find(tail) is not None

    def __setitem__(self, key: K, value: V) -> None:
        partition, tagged = self._codec.key(key)
        table = self._tables[partition % len(self._tables)]
        with _Encoded(self._codec, key, value) as new:
            prefix = table.prefix or table.prepare()
            table.write([(prefix + PARTITION.pack(partition) + tagged, new.stored)], with_blobs=bool(new.blobs))

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

        Example:
            >>> counts.put("a", 3)                          # doctest: +SKIP
            1
            >>> counts.put("session", "Ann", ttl=60)        # doctest: +SKIP
        """
        lives = 0 if ttl is None else min(LONGEST_NS, milliseconds("ttl", ttl) * 1_000_000)
        table, tail = self._locate(key)
        with _Encoded(self._codec, key, value) as new:
            old = table.replace(tail, new.stored, with_blobs=bool(new.blobs), ttl=lives)
        return None if old is None else self._taken(old)

    def replace(self, key: K, value: V) -> V | None:
        """Store `value` if the key has one, which is returned; else store nothing and return None. Atomic.

        Raises:
            TypeError: as `put`.

        Example:
            >>> counts.replace("missing", 3), "missing" in counts  # doctest: +SKIP
            (None, False)
        """
        table, tail = self._locate(key)
        with _Encoded(self._codec, key, value) as new:
            old = table.replace(tail, new.stored, with_blobs=bool(new.blobs), only_present=True)
            if old is None:
                new.discard()
        return None if old is None else self._taken(old)

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
        table, tail = self._locate(key)
        while True:
            stored = table.find(tail)
            try:
                old = None if stored is None else self._codec.value(stored)
            except BlobVanishedError:
                continue
            value = fn(old)
            if value is None:
                if stored is None or table.swap(tail, stored, None, with_blobs=False):
                    self._delete_files(stored)
                    return None
                continue
            with _Encoded(self._codec, key, value) as new:
                if table.swap(tail, stored, new.stored, with_blobs=bool(new.blobs)):
                    self._delete_files(stored)
                    return value
                new.discard()

    def put_if_absent(self, key: K, value: V) -> V | None:
        """Store `value` unless the key has one; return the value that was there, or None. Atomic.

        Example:
            >>> counts.put_if_absent("a", 7)                # doctest: +SKIP
            3
        """
        found = self.get(key, _MISSING)
        table, tail = self._locate(key)
        while found is _MISSING:
            with _Encoded(self._codec, key, value) as new:
                old = table.add(tail, new.stored, with_blobs=bool(new.blobs))
                if old is None:
                    return None
                new.discard()
            try:
                found = self._codec.value(old)
            except BlobVanishedError:
                found = self.get(key, _MISSING)
        return cast(V, found)

    def setdefault(self, key: K, default: Any = None) -> V:
        """Return the value of `key`; when it has none, store `default` and return that. Atomic."""
        found = self.put_if_absent(key, default)
        return cast(V, default if found is None else found)

    def remove(self, key: K) -> V | None:
        """Take `key` out and return its value, or None when it has none. Atomic."""
        return cast("V | None", self.pop(key, None))

    def pop(self, key: K, default: Any = _MISSING) -> Any:
        """Take `key` out and return its value, or `default`; without a default a missing key is a KeyError. Atomic."""
        table, tail = self._locate(key)
        old = table.pop(tail)
        if old is not None:
            return self._taken(old)
        if default is _MISSING:
            raise KeyError(key)
        return default

    def __delitem__(self, key: K) -> None:
        table, tail = self._locate(key)
        old = table.pop(tail)
        if old is None:
            raise KeyError(key)
        self._delete_files(old)

    def popitem(self) -> tuple[K, V]:
        """Take some entry out and return it, as (key, value); KeyError when the map is empty. Atomic."""
        for key in self:
            value = self.pop(key, _MISSING)
            if value is not _MISSING:
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
        while portion := list(islice(source, _SLICE)):
            self._put_portion(portion)

    def _put_once(self, values: Mapping[K, V | None], marker: bytes, mark: int) -> None:
        """Put entries, and remove those whose value is None, unless that is done; in one transaction per environment.

        For sinks that repeat it after a restart.

        Args:
            values: at most a few thousand.
            marker, mark: see `table.Once`.
        """
        keys = list(values)
        heads = self._prefixes()
        writes: list[tuple[list[Entry], list[bytes]]] = [([], []) for _ in self._tables]
        blobs: list[list[bytes]] = [[] for _ in self._tables]
        for key, partition, tail in zip(keys, *self._codec.keys(keys), strict=True):
            index, value = partition % len(self._tables), values[key]
            if value is None:
                writes[index][1].append(PARTITION.pack(partition) + tail)
            else:
                stored = self._codec.entry(key, value, blobs[index])
                writes[index][0].append((heads[partition] + tail, stored))
        for table, (entries, gone), names in zip(self._tables, writes, blobs, strict=True):
            if entries or gone:
                is_new = table.write_once(sorted(entries), gone, Once(marker, mark), with_blobs=bool(names))
                if not is_new:
                    self._codec.blobs.delete(names)

    def update(self, other: Any = (), /, **more: Any) -> None:
        """Put all entries of `other` (a mapping, or pairs) and of `more` in, as `dict.update`, through `put_all`."""
        if not isinstance(other, Mapping) and hasattr(other, "keys"):
            other = [(key, other[key]) for key in other.keys()]  # noqa: SIM118 - this is what dict.update() asks for
        self.put_all(other)
        if more:
            self.put_all(cast("dict[K, V]", more))

    def get_all(self, keys: Iterable[K]) -> dict[K, V]:
        """Return a dict of those of `keys` that are there.

        Example:
            >>> counts.get_all(["a", "missing"])             # doctest: +SKIP
            {'a': 3}
        """
        wanted = list(keys)
        per_table: list[dict[bytes, K]] = [{} for _ in self._tables]
        for key, partition, tagged in zip(wanted, *self._codec.keys(wanted), strict=True):
            per_table[partition % len(self._tables)].setdefault(PARTITION.pack(partition) + tagged, key)
        found: dict[K, V] = {}
        for table, tails in zip(self._tables, per_table, strict=True):
            entries = table.find_all(tails) if tails else []
            try:
                values = [value for _, value in self._codec.pairs([stored for _, stored in entries])]
            except BlobVanishedError:
                found.update((key, value) for key in tails.values() if (value := self.get(key)) is not None)
            else:
                found.update(zip([tails[tail] for tail, _ in entries], values, strict=True))
        return found

    def clear(self) -> None:
        """Remove all entries. Atomic for each environment; entries that others put meanwhile may stay."""
        for table in self._tables:
            table.drop(keep_name=True)

    def destroy(self) -> None:
        """Remove the map; its name may be used again at once, also through this object."""
        for table in self._tables:
            table.drop(keep_name=False)

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
        self._ahead = ReadAhead(self._locate, self._codec)  # dict(map) asks for all keys, then for each value in turn
        return chain.from_iterable(map(_first, self._codec.keys_of(page.values)) for page in self._all())

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
        pages = of_one_store(self._pages_of(partitions))
        return chain.from_iterable(self._pairs_of(pages))  # no Python code runs for an entry

    def _pages_of(self, partitions: Iterable[int]) -> Iterator[Page]:
        for partition in partitions:
            if not 0 <= partition < self._codec.partition_count:
                raise ValueError(f"partition {partition} is not one of 0 to {self._codec.partition_count - 1}")
            table = self._tables[partition % len(self._tables)]
            yield from table.pages(PARTITION.pack(partition), PARTITION.pack(partition + 1))

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

        Iterating raises `GridError` when the map was destroyed, and `MemberLostError` when its member was lost.

        Example:
            >>> for event in counts.journal():              # doctest: +SKIP
            ...     print(event.kind, event.key, event.old, event.new)
        """
        return Journal(self._journal_reader(start), is_far=self._is_far)

    def add_listener(self, fn: Callable[[MapEvent], object], key: K | None = None) -> Callable[[], None]:
        """Call a function with each change from now on, in a thread of this process that reads the journal.

        An error that it raises is logged, and the next change comes. The listener ends with the instance.

        Args:
            fn: gets a `MapEvent`; one of kind "lost" when it was too slow.
            key: only changes of this entry, and lost ones of its partition; None: all.

        Returns:
            a function that removes the listener; after it has returned `fn` is not called any more.

        Raises:
            ConfigError: the map has no journal; TypeError: `fn` cannot be called, or `key` cannot be a key.

        Example:
            >>> remove = counts.add_listener(print)         # doctest: +SKIP
        """
        if not callable(fn):
            raise TypeError(f"{self!r}: a listener must be a function, got {fn!r:.80} ({type(fn).__name__})")
        wanted = self._wanted(key)
        listener = Listener(repr(self), self._journal_reader("latest"), fn, wanted, is_far=self._is_far)
        self._listeners.add(listener)
        return listener.remove

    def _wanted(self, key: K | None) -> Callable[[MapEvent], bool]:
        if key is None:
            return lambda _: True
        partition, tail = self._codec.key(key)
        return lambda event: (
            event.partition == partition and (event.kind == "lost" or self._codec.key(event.key)[1] == tail)
        )

    def _journal_reader(
        self, start: str, share: tuple[int, int] = (0, 1), positions: Mapping[int, Position] | None = None
    ) -> JournalReader:
        """Return what reads the journal; for sources.

        Args:
            start: "oldest" or "latest".
            share: (index, count): of the environments each one in `count`, from `index` on.
            positions: see `JournalReader`.
        """
        if start not in STARTS:
            raise ValueError(f'{self!r}: a journal is read from "oldest" or "latest", got {start!r}')
        if not self._config.journal_capacity:
            raise ConfigError(
                f"map {self._name!r} has no journal: give it one with JetConfig(maps={{{self._name!r}: "
                "MapConfig(journal_capacity=10_000)}), events that are kept"
            )
        index, count = share
        logs: dict[int, Log] = {at: self._tables[at] for at in range(index, len(self._tables), count)}
        return JournalReader(f"map {self._name!r}", logs, self._codec, start, positions)

    @property
    def _is_far(self) -> bool:
        return self._tables[0].last_write() is None

    def __repr__(self) -> str:
        return f"IMap({self._name!r})"

    def _repr_html_(self) -> str:
        """Show some of its entries, in a notebook."""
        return collection_html(repr(self), lambda: (len(self), list(islice(self.items(), MOST_ROWS))), is_map=True)

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be pickled; processors get it with context.grid.get_map({self._name!r})")

    # How it is done

    def _locate(self, key: Any) -> tuple[Table, bytes]:
        partition, tagged = self._codec.key(key)
        return self._tables[partition % len(self._tables)], PARTITION.pack(partition) + tagged

    def _put_portion(self, pairs: list[Any]) -> None:
        if set(map(type, pairs)) != {tuple}:
            pairs = [(key, value) for key, value in pairs]
        partitions, tagged = self._codec.keys([key for key, _ in pairs])
        blobs: list[bytes] = []
        try:
            stored = self._codec.entries(pairs, blobs)
        except BaseException:
            self._codec.blobs.delete(blobs)
            raise
        heads = self._prefixes()
        per_partition: list[list[Entry]] = [[] for _ in heads]
        add = [entries.append for entries in per_partition]
        for partition, tail, value in zip(partitions, tagged, stored, strict=True):
            add[partition]((heads[partition] + tail, value))
        per_table: list[list[Entry]] = [[] for _ in self._tables]
        for partition, entries in enumerate(per_partition):
            entries.sort(key=_first)  # neighbours share pages; stable, so of equal keys the last one stays last
            per_table[partition % len(per_table)] += entries
        first = os.getpid() % len(per_table)  # so that writers do not follow each other from lock to lock
        for index in (*range(first, len(per_table)), *range(first)):
            entries = per_table[index]
            if entries:
                try:
                    self._tables[index].write(entries, with_blobs=bool(blobs))
                except BaseException:
                    if blobs:
                        self._discard_unwritten(per_table)
                    raise

    def _discard_unwritten(self, per_table: list[list[Entry]]) -> None:
        """Delete the blobs of those entries that did not get into the store."""
        for table, entries in zip(self._tables, per_table, strict=True):
            for key, value in entries:
                names = self._codec.blobs_of(value)
                if names and table.find(key[4:]) != value:
                    self._codec.blobs.delete(names)

    def _prefixes(self) -> list[bytes]:
        """Return the first bytes of the keys of each partition, as of the last write; `write` repairs outdated ones."""
        prefixes = tuple(table.prefix or table.prepare() for table in self._tables)
        known, heads = self._heads
        if known != prefixes:
            heads = [
                prefixes[partition % len(prefixes)] + PARTITION.pack(partition)
                for partition in range(self._codec.partition_count)
            ]
            self._heads = (prefixes, heads)
        return heads

    def _all(self) -> Iterator[Page]:
        return of_one_store(page for table in self._tables for page in table.pages())

    def _pairs_of(self, pages: Iterable[Page]) -> Iterator[Iterable[tuple[K, V]]]:
        for page in pages:
            if page.has_blobs:
                yield self._one_by_one(page.values)  # a page of large values is not held in memory at once
            else:
                yield self._codec.pairs(page.values)

    def _one_by_one(self, stored: list[bytes]) -> Iterator[tuple[K, V]]:
        for entry in stored:
            try:
                yield self._codec.pairs([entry])[0]
            except BlobVanishedError:
                key = self._codec.keys_of([entry])[0][0]
                value = self.get(key, _MISSING)
                if value is not _MISSING:
                    yield key, value

    def _taken(self, stored: bytes) -> V:
        """Return the value of an entry that has left the store, and delete its blob."""
        value = self._codec.value(stored)
        self._delete_files(stored)
        return cast(V, value)

    def _delete_files(self, stored: bytes | None) -> None:
        """Delete the files of an entry that has left the store, unless an event of the journal has it."""
        if stored is not None and not self._config.journal_capacity:
            self._codec.blobs.delete(self._codec.blobs_of(stored))


class _Encoded:
    """One encoded entry; deletes the blob that was written for it when storing the entry fails."""

    def __init__(self, codec: EntryCodec, key: Any, value: Any) -> None:
        self.blobs: list[bytes] = []
        self._codec = codec
        self.stored = codec.entry(key, value, self.blobs)

    def __enter__(self) -> _Encoded:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.discard()

    def discard(self) -> None:
        """Delete the blob: the entry is not going to be stored."""
        self._codec.blobs.delete(self.blobs)


class _Keys(KeysView[K], Generic[K]):
    _mapping: IMap[K, Any]

    def __iter__(self) -> Iterator[K]:
        return iter(self._mapping)


class _Items(ItemsView[K, V], Generic[K, V]):
    _mapping: IMap[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return chain.from_iterable(self._mapping._pairs_of(self._mapping._all()))


class _Values(ValuesView[V], Generic[V]):
    _mapping: IMap[Any, V]

    def __iter__(self) -> Iterator[V]:
        return map(_second, chain.from_iterable(self._mapping._pairs_of(self._mapping._all())))
