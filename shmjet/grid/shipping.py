"""What each backup of a member's partitions has to be sent, and up to where all of them have it.

A backup of any partition has a place in the log of each environment. What it has confirmed counts; the least that all
have confirmed is what waiting writers and readers look at (`CommitCounters`). It gets changes of the partitions of
which it has a backup, from the moment on at which it got its copy. A copy that is being made is told of the changes
meanwhile in the same way, but no one waits for that; the log is kept for it. Pure but for reading the store. Must not
know how changes travel. For one thread at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from shmjet.grid.change_log import READ_BYTES, NewBlocks, Puts, decode_changes, ends, read_records
from shmjet.grid.commit_counters import BACKED_UP, COMMITTED, KEPT, LOGGED
from shmjet.grid.environment import behind
from shmjet.grid.layout import HAS_BLOBS, TYPE_RECORD
from shmjet.grid.replica import Sent, Term
from shmjet.grid.store import Opened

ALL = 1 << 62
"""As a limit: none."""


class Batch(NamedTuple):
    """What a backup is to be sent next.

    Args:
        ends: for each environment the number of the last record that it has had when it has this.
        sent: the changes.
        files: names of files that have to be there first.
        classes: pickles of classes that it may lack, by their ids.
        joins: how many copies the backup had got when this was read.
    """

    ends: list[int]
    sent: list[Sent]
    files: list[bytes]
    classes: list[tuple[bytes, bytes]]
    joins: int


class _Backup:
    def __init__(self, at: list[int]) -> None:
        self.at = at
        self.since: dict[int, list[int]] = {}
        """By partition, from where on its changes are to be sent."""
        self.classes: set[bytes] = set()
        self.joins = 0

    def went_on(self, batch: Batch) -> None:
        if batch.joins == self.joins:  # else it lacks changes of what has been copied meanwhile
            self.at = [max(*numbers) for numbers in zip(self.at, batch.ends, strict=True)]
        self.classes.update(class_id for class_id, _ in batch.classes)


class Shipping:
    """See the module.

    Args:
        store: of the member.
    """

    def __init__(self, store: Opened) -> None:
        self._store = store
        self._backups: dict[str, _Backup] = {}
        self._copies: dict[str, _Backup] = {}
        self._terms: dict[int, Term] = {}
        self._classes_at = -1
        self._kept_classes: list[tuple[bytes, bytes]] = []
        self._keep()

    @property
    def backups(self) -> Collection[str]:
        """The members that are to be sent changes."""
        return self._backups.keys()

    @property
    def backed_up(self) -> list[int]:
        """For each environment, up to where all backups have its changes."""
        return [env.announced[BACKED_UP] for env in self._store.environments]

    def follow(self, rows: Mapping[int, Collection[str]], terms: Mapping[int, Term]) -> None:
        """Take which members have a backup of the partitions of which this one is the primary.

        A partition of which a member is to have a backup, and had none, must be closed meanwhile, unless the member has
        joined (`join`); what is written to it from now on is sent.

        Args:
            rows: by partition, the members.
            terms: by partition, under which version of the table it was opened here.
        """
        self._terms = dict(terms)
        now = ends(self._store.environments)
        wanted: dict[str, set[int]] = {}
        for partition, members in rows.items():
            for member in members:
                wanted.setdefault(member, set()).add(partition)
        self._backups = {member: backup for member, backup in self._backups.items() if member in wanted}
        for member, partitions in wanted.items():
            backup = self._backups.setdefault(member, _Backup(list(now)))
            backup.since = {partition: backup.since.get(partition, now) for partition in partitions}
        self.count()

    def batch(self, member: str, limit: int = READ_BYTES) -> Batch | None:
        """Return what a member is to be sent next; None where there is nothing for it.

        Args:
            member: a backup.
            limit: about so many bytes.
        """
        backup = self._backups.get(member)
        if backup is None:
            return None
        batch = self._batch(backup, limit)
        if batch is None:
            self.count()
        return batch

    def _batch(self, backup: _Backup, limit: int) -> Batch | None:
        sent: list[Sent] = []
        files: list[bytes] = []
        reached = list(backup.at)
        for environment, env in reversed([*enumerate(self._store.environments)]):
            if env.announced[LOGGED] > reached[environment]:  # it is announced before it is there
                some, names, reached[environment] = self._of(backup, environment, limit)
                sent += some
                files += names
        if not sent:
            backup.at = reached
            return None
        classes = [found for found in self._classes() if found[0] not in backup.classes]
        return Batch(reached, sent, files, classes, backup.joins)

    def _classes(self) -> list[tuple[bytes, bytes]]:
        """Return the classes that are kept; read anew where something was written there since."""
        env = self._store.environment(0)
        if env.announced[COMMITTED] == self._classes_at:
            return self._kept_classes
        with env.begin() as txn:
            if txn.id() != self._classes_at:
                self._classes_at, self._kept_classes = txn.id(), list(behind(txn, TYPE_RECORD))
        return self._kept_classes

    def still_wanted(self, member: str, batch: Batch) -> Batch:
        """Return a batch without the changes of partitions of which a member is to have no backup any more."""
        backup = self._backups.get(member)
        if backup is None:
            return batch
        sent = []
        for record in batch.sent:
            groups = [
                group
                for group in record.groups
                if (since := backup.since.get(group[0])) is not None and record.number > since[record.environment]
            ]
            if groups:
                sent.append(Sent(record.environment, record.number, groups))
        return batch._replace(sent=sent)

    def confirmed(self, member: str, batch: Batch) -> None:
        """Take that a member has what it was sent."""
        backup = self._backups.get(member)
        if backup is not None:
            backup.went_on(batch)
            self.count()

    # -- copies that are being made -----------------------------------------------------------------------------

    def keep_all(self) -> None:
        """Keep the log from now on, as a copy is about to be made."""
        for env in self._store.environments:
            env.announced[KEPT] = 1

    def begin_copy(self, member: str, partitions: Collection[int], numbers: Sequence[int]) -> None:
        """Take that a member gets a copy of partitions, whose changes are noted from some numbers on."""
        copy = self._copies[member] = _Backup(list(numbers))
        copy.since = dict.fromkeys(partitions, copy.at)
        self._keep()

    def changes_since(self, member: str, limit: int = READ_BYTES) -> Batch | None:
        """Return what has changed since a copy was begun, or since what was returned last; None where nothing has."""
        copy = self._copies.get(member)
        return None if copy is None else self._batch(copy, limit)

    def join(self, member: str, partitions: Collection[int]) -> None:
        """Take that a member has a copy, and is told what has changed since as backups are; `follow` has to come next.

        It may have been told of later changes already, of other partitions: those are sent once more, and taken once.
        The log is kept until `end_copy`.
        """
        copy = self._copies[member]
        backup = self._backups.setdefault(member, _Backup(list(copy.at)))
        backup.since.update(dict.fromkeys(partitions, copy.at))
        backup.at = [min(*numbers) for numbers in zip(backup.at, copy.at, strict=True)]
        backup.joins += 1

    def has(self, member: str, numbers: Sequence[int]) -> bool:
        """Say whether a backup has the changes up to a number in each environment."""
        backup = self._backups.get(member)
        return backup is not None and all(at >= number for at, number in zip(backup.at, numbers, strict=True))

    def copy_went_on(self, member: str, batch: Batch) -> None:
        """Take that changes are on their way to a copy."""
        copy = self._copies.get(member)
        if copy is not None:
            copy.went_on(batch)
            self._keep()

    def end_copy(self, member: str) -> None:
        """Keep nothing for the copy that a member gets."""
        self._copies.pop(member, None)
        self._keep()

    def _keep(self) -> None:
        for index, env in enumerate(self._store.environments):
            env.announced[KEPT] = min((copy.at[index] + 1 for copy in self._copies.values()), default=0)

    def _of(self, backup: _Backup, environment: int, limit: int) -> tuple[list[Sent], list[bytes], int]:
        """Return the changes of an environment that a backup lacks, their files, and the number of the last record.

        A file that is gone is not needed for long: what removes its entry is in the log already. Then all is sent at
        once, so that the backup never has that entry alone.
        """
        records, last = read_records(self._store.environment(environment), backup.at[environment], limit)
        if not records:
            return [], [], max(last, backup.at[environment])
        groups = [(record.number, self._for(backup, environment, record.number, record.groups)) for record in records]
        names = [name for _, some in groups for _, _, data in some for name in self._files(data)]
        there = [bytes(name) for name in names if self._store.blobs.size(name)]
        if len(there) < len(names) and limit < ALL:
            return self._of(backup, environment, ALL)
        return [Sent(environment, number, some) for number, some in groups if some], there, records[-1].number

    def _for(
        self, backup: _Backup, environment: int, number: int, groups: list[tuple[int, msgspec.Raw]]
    ) -> list[tuple[int, Term, msgspec.Raw]]:
        found = []
        for partition, changes in groups:
            since = backup.since.get(partition)
            if since is not None and number > since[environment]:
                found.append((partition, self._terms[partition], changes))
        return found

    def _files(self, data: msgspec.Raw) -> list[bytes]:
        """Return the names of the files that changes need."""
        names: list[bytes] = []
        for change in decode_changes(data):
            if isinstance(change, Puts):
                if change.flags & HAS_BLOBS:
                    for _, stored in change.entries:
                        names += self._store.codec.blobs_of(stored)
            elif isinstance(change, NewBlocks) and change.flags & HAS_BLOBS:
                for _, block in change.blocks:
                    names += self._store.codec.blobs_of_block(block)
        return names

    def count(self) -> None:
        """Say up to where all backups have the changes."""
        places = [backup.at for backup in self._backups.values()]
        environments = self._store.environments
        least = map(min, *places) if len(places) > 1 else places[0] if places else ends(environments)
        for env, number in zip(environments, least, strict=True):
            if number > env.announced[BACKED_UP]:
                env.announced[BACKED_UP] = number
