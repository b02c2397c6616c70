"""The store of a member that is kept on disk: made from the files, followed there, and let go of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from shmjet.core.map_config import MapConfig
from shmjet.grid.disk.restore import restore
from shmjet.grid.disk.writer import DiskWriter, give_up_reserve
from shmjet.grid.store import Grid


class StoreOnDisk:
    """See the module. Making one brings back all that is on disk; from then on all changes go there.

    Args:
        folder: of the store in memory; it must not be there.
        disk: where it is kept.
        partition_count: of maps.
        maps: settings of maps, by name or pattern.
        sync_s: seconds, about, for which a change may be in memory alone; 0: a change waits for the disk.
        is_divided: its partitions come and go; none is open at first.
        phase: takes what is being done.

    Raises:
        ConfigError, GridError, OSError: as `restore` says.
    """

    def __init__(
        self,
        folder: Path,
        disk: Path,
        partition_count: int,
        maps: Mapping[str, MapConfig],
        sync_s: float,
        *,
        is_divided: bool = False,
        phase: Callable[[str], None] = lambda _: None,
    ) -> None:
        give_up_reserve(disk)
        restore(folder, disk, partition_count, maps, waits_for_disk=not sync_s, is_divided=is_divided, phase=phase)
        self._grid = Grid.open(folder)
        self._writer = DiskWriter(self._grid.opened, disk, sync_s)
        self._writer.start()

    def sync(self) -> None:
        """Return when all changes that have been committed are on disk. Raises OSError if they cannot be."""
        self._writer.sync()

    def close(self) -> None:
        """Bring the last changes to disk; no process may change the store any more."""
        self._writer.stop()
        self._grid.close()
