"""Takes the changes of partitions that another member has, where this store is a backup.

A position is a *term*, the version of the table of partitions under which a primary opened the partition, and a number
in the log of one of its environments. What is at or below the position of a partition is not taken again. Changes that
may not be on all backups yet are remembered as *tails*, so that the backups of a lost primary can give each other what
some of them lack. Must not know members but by their names, nor how changes travel. For one thread at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

import msgspec

from shmjet.grid.change_log import (
    Catalogued,
    Change,
    CutEvents,
    Dropped,
    FilesGone,
    NewBlocks,
    NewEvents,
    NewJournal,
    NewSequences,
    Puts,
    Removals,
    decode_changes,
    place_in,
)
from shmjet.grid.changes import Changes, Entry, next_incarnation
from shmjet.grid.environment import Environment, Transaction
from shmjet.grid.errors import GridError
from shmjet.grid.layout import INCARNATION, Record
from shmjet.grid.store import Opened
from shmjet.grid.table import Table
from shmjet.grid.times import now

Term = tuple[int, int]
Position = tuple[Term, int]
"""See the module."""
NO_POSITION: Position = ((0, 0), 0)
_LAST = (1 << 63) - 1


class Sent(msgspec.Struct, frozen=True, array_like=True):
    """What one transaction of a primary did to some partitions.

    Args:
        environment: where.
        number: of the record there.
        groups: partitions with the terms of their primary, and changes, encoded.
    """

    environment: int
    number: int
    groups: list[tuple[int, Term, msgspec.Raw]]


class _Tail(NamedTuple):
    sent: Sent
    later: int
    """By how much the clock of this host is later than that of the primary, in nanoseconds."""


class Replica:
    """See the module.

    Args:
        store: that takes.
    """

    def __init__(self, store: Opened) -> None:
        self._store = store
        self._positions: dict[tuple[int, int], Position] = {}
        self._tails: dict[tuple[str, int], deque[_Tail]] = {}

    def position(self, partition: int, environment: int) -> Position:
        """Return up to where the changes of a partition have been taken in an environment."""
        return self._positions.get((partition, environment), NO_POSITION)

    def led(self, partition: int, term: Term) -> None:
        """Take that this store was the primary of a partition in a term, so that it has all of that."""
        for environment in range(self._store.layout.environments):
            key = partition, environment
            self._positions[key] = max(self._positions.get(key, NO_POSITION), (term, _LAST))

    def begin(self, partition: int, term: Term, numbers: Sequence[int]) -> None:
        """Take that a whole copy of a partition is here: as its primary had it in a term, up to numbers in its logs."""
        for environment, number in enumerate(numbers):
            self._positions[partition, environment] = tuple(term), number  # type: ignore[assignment]

    def forget(self, partitions: Collection[int]) -> None:
        """Take that nothing of some partitions is here any more, or something that begins anew."""
        for partition, environment in list(self._positions):
            if partition in partitions:
                del self._positions[partition, environment]

    def takes_no_time(self, sent: Iterable[Sent]) -> bool:
        """Say whether a few changes need microseconds: no writer has to be waited for, and nothing is swept."""
        return not any(
            self._store.environment(record.environment).is_busy
            or any(
                isinstance(change, Dropped | FilesGone) for *_, data in record.groups for change in decode_changes(data)
            )
            for record in sent
        )

    def take(self, sender: str, backed_up: Sequence[int], sent: Iterable[Sent], moment: int) -> None:
        """Take changes of a primary, in their order.

        Args:
            sender: its name.
            backed_up: for each environment the number up to which all backups have its changes.
            sent: the changes.
            moment: of the primary's clock.

        Raises:
            GridError: there is no room, or the partition has had another primary since; what was taken before stays.
        """
        for environment, number in enumerate(backed_up):
            tail = self._tails.get((sender, environment))
            while tail and tail[0].sent.number <= number:
                tail.popleft()
        later = now() - moment
        for environment, records in self._checked(sent).items():
            if self._take(environment, records, later):
                tail = self._tails.setdefault((sender, environment), deque())
                tail.extend(_Tail(record, later) for record in records)

    def take_for_copy(self, sent: Iterable[Sent], moment: int) -> None:
        """Take changes that came after what a copy was made of; before it counts all other backups have them, too.

        Raises:
            GridError: as `take`.
        """
        for environment, records in self._checked(sent).items():
            self._take(environment, records, now() - moment)

    def _checked(self, sent: Iterable[Sent]) -> dict[int, list[Sent]]:
        """Return changes by environment, none of which is of a primary that has had a successor."""
        by_environment: dict[int, list[Sent]] = {}
        for record in sent:
            by_environment.setdefault(record.environment, []).append(record)
            for partition, term, _ in record.groups:
                if tuple(term) < self.position(partition, record.environment)[0]:
                    raise GridError(f"partition {partition} has had another primary since")
        return by_environment

    def _take(self, environment: int, records: list[Sent], later: int) -> bool:
        """Take some records of one environment in one transaction; False where all was there."""
        positions: dict[tuple[int, int], Position] = {}
        todo: list[list[Change]] = []
        for record in records:
            for partition, term, changes in record.groups:
                key = partition, environment
                position = tuple(term), record.number
                if position > positions.get(key, self._positions.get(key, NO_POSITION)):
                    positions[key] = position  # type: ignore[assignment]
                    todo.append(decode_changes(changes))
        if not todo:
            return False
        apply_changes(self._store, environment, todo, later)
        self._positions.update(positions)
        return True

    # -- where a primary is lost --------------------------------------------------------------------------------

    def positions_of(self, partitions: Collection[int]) -> list[tuple[int, int, Position]]:
        """Return the positions of some partitions, with their environments."""
        return [(*key, position) for key, position in self._positions.items() if key[0] in partitions]

    def tails_of(
        self, partitions: Collection[int], positions: Iterable[tuple[int, int, Position]]
    ) -> list[tuple[str, int, Sent]]:
        """Return what is remembered of some partitions and behind positions.

        Returns:
            for each record its primary, and what the clock of that one shows now.
        """
        known = {(partition, environment): position for partition, environment, position in positions}
        found: list[tuple[str, int, Sent]] = []
        moment = now()
        for (sender, environment), tail in self._tails.items():
            for sent, later in tail:
                groups = [
                    group
                    for group in sent.groups
                    if group[0] in partitions
                    and self._is_newest(environment, group)
                    and (tuple(group[1]), sent.number) > known.get((group[0], environment), NO_POSITION)
                ]
                if groups:
                    found.append((sender, moment - later, Sent(environment, sent.number, groups)))
        return found

    def take_tails(self, tails: Iterable[tuple[str, int, Sent]]) -> None:
        """Take what another backup remembers, and this one lacks, in the order of terms and numbers."""
        moment = now()
        split = [
            (tuple(term), sent.number, sender, clock, Sent(sent.environment, sent.number, [(partition, term, changes)]))
            for sender, clock, sent in tails
            for partition, term, changes in sent.groups
        ]
        for _, _, sender, clock, sent in sorted(split, key=lambda part: part[:2]):
            if self._take(sent.environment, [sent], moment - clock):
                tail = self._tails.setdefault((sender, sent.environment), deque())
                tail.append(_Tail(sent, moment - clock))

    def forget_tails(self, is_there: Callable[[str], bool]) -> None:
        """Forget what is remembered of primaries that are gone, where another one has followed."""
        for (sender, environment), tail in list(self._tails.items()):
            if is_there(sender):
                continue
            left = [part for part in tail if any(self._is_newest(environment, group) for group in part.sent.groups)]
            if left:
                self._tails[sender, environment] = deque(left)
            else:
                del self._tails[sender, environment]

    def _is_newest(self, environment: int, group: tuple[int, Term, msgspec.Raw]) -> bool:
        return self.position(group[0], environment)[0] == tuple(group[1])


class _After:
    """What is to be done when a transaction has been committed."""

    def __init__(self) -> None:
        self.dropped: list[tuple[Table, list[Entry]]] = []
        self.files: list[bytes] = []

    def clear(self) -> None:
        self.dropped.clear()
        self.files.clear()


class _Work:
    """Does changes in one transaction."""

    def __init__(
        self, store: Opened, environment: int, env: Environment, txn: Transaction, later: int, after: _After
    ) -> None:
        self._store = store
        self._environment = environment
        self._env = env
        self._txn = txn
        self._later = later
        self._after = after
        self._maps: dict[bytes, Changes] = {}
        self._recorder = store.recorder(txn, env)

    def do(self, todo: Iterable[list[Change]]) -> None:
        for changes in todo:
            for change in changes:
                self._do(change)
        for map_ in self._maps.values():
            map_.close(ends=False)
        if self._recorder is not None:
            self._recorder.close()

    def _do(self, change: Change) -> None:
        match change:
            case Puts():
                self._map(change.record).take_over_all(change.entries, change.flags, self._later)
            case Removals():
                map_ = self._map(change.record)
                for tail in change.keys:
                    map_.give_up(tail)
            case NewJournal():
                self._map(change.record).take_over_identity(change.identity)
            case NewSequences():
                self._map(change.record).take_over_events([], change.sequences, 0)
            case NewEvents():
                self._map(change.record).take_over_events(change.events, {}, self._later)
            case CutEvents():
                self._map(change.record).cut_events(change.oldest, change.sequences)
            case NewBlocks():
                self._append(change)
            case Dropped():
                self._drop(change)
            case Catalogued():
                for key, value in change.records:
                    if value is None:
                        self._txn.delete(key)
                    else:
                        self._txn.put(key, value)
                    if self._recorder is not None:
                        self._recorder.catalogued(place_in(key), key, value)
            case FilesGone():  # nothing names them any more, which is enough for a restart
                self._after.files += change.names

    def _map(self, record_key: bytes) -> Changes:
        found = self._maps.get(record_key)
        if found is None:
            table = self._store.table(self._environment, record_key)
            home = table.home if table.lies_at_home else b""
            found = Changes(self._txn, self._env, record_key, table.rules, self._recorder, home)
            self._maps[record_key] = found
        return found

    def _append(self, change: NewBlocks) -> None:
        found = self._txn.get(change.record)
        record = Record(next_incarnation(self._txn)) if found is None else Record.unpack(found)
        prefix = INCARNATION.pack(record.incarnation)
        for index, block in change.blocks:
            self._txn.put(prefix + index, block)
        record.size, record.flags = change.size, change.flags
        self._txn.put(change.record, record.pack())
        if self._recorder is not None:
            self._recorder.note(self._store.table(self._environment, change.record).home, change)

    def _drop(self, change: Dropped) -> None:
        under_way = self._maps.pop(change.record, None)
        if under_way is not None:
            under_way.close(ends=False)
        table = self._store.table(self._environment, change.record)
        dropped = table.drop_in(self._txn, keep_name=change.keep_name, recorder=self._recorder)
        self._after.dropped.append((table, dropped))


def apply_changes(
    store: Opened,
    environment: int,
    todo: Iterable[list[Change]],
    later: int,
    done: Callable[[Transaction], None] = lambda _: None,
) -> None:
    """Do changes of one environment in one transaction, of any store.

    Args:
        store: that takes them.
        environment: where.
        todo: the changes.
        later: by how much the clock of this host is later than that of the store that they come from, in nanoseconds.
        done: called at the end of the transaction.

    Raises:
        GridError: there is no room; nothing of them is there then.
    """
    env, after = store.environment(environment), _After()

    def work(txn: Transaction) -> None:
        after.clear()
        _Work(store, environment, env, txn, later, after).do(todo)
        done(txn)

    env.write(work, "changes from elsewhere")
    for table, dropped in after.dropped:
        table.sweep(dropped)
    store.blobs.delete(after.files)
