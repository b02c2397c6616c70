"""The files of large values in a store that is divided among members: backups are told which of them go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shmjet.grid.blobs import BlobStore
from shmjet.grid.carried import place_of
from shmjet.grid.change_log import FilesGone, Recorder
from shmjet.grid.environment import Environment, Transaction
from shmjet.grid.layout import PARTITION
from shmjet.grid.ownership import opening


class DividedBlobs(BlobStore):
    """See the module. Names begin with the partition.

    Args:
        folder, reserve, gone: as `BlobStore`.
    """

    environments: Sequence[Environment] = ()
    """Of the store."""

    def delete(self, names: Iterable[bytes]) -> None:
        """See `BlobStore.delete`."""
        by_place: dict[int, list[bytes]] = {}
        for name in filter(self.is_name, names):
            by_place.setdefault(place_of(name), []).append(bytes(name))
        for place, some in by_place.items():
            self._tell(place, some)
            super().delete(some)

    def _tell(self, place: int, names: list[bytes]) -> None:
        if not 0 <= place < 1 << 16:
            return
        env, packed = self.environments[place % len(self.environments)], PARTITION.pack(place)
        with env.begin() as txn:
            found = opening(txn, packed)
        if found is None or not found.is_noted:
            return

        def work(txn: Transaction) -> None:
            recorder = Recorder(txn, env)
            recorder.note(packed, FilesGone(names))
            recorder.close()

        env.write(work, "that files are gone")
