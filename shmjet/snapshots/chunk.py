"""Chunk files: pieces of saved state, appended by one process and never changed.

A piece holds entries of one partition, or of several where they are few. Entries of plain values go as columns, others
as one pickle that needs no job to be read. Every piece has a checksum, which the manifest keeps as well, so that a torn
or damaged one is found before an entry of it is used. `docs/formats/snapshot.md` has the bytes. Must not know vertices.
"""

from __future__ import annotations

import errno
import os
import pickle
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from weakref import WeakSet

from shmjet._native import Codec
from shmjet.data.checksum import crc32
from shmjet.data.errors import ShmjetError
from shmjet.ring.class_versions import ClassName, NewerClasses
from shmjet.ring.frames import CODEC_COLUMNS, CODEC_PICKLE
from shmjet.ring.pickling import ItemEncodingError, carries_classes, dumps_by_value, loads, loads_by
from shmjet.snapshots.manifest import DamagedSnapshotError, Piece
from shmjet.snapshots.unreadable import short_text, unreadable_entry

FILE_HEAD: Final = struct.Struct("<8sII")
"""Of a chunk file: `MAGIC`, `VERSION`, 0."""
MAGIC: Final = b"shmjetSC"
VERSION: Final = 1

PIECE_HEAD: Final = struct.Struct("<iIIBB2xQ")
"""Of a piece: partition, number of partitions (0: it is of none), entries, codec, scheme, bytes of the payload."""

SCHEME_NONE: Final = 0
"""The entries are of several partitions, or of none."""
SCHEME_DEFAULT: Final = 1
"""Partitions are those of the default partitioner."""
SCHEME_CUSTOM: Final = 2
"""Partitions are those of a function that only the job knows."""
SCHEME_ROWS: Final = 3
"""The entries are rows of all partitions of a processor, under the keys `OwnRows`."""

_READ_BACK: WeakSet[type] = WeakSet()
"""Classes of values that this process has read back."""

_KEPT_BYTES: Final = 1 << 20
"""Pieces up to this size are read into a buffer that is kept: pieces of tables have half as much, or less."""

_MOST_PARTS = 512
"""Buffers of one write; the system takes 1,024 at most."""

Entry = tuple[Any, Any]


class EntryError(ItemEncodingError):
    """An entry cannot be saved, because its key or its value cannot be pickled."""


class UnreadableEntryError(ShmjetError):
    """An entry of a piece cannot be unpickled, as when its class is not there any more; the text names both."""


class PieceHead(NamedTuple):
    """What a piece says of itself, see `PIECE_HEAD`."""

    partition: int
    partition_count: int
    entries: int
    codec: int
    scheme: int
    size: int


class ChunkWriter:
    """Appends pieces to one chunk file, which is made with the first of them.

    Args:
        path: of the file; one of this name must not be there.
        codec: of this process.
    """

    def __init__(self, path: str | os.PathLike[str], codec: Codec) -> None:
        self.path = Path(path)
        self.size = 0
        self._codec = codec
        self._fd = -1

    def _read_back(self, entries: Sequence[Entry]) -> None:
        """Unpickle the first entry with a value of each class that this process has not seen yet.

        So what can be saved and not restored is found before anything relies on it.

        Raises:
            EntryError: it cannot be unpickled.
        """
        for entry in entries:
            kind = type(entry[1])
            if kind in _READ_BACK:
                continue
            _READ_BACK.add(kind)
            try:
                list(loads(b"".join(map(bytes, dumps_by_value([entry])))))
            except Exception as error:
                _READ_BACK.discard(kind)
                raise EntryError(
                    f"the entry of key {short_text(entry[0])} could not be restored: its value, a {kind.__qualname__}, "
                    f"can be pickled, but reading it back raises {type(error).__name__}: {error}"
                ) from error

    def write(
        self,
        entries: Sequence[Entry],
        partition: int,
        partition_count: int = 0,
        scheme: int = SCHEME_NONE,
        *,
        most: int | None = None,
    ) -> Piece | None:
        """Append a piece with these entries, of which there is at least one.

        Args:
            entries: a list of (key, value).
            partition: of all of them, or one of the negative numbers in `shmjet.snapshots.manifest`.
            partition_count: how many partitions there are.
            scheme: how keys are brought to partitions.
            most: bytes that the payload may have; None: any number.

        Returns:
            where it is; None when it has more than `most` bytes, and then nothing is written.

        Raises:
            EntryError: an entry cannot be pickled; the text names its key.
            OSError: there is no room, or the file cannot be made or written.
        """
        payload = self._codec.encode(entries if type(entries) is list else list(entries), 0, len(entries))
        codec = CODEC_COLUMNS
        parts: list[Any]
        if payload is None:
            codec, parts = CODEC_PICKLE, list(_pickled(entries))
            self._read_back(entries)
        else:
            parts = [payload]
        size = sum(memoryview(part).nbytes for part in parts)
        if most is not None and size > most:
            return None
        head = PIECE_HEAD.pack(partition, partition_count, len(entries), codec, scheme, size)
        checksum = crc32(head)
        for part in parts:
            checksum = crc32(part, checksum)
        self._open()
        offset = self.size
        self._append([head, *parts])
        return Piece(partition, self.path.name, offset, PIECE_HEAD.size + size, checksum, len(entries))

    def _open(self) -> None:
        if self._fd >= 0:
            return
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._append([FILE_HEAD.pack(MAGIC, VERSION, 0)])

    def _append(self, parts: Sequence[Any]) -> None:
        """Write parts one behind the other; a file that cannot take all of them is as before."""
        waiting = [memoryview(part).cast("B") for part in parts if len(part)]
        size = 0
        try:
            while waiting:
                written = os.writev(self._fd, waiting[:_MOST_PARTS])
                if written == 0:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
                size += written
                while waiting and written >= waiting[0].nbytes:
                    written -= waiting.pop(0).nbytes
                if written:
                    waiting[0] = waiting[0][written:]
        except OSError:
            os.ftruncate(self._fd, self.size)
            os.lseek(self._fd, self.size, os.SEEK_SET)
            raise
        self.size += size

    def sync(self) -> None:
        """Let what was written reach the disk. Raises OSError when it cannot."""
        if self._fd >= 0:
            os.fsync(self._fd)

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class ChunkReader:
    """Reads pieces of the chunk files in one folder; files are opened when first needed.

    Pieces are read into one buffer, not mapped: a mapping costs a fault for every few pages, and as much again when its
    process ends. A killed worker is known to be lost only after that.

    Args:
        folder: where they are.
        codec: of this process.
        classes: of the job, in place of classes of the same name that came by value with the entries.
    """

    def __init__(
        self, folder: str | os.PathLike[str], codec: Codec, classes: Mapping[ClassName, type] | None = None
    ) -> None:
        self._files: dict[str, int] = {}
        self._folder = Path(folder)
        self._codec = codec
        self._classes = classes or {}
        self._buffer = bytearray()

    def head(self, piece: Piece) -> PieceHead:
        """Return what a piece says of itself, without looking at its payload.

        Raises:
            DamagedSnapshotError: its file is missing or too short, or the head does not fit the piece.
        """
        head = bytearray(PIECE_HEAD.size)
        self._read(piece, memoryview(head))
        return self._head_in(piece, head)

    def _head_in(self, piece: Piece, data: bytearray | memoryview) -> PieceHead:
        head = PieceHead(*PIECE_HEAD.unpack_from(data))
        if (head.partition, head.entries, head.size) != (piece.partition, piece.entries, piece.size - PIECE_HEAD.size):
            raise self._damaged(piece, "its head is not that of the manifest")
        return head

    def check(self, piece: Piece) -> None:
        """Compare a piece with its checksum.

        Raises:
            DamagedSnapshotError: it is torn, damaged or missing.
        """
        with self._whole(piece):
            pass

    def entries(self, piece: Piece) -> list[Entry]:
        """Return the entries of a piece, as new objects.

        Raises:
            DamagedSnapshotError: it is torn, damaged or missing.
            UnreadableEntryError: an entry cannot be unpickled.
        """
        with self._whole(piece) as data, data[PIECE_HEAD.size :] as payload:
            head = self._head_in(piece, data)
            if head.codec == CODEC_COLUMNS:
                return self._codec.decode(payload, head.entries)
            if head.codec == CODEC_PICKLE:
                return _unpickled(payload, self._classes)
        raise self._damaged(piece, f"it has an unknown codec {head.codec}")

    def _whole(self, piece: Piece) -> memoryview:
        """Return the bytes of a piece, which are those of its checksum; they are valid until the next piece is read."""
        size = piece.size
        if size <= _KEPT_BYTES and size > len(self._buffer):
            self._buffer = bytearray(min(2 * size, _KEPT_BYTES))
        data = memoryview(self._buffer if size <= _KEPT_BYTES else bytearray(size))[:size]
        self._read(piece, data)
        if crc32(data) != piece.checksum:
            raise self._damaged(piece, "its checksum is wrong")
        return data

    def _read(self, piece: Piece, into: memoryview) -> None:
        """Fill a buffer with the first bytes of a piece."""
        fd = self._files.get(piece.file)
        if fd is None:
            fd = self._files[piece.file] = self._open(piece.file)
        if piece.offset < FILE_HEAD.size or piece.size < PIECE_HEAD.size:
            raise self._damaged(piece, "it has no such place")
        done = 0
        while done < len(into):
            try:
                count = os.preadv(fd, [into[done:]], piece.offset + done)
            except OSError as error:
                raise self._damaged(piece, f"it cannot be read: {error.strerror}") from error
            if not count:
                raise self._damaged(piece, f"the file has {os.fstat(fd).st_size} bytes")
            done += count

    def _open(self, name: str) -> int:
        path = self._folder / name
        fd = -1
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            head = os.pread(fd, FILE_HEAD.size, 0)
            if len(head) < FILE_HEAD.size:
                raise DamagedSnapshotError(f"chunk file {str(path)!r} is torn: it has {len(head)} bytes")
            magic, version, _ = FILE_HEAD.unpack(head)
            if magic != MAGIC or version != VERSION:
                raise DamagedSnapshotError(f"{str(path)!r} is not a chunk file of version {VERSION}")
        except (OSError, DamagedSnapshotError) as error:
            if fd >= 0:
                os.close(fd)
            if isinstance(error, DamagedSnapshotError):
                raise
            raise DamagedSnapshotError(f"chunk file {str(path)!r} cannot be read: {error.strerror}") from error
        return fd

    def _damaged(self, piece: Piece, why: str) -> DamagedSnapshotError:
        return DamagedSnapshotError(
            f"chunk file {str(self._folder / piece.file)!r} is damaged: the piece of {piece.size} bytes at "
            f"{piece.offset}: {why}"
        )

    def close(self) -> None:
        """Close the files, and let go of the buffer; idempotent. What is read afterwards opens them again."""
        while self._files:
            os.close(self._files.popitem()[1])
        self._buffer = bytearray()

    def __del__(self) -> None:
        self.close()  # an execution that could not be made, as a class is gone, closes nothing


def check_pieces(folder: str | os.PathLike[str], pieces: Iterable[Piece]) -> None:
    """Compare pieces with their checksums, before a snapshot is relied upon.

    Raises:
        DamagedSnapshotError: one is torn, damaged or missing.
    """
    reader = ChunkReader(folder, Codec())
    try:
        for piece in pieces:
            reader.check(piece)
            reader.head(piece)
    finally:
        reader.close()


def _unpickled(payload: memoryview, classes: Mapping[ClassName, type]) -> list[Entry]:
    def load(stream: memoryview, buffers: Iterable[Any]) -> Any:
        # Only the pickle itself is searched: its buffers have the columns, which may be all of the state.
        if carries_classes(stream):
            return NewerClasses(stream, buffers, classes).load()
        return pickle.loads(stream, buffers=buffers)

    try:
        return list(loads_by(payload, load) if classes else loads(payload))
    except Exception as error:
        found = unreadable_entry(payload, classes)
        of_key = "" if found is None else f"the entry of key {found[0]} needs {found[1]}: "
        raise UnreadableEntryError(f"{of_key}{type(error).__name__}: {error}") from error


def _pickled(entries: Sequence[Entry]) -> Sequence[Any]:
    """Pickle entries so that any process can read them; classes that cannot be imported go along."""
    try:
        return dumps_by_value(list(entries))
    except Exception as error:
        for entry in entries:
            try:
                dumps_by_value(entry)
            except Exception as cause:
                raise EntryError(
                    f"the entry of key {short_text(entry[0])} cannot be saved: its value, a "
                    f"{type(entry[1]).__qualname__}, cannot be pickled: {type(cause).__name__}: {cause}"
                ) from cause
        raise EntryError(f"{len(entries)} entries cannot be saved: {type(error).__name__}: {error}") from error
