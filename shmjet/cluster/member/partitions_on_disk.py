"""What the disk of a member knows of its partitions: under which table it had which, and what they are.

The file is written anew with each table that the member follows, before it does what that says. A member that is
started again brings it to its cluster (`cluster.partitions.recovery`), and a keeper takes its partitions up when the
table says that they count.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from shmjet.cluster.partitions.recovery import StoredTable
from shmjet.cluster.partitions.table import NO_TABLE, PartitionTable, Version
from shmjet.data.decoders import converter, from_msgpack
from shmjet.data.errors import ConfigError
from shmjet.grid.disk.checksums import CHANGED, UNSET, fits, with_checksum
from shmjet.host.folders import replace_file, sync_folder

_FILE: Final = "partitions"
_FORMAT: Final = 1


class _Content(msgspec.Struct, frozen=True, array_like=True):
    format: int
    stored: StoredTable
    lineages: dict[int, int]
    checksum: str = ""
    """Of all that is in front of it (`shmjet.grid.disk.checksums`); older versions have written none."""


class PartitionsOnDisk:
    """See the module. For one thread at a time.

    Args:
        folder: of the store on disk; it exists.
        addresses: gives the addresses of the members of the cluster, by their identities; empty: it has no storage.

    Raises:
        ConfigError: the file cannot be read, or is of a version that this shmjet does not know.
    """

    def __init__(self, folder: Path, addresses: Callable[[], Mapping[str, str]]) -> None:
        self._path = folder / _FILE
        self._addresses = addresses
        content = _read(self._path)
        self.found = None if content is None else content.stored
        """What the last member that used the folder had; None: no partition counts."""
        self._lineages = {} if content is None else content.lineages
        self.waits = True
        """Whether it is not decided yet what of it counts."""
        self._noted: tuple[str, Version] = ("", NO_TABLE)
        self._has: set[int] = set()

    def take_up(self, me: str, table: PartitionTable) -> dict[int, int]:
        """Return the partitions on disk that count again, with their lineages.

        Args:
            me: identity of this member now.
            table: the first in force that does not wait.
        """
        self.waits = False
        place = table.members.index(me)
        if self.found is None or not table.former or table.former[place] != self.found.uuid:
            return {}
        mine = [partition for partition, row in enumerate(table.synced) if place in row]
        return {partition: self._lineages.get(partition) or new_lineage() for partition in mine}

    def note(self, me: str, table: PartitionTable, lineages: Mapping[int, int]) -> None:
        """Note what this member has now; it is on disk when this returns. Raises OSError.

        Args:
            me: its identity.
            table: the one in force.
            lineages: of all partitions of which everything is here.
        """
        if self._noted == (me, table.version) and self._has.issuperset(lineages):
            return
        addresses = self._addresses()
        stored = StoredTable(me, table, tuple(addresses.get(member, member) for member in table.members))
        content = msgspec.msgpack.encode(_Content(_FORMAT, stored, dict(lineages), UNSET))
        replace_file(self._path, with_checksum(content), f"new-{_FILE}")
        self._noted, self._has = (me, table.version), set(lineages)

    def forget(self) -> None:
        """Note that no partition here counts any more. Raises OSError."""
        self._path.unlink(missing_ok=True)
        sync_folder(self._path.parent)
        self._noted = ("", NO_TABLE)


def new_lineage() -> int:
    """Return the lineage of a partition that begins empty."""
    return int.from_bytes(os.urandom(8)) | 1


def _read(path: Path) -> _Content | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _damaged(path, str(error.strerror)) from error
    try:
        found = from_msgpack(data)
        if not isinstance(found, list) or not found or found[0] != _FORMAT:
            version = found[0] if isinstance(found, list) and found else found
            raise ConfigError(
                f"{path} says in format {version!r} which partitions lie here; this shmjet reads {_FORMAT}: start the "
                "version that wrote it, or give another folder as storage"
            )
        content = converter(_Content)(found)
    except (msgspec.MsgspecError, ValueError) as error:
        raise _damaged(path, str(error)) from error
    if not fits(data, content.checksum):
        raise _damaged(path, CHANGED)
    return content


def _damaged(path: Path, how: str) -> ConfigError:
    return ConfigError(
        f"{path} does not say which partitions lie here ({how}): bring it back from a copy, or give another "
        "folder as storage to begin without these maps and lists"
    )
