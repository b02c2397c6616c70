"""Changes of one map or list in one environment, and the limits of a map that are kept with each of them.

A change is one write transaction. Where the map has a limit of bytes or a journal, what is too much is refused inside
it or removed after it; for that alone a table looks at those of the other environments. Entries whose time is over end
here too. Must not know which operations there are: those say what a change does, see `table`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from shmjet._native import partition_of
from shmjet.core.keys import canonical_bytes
from shmjet.grid import log
from shmjet.grid.blobs import BlobStore
from shmjet.grid.change_log import Recorder
from shmjet.grid.changes import Changes, Rules, flags_of
from shmjet.grid.disk_errors import DiskErrors
from shmjet.grid.environment import Environment, Transaction
from shmjet.grid.errors import GridFullError
from shmjet.grid.kept_results import OperationId, keep, kept
from shmjet.grid.layout import HAS_ENDS, MAP_RECORD, PARTITION, name_of
from shmjet.grid.limits import is_due, make_room, shorten
from shmjet.grid.ownership import opening
from shmjet.grid.sweeping import EVENTS, NamesIn
from shmjet.grid.table_reads import TableReads
from shmjet.grid.times import Uses

Result = TypeVar("Result")

TRANSACTION_ENTRIES = 2048
"""Entries written in one transaction: about 2 ms."""


class Neighbours(Protocol):
    """What a table has to know of the rest of its store."""

    uses: Uses | None
    partition_count: int
    is_divided: bool
    is_on_disk: bool

    def parts_of(self, record_key: bytes) -> Sequence[BoundedTable]:
        """Return the tables of one map, one for each environment."""

    def names_in(self, kind: bytes) -> NamesIn:
        """Return what gives the names of the blobs that a stored value needs, by kind of garbage."""

    def end_entries(self, env: Environment) -> int:
        """Remove the entries of all maps whose time is over, in one environment, and return how many."""


class BoundedTable(TableReads):
    """One map or list in one environment, which changes within its limits.

    Args:
        env: the environment.
        record_key: from `layout.record_key`.
        label: how errors call it, such as `map 'counts'`.
        blobs: where its large values are.
        rules: of a map.
        store: where the other tables are.
    """

    def __init__(
        self, env: Environment, record_key: bytes, label: str, blobs: BlobStore, rules: Rules, store: Neighbours
    ) -> None:
        super().__init__(env, record_key, store.uses if rules.config.eviction == "lru" else None)
        self.label = label
        self.rules = rules
        self.operation: OperationId | None = None
        """What this table is asked to do, where it may be asked again: its changes are then done once."""
        self._blobs = blobs
        self._store = store
        self._names_in = store.names_in(self._kind())
        self.home = PARTITION.pack(partition_of(name_of(record_key), store.partition_count, canonical_bytes))
        self.lies_at_home = self._kind() == b"l" or not rules.config.is_plain
        self.is_divided = store.is_divided
        self._is_on_disk = store.is_on_disk
        self._is_plain = rules.config.is_plain

    def _kind(self) -> bytes:
        return b"m" if self.record_key.startswith(MAP_RECORD) else b"l"

    def _change(
        self, work: Callable[[Changes], Result], *, makes: bool = True, default: Any = None, partition: bytes = b""
    ) -> Result:
        """Do something to the map in one transaction, and make room afterwards where it has a limit.

        Args:
            work: what to do.
            makes: whether the map comes into being.
            default: the result where it does not, and is not there.
            partition: of the entry; where `operation` may be asked again, the result is kept there.
        """
        try:
            return self._change_once(work, makes=makes, default=default, partition=partition)
        except GridFullError:
            if self.rules.config.max_bytes is None or not self._end_entries_elsewhere():
                raise
            return self._change_once(work, makes=makes, default=default, partition=partition)

    def _end_entries_elsewhere(self) -> int:
        """Remove entries of the map whose time is over, in all environments: they count for its limit."""
        return sum(part.end_entries() for part in self._store.parts_of(self.record_key))

    def _change_once(self, work: Callable[[Changes], Result], *, makes: bool, default: Any, partition: bytes) -> Result:
        config = self.rules.config
        others = 0
        if config.max_bytes is not None and config.eviction == "none":
            others = sum(part.weight() for part in self._store.parts_of(self.record_key) if part.env is not self.env)

        def attempt(txn: Transaction) -> tuple[Result, Changes | None]:
            if partition:
                self.admit(txn, (partition,))
            place = self.place_of(partition)
            operation = self.operation if partition else None
            done = None if operation is None else kept(txn, operation, place)
            if done is not None:
                return done.result, None
            if not makes and txn.get(self.record_key) is None:
                return default, None
            recorder = self._recorder(txn)
            changes = self._changes(txn, recorder)
            result = work(changes)
            if operation is not None and changes.has_changed:
                keep(txn, operation, place, result, recorder)
            self._require(recorder)
            changes.close()
            if recorder is not None:
                recorder.close()
            if not self._is_plain:
                self._check_weight(changes, others)
            return result, changes

        errors = DiskErrors()
        result, changes = errors.result_of(partial(self._write, attempt))
        if changes is not None and not self._is_plain:
            errors.result_of(partial(self._keep_limits, changes))
        if changes is not None and changes.gone:
            self._forget(changes.gone)
        errors.report(result)
        return result

    def _recorder(self, txn: Transaction) -> Recorder | None:
        """Return what notes the changes of a transaction for backups and the disk, where there may be any."""
        if self.is_divided or self._is_on_disk:
            return Recorder(txn, self.env, notes_all=self._is_on_disk)
        return None

    def _require(self, recorder: Recorder | None) -> None:
        """Raise GridError if a partition that was changed has fewer backups than the map must have."""
        if recorder is not None:
            recorder.require(self.rules.config.min_backups, self.label)

    def _changes(self, txn: Transaction, recorder: Recorder | None) -> Changes:
        home = self.home if self.lies_at_home else b""
        is_open = recorder.is_open if self.is_divided and recorder is not None else None
        return Changes(txn, self.env, self.record_key, self.rules, recorder, home, is_open)

    def _once(self, txn: Transaction, partition: bytes, work: Callable[[Recorder | None], Result]) -> Result:
        """Do something to a partition, or return its first result where `operation` has been done."""
        self.admit(txn, (self.home,))
        recorder, operation = self._recorder(txn), self.operation
        done = None if operation is None else kept(txn, operation, partition)
        if done is not None:
            first: Result = done.result
            return first
        result = work(recorder)
        if operation is not None:
            keep(txn, operation, partition, result, recorder)
        if recorder is not None:
            self._require(recorder)
            recorder.close()
        return result

    def _is_here(self, txn: Transaction) -> bool:
        """Say whether a map that lies in one partition may be changed here."""
        return not (self.is_divided and self.lies_at_home) or opening(txn, self.home) is not None

    def _keep_limits(self, changes: Changes) -> None:
        """Make room where the map has a limit, and shorten its journal."""
        config, count = self.rules.config, changes.appended
        if self._uses is not None and config.max_bytes is not None and changes.weighed > 0:
            make_room(self._store.parts_of(self.record_key), config.max_bytes)
        if count:
            parts = self._store.parts_of(self.record_key)
            if is_due(changes.written, changes.written + count, config.journal_capacity, len(parts)):
                shorten(parts, config.journal_capacity)

    def _check_weight(self, changes: Changes, others: int) -> None:
        most = self.rules.config.max_bytes
        if most is None or changes.weighed <= 0:
            return
        is_full = self._uses is None and others + changes.record.weight > most
        if is_full or changes.heaviest > most:
            raise GridFullError(
                f"no room for {self.label}: it would take {others + changes.record.weight} bytes, and its limit is "
                f"{most} (MapConfig.max_bytes, eviction={self.rules.config.eviction!r}); remove what is not needed, "
                "give it more, or let entries go that were not used for long (eviction='lru')"
            )

    def evict(self) -> bool:
        """Remove the entry that was used longest ago, in this environment, and say whether there was one."""
        uses = self._uses

        def work(changes: Changes) -> bool:
            return uses is not None and self._is_here(changes.txn) and changes.evict(1, uses.last) > 0

        return self._change(work, makes=False, default=False)

    def cut_log(self, count: int) -> int:
        """Remove some of the oldest events, at most so many, and return how many."""
        home = self.home if self.is_divided else b""
        removed = log.cut(self.env, self.record_key, count, self.label, home, self._recorder)
        names_in = self._store.names_in(EVENTS)
        for event in removed:
            self._blobs.delete(names_in(event))
        return len(removed)

    def _write(self, attempt: Callable[[Transaction], Result]) -> Result:
        try:
            return self.env.write(attempt, self.label)
        except GridFullError:
            if not self._store.end_entries(self.env):
                raise
            return self.env.write(attempt, self.label)

    def end_entries(self) -> int:
        """Remove the entries whose time is over, and return how many."""
        total = 0
        while ended := self.end_some():
            total += ended
        return total

    def end_some(self) -> int:
        """Remove entries whose time is over, as many as one transaction takes, and return how many."""

        def work(txn: Transaction) -> tuple[int, list[bytes]]:
            found = txn.get(self.record_key)
            if found is None or not flags_of(found) & HAS_ENDS:
                return 0, []
            if not self._is_here(txn):
                return 0, []
            recorder = self._recorder(txn)
            changes = self._changes(txn, recorder)
            ended = changes.end_some(TRANSACTION_ENTRIES)
            changes.close()
            if recorder is not None:
                recorder.close()
            return ended, changes.gone

        ended, gone = self.env.write(work, self.label)
        self._forget(gone)
        return ended

    def _forget(self, values: list[bytes]) -> None:
        if not self.rules.config.journal_capacity:  # else their files are needed until their events go
            for value in values:
                self._blobs.delete(self._names_in(value))
