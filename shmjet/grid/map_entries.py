"""The entries of a map in its tables, one by one and in portions: from objects to where their bytes are, and back.

A key's partition says in which table its entry is. What an operation that fails has written next to the store, and what
an entry that has left the store had there, is deleted here. Must not know the promises that `imap` makes to users, nor
pages of many entries: `map_scan` streams those.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from shmjet.core.map_config import MapConfig
from shmjet.grid.blobs import BlobVanishedError, Vanished, missing
from shmjet.grid.changes import Entry
from shmjet.grid.disk_errors import DiskErrors
from shmjet.grid.entries import EntryCodec
from shmjet.grid.errors import GridError, NotOnDiskError
from shmjet.grid.layout import PARTITION
from shmjet.grid.operations import NO_PREFIX
from shmjet.grid.side_by_side import one_after_the_other
from shmjet.grid.table import Once, Table

_MISSING: Any = object()
_first: Any = itemgetter(0)


class MapEntries:
    """The entries of one map.

    Args:
        tables: of the map, one for each environment.
        codec: turns objects into entries.
        config: of the map.
        do_all: does things, in their order or side by side.
    """

    def __init__(
        self,
        tables: Sequence[Table],
        codec: EntryCodec,
        config: MapConfig,
        do_all: Callable[[Sequence[Callable[[], None]]], None] = one_after_the_other,
    ) -> None:
        self._tables = tables
        self._do_all = do_all
        self._codec = codec
        self._config = config
        self._heads: tuple[tuple[bytes, ...], list[bytes]] = ((), [])

    def locate(self, key: Any) -> tuple[Table, bytes]:
        """Return the table of a key, and its place there."""
        partition, tagged = self._codec.key(key)
        return self._tables[partition % len(self._tables)], PARTITION.pack(partition) + tagged

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of `key`, or `default`."""
        table, tail = self.locate(key)
        vanished = Vanished()
        while True:
            stored = table.find(tail)
            if stored is None:
                return default
            try:
                return self._codec.value(stored)
            except BlobVanishedError as error:  # replaced or removed between the two reads
                vanished.note(error, f"the value of {key!r:.100}")

    def set(self, key: Any, value: Any) -> None:
        """Store one entry."""
        partition, tagged = self._codec.key(key)
        table = self._tables[partition % len(self._tables)]
        with _Encoded(self._codec, key, value) as new:
            prefix = table.prefix or NO_PREFIX
            table.write([(prefix + PARTITION.pack(partition) + tagged, new.stored)], with_blobs=bool(new.blobs))

    def __contains__(self, key: object) -> bool:
        table, tail = self.locate(key)
        return table.find(tail) is not None

    def put(self, key: Any, value: Any, ttl: int = 0) -> Any:
        """Store one entry that lives so many nanoseconds (0: for ever); return the value that it replaces, or None."""
        table, tail = self.locate(key)
        with _Encoded(self._codec, key, value) as new:
            store = partial(table.replace, tail, new.stored, with_blobs=bool(new.blobs), ttl=ttl)
            old = (errors := DiskErrors()).result_of(store)
        value_before = None if old is None else self._replaced(key, old)
        errors.report(value_before)
        return value_before

    def replace(self, key: Any, value: Any) -> Any:
        """Store one entry if the key has one, whose value is returned; else store nothing and return None."""
        table, tail = self.locate(key)
        with _Encoded(self._codec, key, value) as new:
            store = partial(table.replace, tail, new.stored, with_blobs=bool(new.blobs), only_present=True)
            old = (errors := DiskErrors()).result_of(store)
            if old is None:
                new.discard()
        value_before = None if old is None else self._replaced(key, old)
        errors.report(value_before)
        return value_before

    def compute(self, key: Any, fn: Callable[[Any], Any]) -> Any:
        """Store what `fn` makes of the value, None for none, and return it; repeated until no other came between."""
        table, tail = self.locate(key)
        vanished, errors = Vanished(), DiskErrors()
        while True:
            stored = table.find(tail)
            try:
                old = None if stored is None else self._codec.value(stored)
            except BlobVanishedError as error:
                vanished.note(error, f"the value of {key!r:.100}")
                continue
            value = fn(old)
            if value is None:
                if stored is None or errors.result_of(partial(table.swap, tail, stored, None, with_blobs=False)):
                    self._delete_files(stored)
                    errors.report()
                    return None
                continue
            with _Encoded(self._codec, key, value) as new:
                swap = partial(table.swap, tail, stored, new.stored, with_blobs=bool(new.blobs))
                if errors.result_of(swap):
                    self._delete_files(stored)
                    errors.report(value)
                    return value
                new.discard()

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Store one entry unless the key has one; return the value that was there, or None."""
        found = self.get(key, _MISSING)
        table, tail = self.locate(key)
        errors = DiskErrors()
        while found is _MISSING:
            with _Encoded(self._codec, key, value) as new:
                old = errors.result_of(partial(table.add, tail, new.stored, with_blobs=bool(new.blobs)))
                if old is None:
                    errors.report()
                    return None
                new.discard()
            try:
                found = self._codec.value(old)
            except BlobVanishedError:
                found = self.get(key, _MISSING)
        return found

    def pop(self, key: Any, default: Any) -> Any:
        """Take one entry out and return its value, or `default`; one whose value cannot be read is put back."""
        table, tail = self.locate(key)
        old = (errors := DiskErrors()).result_of(partial(table.pop, tail))
        if old is None:
            errors.report(default)
            return default
        try:
            value = self._codec.value(old)
        except BlobVanishedError as error:
            raise missing(error, "the value that was there; the entry has been changed") from error
        except BaseException as error:
            self._put_back(key, table, tail, old, error)
            raise
        self._delete_files(old)
        errors.report(value)
        return value

    def remove(self, key: Any) -> bool:
        """Take one entry out without a look at its value, and say whether there was one."""
        table, tail = self.locate(key)
        old = (errors := DiskErrors()).result_of(partial(table.pop, tail))
        self._delete_files(old)
        errors.report(old is not None)
        return old is not None

    def _replaced(self, key: Any, stored: bytes) -> Any:
        """Return the value of an entry that another has replaced, and delete its blob."""
        try:
            value = self._codec.value(stored)
        except BlobVanishedError as error:
            raise missing(error, "the value that was there; the entry has been changed") from error
        except BaseException as error:
            self._delete_files(stored)
            if not isinstance(error, Exception | SystemExit):
                raise
            raise GridError(
                f"the new value of {key!r:.100} is stored, but the value that was there cannot be read: {_said(error)}"
            ) from error
        self._delete_files(stored)
        return value

    def _put_back(self, key: Any, table: Table, tail: bytes, stored: bytes, error: BaseException) -> None:
        """Store an entry that was taken out and cannot be read, unless the key has another one by now.

        It ends when it would have ended, by the clock of the host that has its partition: if that is another one by
        now, its time may be another, too.

        Raises:
            GridError: it is gone, and why.
        """
        blobs: list[bytes] = []
        gone = f"the value of {key!r:.100} cannot be read ({_said(error)}), and it is not in the map any more"
        try:
            again, end = self._codec.copied(stored, blobs)
            is_back = table.swap(tail, None, again, with_blobs=bool(blobs), end=end)
        except NotOnDiskError:  # it is back, in memory
            is_back = True
        except Exception as failure:
            self._codec.blobs.delete(blobs)
            raise GridError(f"{gone}: it could not be put back: {failure}") from error
        self._delete_files(stored)
        if not is_back:
            self._codec.blobs.delete(blobs)
            raise GridError(f"{gone}: another one was put{', or its time is over' if end else ''}") from error

    def _delete_files(self, stored: bytes | None) -> None:
        """Delete the files of an entry that has left the store, unless an event of the journal has it."""
        if stored is not None and not self._config.journal_capacity:
            self._codec.blobs.delete(self._codec.blobs_of(stored))

    # Many keys

    def get_all(self, keys: Iterable[Any]) -> dict[Any, Any]:
        """Return those of the keys that are there, with their values."""
        wanted = list(keys)
        per_table: list[dict[bytes, Any]] = [{} for _ in self._tables]
        for key, partition, tagged in zip(wanted, *self._codec.keys(wanted), strict=True):
            per_table[partition % len(self._tables)].setdefault(PARTITION.pack(partition) + tagged, key)
        found: dict[Any, Any] = {}
        for table, tails in zip(self._tables, per_table, strict=True):
            entries = table.find_all(tails) if tails else []
            try:
                values = [value for _, value in self._codec.pairs([stored for _, stored in entries])]
            except BlobVanishedError:
                found.update((key, value) for key in tails.values() if (value := self.get(key)) is not None)
            else:
                found.update(zip([tails[tail] for tail, _ in entries], values, strict=True))
        return found

    def put_portion(self, pairs: list[Any]) -> None:
        """Store (key, value) pairs, some ten thousand at most; an error leaves no files of what was not stored."""
        heads = self._prefixes()
        blobs: list[bytes] = []
        per_table: list[list[Entry]] = [[] for _ in self._tables]
        for partition, entries in enumerate(self._codec.placed(pairs, heads, blobs)):
            entries.sort(key=_first)  # neighbours share pages; stable, so of equal keys the last one stays last
            per_table[partition % len(per_table)] += entries
        first = os.getpid() % len(per_table)  # so that writers do not follow each other from lock to lock
        errors = DiskErrors()
        writes = [
            partial(errors.result_of, partial(self._tables[index].write, per_table[index], with_blobs=bool(blobs)))
            for index in (*range(first, len(per_table)), *range(first))
            if per_table[index]
        ]
        try:
            self._do_all(writes)
        except BaseException:
            if blobs:
                self._discard_unwritten(per_table)
            raise
        errors.report()

    def put_once(self, values: Mapping[Any, Any], marker: bytes, mark: int) -> None:
        """Put entries, and remove those whose value is None, unless that is done; in one transaction per environment.

        Args:
            values: at most a few thousand.
            marker, mark: see `table.Once`.
        """
        keys = list(values)
        heads = self._prefixes()
        writes: list[tuple[list[Entry], list[bytes]]] = [([], []) for _ in self._tables]
        blobs: dict[int, list[bytes]] = {}
        for key, partition, tail in zip(keys, *self._codec.keys(keys), strict=True):
            index, value = partition % len(self._tables), values[key]
            if value is None:
                writes[index][1].append(PARTITION.pack(partition) + tail)
            else:
                stored = self._codec.entry(key, value, blobs.setdefault(partition, []))
                writes[index][0].append((heads[partition] + tail, stored))
        errors, once, with_blobs = DiskErrors(), Once(marker, mark), any(blobs.values())
        for table, (entries, gone) in zip(self._tables, writes, strict=True):
            if entries or gone:
                write = partial(table.write_once, sorted(entries), gone, once, with_blobs=with_blobs)
                for partition in errors.result_of(write) or []:
                    self._codec.blobs.delete(blobs.get(partition, []))
        errors.report()

    def _discard_unwritten(self, per_table: list[list[Entry]]) -> None:
        """Delete the blobs of those entries that did not get into the store."""
        for table, entries in zip(self._tables, per_table, strict=True):
            for key, value in entries:
                names = self._codec.blobs_of(value)
                if names and table.find(key[4:]) != value:
                    self._codec.blobs.delete(names)

    def _prefixes(self) -> list[bytes]:
        """Return the first bytes of the keys of each partition, as of the last write; `write` repairs outdated ones."""
        prefixes = tuple(table.prefix or NO_PREFIX for table in self._tables)
        known, heads = self._heads
        if known != prefixes:
            heads = [
                prefixes[partition % len(prefixes)] + PARTITION.pack(partition)
                for partition in range(self._codec.partition_count)
            ]
            self._heads = (prefixes, heads)
        return heads


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


class _Encoded:
    """One encoded entry. As a context manager deletes the file that was written for it when storing the entry fails.

    An entry that is in memory and not yet on disk is stored, and needs its file.
    """

    def __init__(self, codec: EntryCodec, key: Any, value: Any) -> None:
        self.blobs: list[bytes] = []
        self._codec = codec
        self.stored = codec.entry(key, value, self.blobs)

    def __enter__(self) -> _Encoded:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and not issubclass(kind, NotOnDiskError):
            self.discard()

    def discard(self) -> None:
        """Delete the blob: the entry is not going to be stored."""
        self._codec.blobs.delete(self.blobs)
