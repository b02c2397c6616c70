"""The validation record of a snapshot: which pieces in which chunk files are the state of which processor.

A snapshot exists when its manifest does. So the manifest is written last, under a temporary name, and renamed; a torn
or damaged one is found by its checksum. `docs/formats/snapshot.md` has the bytes. Must not know jobs or who writes it.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from shmjet.data.decoders import from_json
from shmjet.data.errors import ShmjetError
from shmjet.host.folders import sync_folder

HEAD: Final = struct.Struct("<8sIIQ")
"""Of a manifest's file: `MAGIC`, `VERSION`, CRC-32 of the body, bytes of the body."""
MAGIC: Final = b"shmjetSM"
VERSION: Final = 1

BROADCAST: Final = -1
"""The partition of pieces with the entries of broadcast keys."""
ENGINE: Final = -2
"""The partition of pieces with entries of the engine's own."""
SEVERAL: Final = -3
"""The partition of pieces with entries of several partitions and processors."""
OWNED: Final = -4
"""The partition of pieces with entries that all belong to processor 0; that of processor 1's is one less, and so on."""


class DamagedSnapshotError(ShmjetError):
    """A manifest or a piece of a chunk file is torn, damaged or missing; the text names the file."""


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """Encoded entries in a chunk file: of one partition, or (-1) of the broadcast keys, or (-2) of the engine's own, or
    (-3) of several partitions.

    `file` is the name of the chunk file, in the manifest's folder, `size` and `offset` are bytes, `entries` is how many
    there are, `checksum` the CRC-32 of the bytes.
    """

    partition: int
    file: str
    offset: int
    size: int
    checksum: int
    entries: int


class ProcessorRecord(msgspec.Struct, frozen=True, array_like=True):
    """The saved state of one processor, by its global index; `finished` when it had ended before the snapshot.

    `tells_rest` of a finished processor: its entries tell other processors what is left to do in its place.
    """

    processor: int
    finished: bool
    pieces: list[Piece]
    tells_rest: bool = True


class SavedVertex(msgspec.Struct, frozen=True, array_like=True):
    """The saved state of one vertex.

    Args:
        name: of the vertex.
        parallelism: processors that it had on all members together.
        partition_count: partitions of the job.
        processors: all of them.
        kind: names what the state is; empty when that is unknown.
    """

    name: str
    parallelism: int
    partition_count: int
    processors: list[ProcessorRecord]
    kind: str = ""

    @property
    def keys(self) -> int:
        """Entries that were saved."""
        return sum(piece.entries for piece in self.pieces())

    @property
    def size(self) -> int:
        """Bytes of the pieces."""
        return sum(piece.size for piece in self.pieces())

    def pieces(self) -> Iterator[Piece]:
        """Yield the pieces of all processors."""
        for record in self.processors:
            yield from record.pieces


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """What makes up one snapshot.

    Args:
        lineage: the sequence of snapshots to which it belongs.
        snapshot_id: its number there, from 1.
        job_id, job_name: of the job.
        created: seconds since the epoch.
        terminal: whether the attempt ended with it.
        vertices: the saved state of all vertices.
        token: of the request for which it was exported; empty for none.
    """

    lineage: str
    snapshot_id: int
    job_id: str
    job_name: str | None
    created: float
    terminal: bool
    vertices: list[SavedVertex]
    token: str = ""

    @property
    def keys(self) -> int:
        """Entries that were saved."""
        return sum(vertex.keys for vertex in self.vertices)

    @property
    def size(self) -> int:
        """Bytes of the pieces."""
        return sum(vertex.size for vertex in self.vertices)

    def files(self) -> set[str]:
        """Return the names of the chunk files that it needs."""
        return {piece.file for vertex in self.vertices for piece in vertex.pieces()}


def write_manifest(path: str | os.PathLike[str], manifest: Manifest, sync: bool = False) -> None:
    """Write a manifest, so that it is there as a whole or not at all.

    Args:
        path: of its file; an older one of this name is replaced.
        manifest: what to write.
        sync: let it reach the disk before this returns, its name in the folder too.

    Raises:
        OSError: it cannot be written; nothing is left then.
    """
    path = Path(path)
    data = manifest_bytes(manifest)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    if sync:
        try:
            sync_folder(path.parent)
        except OSError:
            path.unlink(missing_ok=True)
            raise


def manifest_bytes(manifest: Manifest) -> bytes:
    """Return a manifest as it is in a file."""
    body = msgspec.json.encode(manifest)
    return HEAD.pack(MAGIC, VERSION, zlib.crc32(body), len(body)) + body


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """Read a manifest; the pieces that it names are not looked at.

    Raises:
        DamagedSnapshotError: it is missing, torn, damaged, or of another version.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise DamagedSnapshotError(f"the manifest {str(path)!r} cannot be read: {error.strerror}") from error
    return parse_manifest(data, path)


def parse_manifest(data: bytes, path: str | os.PathLike[str]) -> Manifest:
    """Return the manifest that these bytes are.

    Args:
        data: of its file.
        path: of that file, for errors.

    Raises:
        DamagedSnapshotError: it is torn, damaged, or of another version.
    """
    if len(data) < HEAD.size or not data.startswith(MAGIC):
        raise DamagedSnapshotError(
            f"{str(path)!r} is not the manifest of a snapshot, or it is torn ({len(data)} bytes)"
        )
    _, version, checksum, size = HEAD.unpack_from(data)
    if version != VERSION:
        raise DamagedSnapshotError(f"the manifest {str(path)!r} has version {version}; this one reads {VERSION}")
    body = data[HEAD.size :]
    if len(body) != size or zlib.crc32(body) != checksum:
        raise DamagedSnapshotError(
            f"the manifest {str(path)!r} is damaged: {len(body)} of {size} bytes, or its checksum is wrong"
        )
    try:
        return from_json(body, Manifest)
    except msgspec.DecodeError as error:
        raise DamagedSnapshotError(f"the manifest {str(path)!r} cannot be decoded: {error}") from error
