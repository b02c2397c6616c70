"""Writes the state of processors: splits their entries by partition and appends pieces to the process' chunk file.

There is one `SnapshotWriter` for each process and snapshot, and one `ProcessorEntries` for each processor that saves.
A file that cannot be written makes the snapshot invalid and nothing else: entries are dropped from then on. Must not
know tasklets.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

from shmjet._native import Codec
from shmjet.core.broadcast_key import BroadcastKey
from shmjet.core.state_placement import OwnRows
from shmjet.data.columnar import Columnar
from shmjet.execution.lasting_pieces import NOTHING, LastingPieces
from shmjet.execution.state_partitions import StatePartitions
from shmjet.snapshots.chunk import SCHEME_DEFAULT, SCHEME_NONE, SCHEME_ROWS, ChunkWriter, Entry
from shmjet.snapshots.manifest import BROADCAST, ENGINE, OWNED, SEVERAL, Piece

_CHUNK, _LASTING = ".chunk", "lasting"

_FEW_ENTRIES = 2048
"""Up to so many entries of a processor make one piece, if they are not large."""
PIECE_BYTES = 256 << 10
"""About so many bytes has a piece where there are many entries."""
_LEAST_ENTRIES, _FIRST_ENTRIES, _MOST_ENTRIES = 16, 256, 2048
"""Entries of a piece: at least, before it is known how large they are, and at most."""
_LARGE_ENTRY = 4 << 10
"""Entries of about so many bytes go by partition, so that another number of processors reads them once in all."""


_WITHOUT_PARTITION = (BroadcastKey, OwnRows)


class SnapshotWriter:
    """Appends pieces of one snapshot for all processors of a process.

    Args:
        folder: in which the chunk files are made, each with its first piece.
        name: of the file; that of lasting pieces has a name of its own.
        codec: of this process.
    """

    def __init__(self, folder: str, name: str, codec: Codec) -> None:
        self.error: str | None = None
        """Why the snapshot cannot become valid."""
        self._chunk = ChunkWriter(Path(folder) / name, codec)
        self._lasting = ChunkWriter(Path(folder) / f"{name.removesuffix(_CHUNK)}-{_LASTING}{_CHUNK}", codec)

    def write(
        self,
        entries: list[Entry],
        partition: int,
        partition_count: int = 0,
        scheme: int = SCHEME_NONE,
        *,
        most: int | None = None,
    ) -> Piece | None:
        """Append a piece; None when the file cannot take it, or could not before, or it has more bytes than `most`.

        Raises:
            EntryError: an entry cannot be pickled.
        """
        return self._write(self._chunk, entries, partition, partition_count, scheme, most)

    def write_lasting(self, entries: list[Entry], partition: int, partition_count: int, scheme: int) -> Piece | None:
        """As `write`, into the file of pieces that later snapshots may refer to."""
        return self._write(self._lasting, entries, partition, partition_count, scheme)

    def _write(
        self,
        chunk: ChunkWriter,
        entries: list[Entry],
        partition: int,
        partition_count: int,
        scheme: int,
        most: int | None = None,
    ) -> Piece | None:
        if self.error is not None:
            return None
        try:
            return chunk.write(entries, partition, partition_count, scheme, most=most)
        except OSError as error:
            self.error = f"cannot write chunk file {str(chunk.path)!r}: {error.strerror or error}"
            return None

    def close(self) -> None:
        """Close the files; idempotent."""
        self._chunk.close()
        self._lasting.close()


class ProcessorEntries:
    """The entries that one processor has offered to one snapshot, on their way into pieces.

    Args:
        writer: of the process and the snapshot.
        partitions: of the vertex.
        processor: its index on this member.
        before: lasting pieces of the last valid snapshot.
    """

    def __init__(
        self, writer: SnapshotWriter, partitions: StatePartitions, processor: int, before: LastingPieces = NOTHING
    ) -> None:
        self.pieces: list[Piece] = []
        self._before = before
        self._lasting: dict[Hashable, list[Piece]] = {}
        self._written: dict[str, int] = {}
        self._writer = writer
        self._partitions = partitions
        self._processor = partitions.first + processor
        self._waiting: dict[int, list[Entry]] = {}
        self._broadcast: list[Entry] = []
        self._own_rows: list[Entry] = []
        self._count = 0
        self._full: set[int] = set()
        self._are_large = False
        self._go_by_partition = partitions.scheme != SCHEME_DEFAULT
        self._column_bytes = 0
        self._are_others_full = False
        self._piece_entries = _FIRST_ENTRIES

    def add(self, entries: list[Entry]) -> None:
        """Take entries; where there are many of one processor or partition now, they are written by `write_full`.

        Entries go by processor. Those with columns go by partition, because they are large, and so do others when a
        piece has shown that they are: where there are other processors than before, each reads its own only. `OwnRows`
        are pieces by themselves.

        Raises:
            TypeError: a key has no canonical bytes.
        """
        columns = column_bytes(entries)
        by_owner = not columns and not self._go_by_partition
        shares = self._split(entries, by_owner=True) if by_owner else None
        if shares is None:
            self._broadcast += [entry for entry in entries if type(entry[0]) is BroadcastKey]
            self._own_rows += [entry for entry in entries if type(entry[0]) is OwnRows]
            entries = [tuple(entry) for entry in entries if type(entry[0]) not in _WITHOUT_PARTITION]
            shares = self._split(entries, by_owner=by_owner)
            assert shares is not None
        self._count += len(entries)
        for place, share in enumerate(shares):
            self._keep(OWNED - place if by_owner else place, share)
        self._column_bytes += columns
        if self._column_bytes >= PIECE_BYTES:
            self._column_bytes = 0
            self._full.update(self._waiting)
            self._are_others_full = bool(self._broadcast or self._own_rows)

    def _split(self, entries: list[Entry], *, by_owner: bool) -> list[list[Entry] | None] | None:
        partitions = self._partitions
        try:
            return partitions.split_by_owner(entries) if by_owner else partitions.split(entries)
        except TypeError as error:
            if partitions.scheme != SCHEME_DEFAULT:
                raise  # of the user's partitioner
            raise TypeError(f"an entry of offer_to_snapshot() cannot be saved under its key: {error}") from error

    def _keep(self, partition: int, share: list[Entry] | None) -> None:
        if share is None:
            return
        there = self._waiting.get(partition)
        if there is None:
            self._waiting[partition] = there = share
        else:
            there.extend(share)
        if len(there) >= self._piece_entries:
            self._full.add(partition)

    def add_own(self, entries: list[Entry]) -> None:
        """Write entries of the engine's own."""
        self._write(entries, ENGINE)

    def refer(self, token: Hashable) -> bool:
        """Refer to what the last valid snapshot has under a token; False where it has nothing."""
        found = self._before.of(token)
        if found is None:
            return False
        self._lasting[token] = list(found)
        self.pieces += found
        for piece in found:
            self._written[piece.file] = self._before.written(piece.file)
        return True

    def add_lasting(self, token: Hashable, entry: Entry) -> None:
        """Write an entry to which later snapshots may refer, under a token.

        Raises:
            EntryError: it cannot be pickled.
        """
        partition = BROADCAST
        if type(entry[0]) is not BroadcastKey:
            shares = self._partitions.split([entry])
            partition = next(number for number, share in enumerate(shares) if share is not None)
        head = self._head(partition) if partition >= 0 else (BROADCAST, 0, SCHEME_NONE)
        piece = self._writer.write_lasting([entry], *head)
        if piece is not None:
            self._lasting.setdefault(token, []).append(piece)
            self.pieces.append(piece)
            self._written[piece.file] = self._written.get(piece.file, 0) + piece.size

    def lasting(self) -> LastingPieces:
        """Return what the next snapshot may refer to when this one is valid."""
        return LastingPieces(self._lasting, self._written)

    def write_full(self, overdue: Callable[[], bool]) -> bool:
        """Write where there are many entries, or much in columns; arguments, answer and errors as `flush`."""
        full = self._full
        if self._are_others_full:
            self._are_others_full = False
            self._write_others()
            if full and overdue():
                return False
        while full:
            partition = full.pop()
            if self._write_some(partition) >= self._piece_entries:
                full.add(partition)
            if full and overdue():
                return False
        return True

    def flush(self, overdue: Callable[[], bool]) -> bool:
        """Write what is waiting, piece by piece.

        Args:
            overdue: asked after each piece; True ends this call.

        Returns:
            False when there is more.

        Raises:
            EntryError: an entry cannot be pickled.
        """
        self._write_others()
        waiting = self._waiting
        if waiting and self._count <= _FEW_ENTRIES and not self._are_large:
            self._write_together()
        while waiting:
            self._write_some(next(reversed(waiting)))
            if waiting and overdue():
                return False
        self._full.clear()
        return True

    def _write_others(self) -> None:
        """Write what belongs to no partition."""
        if self._broadcast:
            entries, self._broadcast = self._broadcast, []
            self._write(entries, BROADCAST)
        if self._own_rows:
            entries, self._own_rows = self._own_rows, []
            self._write(entries, OWNED - self._processor, self._partitions.checksum, SCHEME_ROWS)

    def _write_together(self) -> None:
        """Write all that waits as one piece, unless it is large."""
        waiting = self._waiting
        if len(waiting) == 1:
            ((partition, together),) = waiting.items()
            head = self._head(partition)
        else:
            together = [entry for share in waiting.values() for entry in share]
            head = SEVERAL, 0, SCHEME_NONE
        # An entry by itself is written whatever its size: it would be encoded twice, and may be most of the state.
        piece = self._writer.write(together, *head, most=None if len(together) == 1 else PIECE_BYTES)
        if piece is not None:
            self.pieces.append(piece)
        elif self._writer.error is None:
            self._are_large = True
            self._piece_entries = _LEAST_ENTRIES
            return
        waiting.clear()

    def _write_some(self, partition: int) -> int:
        """Write a piece with entries of a partition, or of a processor, and return how many are left."""
        entries, most = self._waiting.pop(partition, None), self._piece_entries
        if entries is None:
            return 0
        if len(entries) > most:
            self._waiting[partition] = waiting = entries
            entries = waiting[-most:]
            del waiting[-most:]
        piece = self._write(entries, *self._head(partition))
        if piece is not None:
            fitting = PIECE_BYTES * len(entries) // piece.size
            if partition <= OWNED and piece.size >= _LARGE_ENTRY * len(entries):
                self._begin_to_go_by_partition()
            least = 1 if self._go_by_partition else _LEAST_ENTRIES
            self._piece_entries = max(least, min(_MOST_ENTRIES, fitting))
        return len(self._waiting.get(partition, ()))

    def _begin_to_go_by_partition(self) -> None:
        """Take that entries are large, and sort out by partition what waits."""
        self._go_by_partition = True
        for place in [place for place in self._waiting if place <= OWNED]:
            self._full.discard(place)
            for partition, share in enumerate(self._partitions.split(self._waiting.pop(place))):
                self._keep(partition, share)

    def _head(self, partition: int) -> tuple[int, int, int]:
        """Return what the head of a piece says of partitions."""
        partitions = self._partitions
        return partition, partitions.count if partition >= 0 else partitions.checksum, partitions.scheme

    def _write(
        self, entries: list[Entry], partition: int, partition_count: int = 0, scheme: int = SCHEME_NONE
    ) -> Piece | None:
        piece = self._writer.write(entries, partition, partition_count, scheme)
        if piece is not None:
            self.pieces.append(piece)
        return piece


def column_bytes(entries: list[Entry]) -> int:
    """Return the bytes of the batches in entries, if there is one in the last; tables save their rows so.

    Only the last entry is looked at otherwise, because most state has many small entries.
    """
    if not entries or not _batch_bytes(entries[-1][1]):
        return 0
    return sum(_batch_bytes(value) for _, value in entries)


def _batch_bytes(value: Any) -> int:
    if isinstance(value, Columnar):
        return max(value.nbytes, 1)
    return sum(map(_batch_bytes, value)) if type(value) is tuple else 0
