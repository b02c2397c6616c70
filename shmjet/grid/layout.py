"""The bytes of a store: its folder, its keys, its catalogue.

Pure description, held against docs/formats/grid.md by a test: no LMDB and no file is opened in here. The key prefix
(incarnation, partition) in place of a named LMDB database per map has two reasons: any number of maps fit, and
`clear()` is one changed record per environment, after which the old incarnation is garbage that is swept in short
transactions.
"""

from __future__ import annotations

import dataclasses
import os
import struct
from pathlib import Path

import msgspec

from shmjet.grid.errors import GridError

VERSION = 1
LAYOUT_FILE = "grid.json"
BLOB_FOLDER = "blobs"
ANNOUNCEMENTS_FILE = "commits"
RESERVE_FILE, RESERVE_SIZE = "reserve", 1 << 20
"""Room that is given up when the file system is full and a user clears a map."""

CATALOGUE = b"\x00\x00\x00\x00"
"""Incarnation 0: the records that describe an environment itself. Data starts at incarnation 1."""
MAP_RECORD, LIST_RECORD = CATALOGUE + b"m", CATALOGUE + b"l"
GARBAGE_RECORD = CATALOGUE + b"g"
TYPE_RECORD = CATALOGUE + b"t"
LAST_INCARNATION = CATALOGUE + b"i"
MARKER_RECORD = CATALOGUE + b"w"

MAX_NAME = 400
"""Bytes of UTF-8 that the name of a map or list may have."""
MAX_KEY = 511
"""Longest key that LMDB takes as it is usually compiled."""
HASHED = b"#"
"""Tag of a key whose tagged bytes would not fit; `shmjet.core.keys` uses letters only."""

INCARNATION = struct.Struct(">I")
PARTITION = struct.Struct(">H")
INDEX = struct.Struct(">Q")
MARK = struct.Struct(">Q")
RECORD = struct.Struct(">IQB")
PREFIX = INCARNATION.size + PARTITION.size
MAX_TAGGED = MAX_KEY - PREFIX
MOST_MAP_SIZE = 64 << 30


@dataclasses.dataclass(frozen=True)
class Layout:
    """What every process has to know of a store before it opens it.

    Args:
        partition_count: partitions of each map.
        environments: LMDB environments; partition p lives in environment p mod `environments`.
        map_size: most bytes that one environment may hold. Address space, not memory: the file grows as it fills.
    """

    partition_count: int = 271
    environments: int = 8
    map_size: int = MOST_MAP_SIZE
    version: int = VERSION

    def write(self, folder: Path) -> None:
        """Write the layout into `folder`, whole or not at all."""
        draft = folder / (LAYOUT_FILE + ".new")
        draft.write_bytes(msgspec.json.encode(self))
        os.replace(draft, folder / LAYOUT_FILE)

    @staticmethod
    def read(folder: Path) -> Layout:
        """Read the layout of the store in `folder`.

        Raises:
            GridError: there is no store in `folder`, or one of another version.
        """
        try:
            found = msgspec.json.decode((folder / LAYOUT_FILE).read_bytes(), type=Layout)
        except FileNotFoundError:
            raise GridError(f"no store of maps and lists in {folder}: is the instance that owned it gone?") from None
        except msgspec.MsgspecError as error:
            raise GridError(f"{folder / LAYOUT_FILE} does not describe a store: {error}") from error
        if found.version != VERSION:
            raise GridError(f"the store in {folder} has version {found.version}; this shmjet reads version {VERSION}")
        return found


@dataclasses.dataclass(frozen=True)
class Record:
    """What an environment knows of one map or list.

    Args:
        incarnation: prefix of its keys; a new one with every `clear()`.
        size: entries of a map in this environment, or items of a list.
        has_blobs: whether a value may lie in a file of its own, so that a write over one has to look.
    """

    incarnation: int
    size: int = 0
    has_blobs: bool = False

    def pack(self) -> bytes:
        """The 13 bytes that are stored."""
        return RECORD.pack(self.incarnation, self.size, self.has_blobs)

    @staticmethod
    def unpack(data: bytes) -> Record:
        """The inverse of `pack`."""
        incarnation, size, has_blobs = RECORD.unpack(data)
        return Record(incarnation, size, bool(has_blobs))


def record_key(kind: bytes, name: str) -> bytes:
    """Return the catalogue's key for the map or list `name`; `kind` is MAP_RECORD or LIST_RECORD.

    Raises:
        TypeError: the name is not text.
        ValueError: the name is empty or longer than MAX_NAME bytes.
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of a map or list is text, got {name!r}")
    encoded = name.encode("utf-8", "surrogatepass")
    if not 0 < len(encoded) <= MAX_NAME:
        raise ValueError(f"the name of a map or list has 1 to {MAX_NAME} bytes of UTF-8, got {len(encoded)}")
    return kind + encoded


def fitting(tagged: bytes) -> bytes:
    """Return `tagged` itself, or a digest of it when a key of that length does not fit.

    The digest has 32 bytes, so two keys do not meet by chance; the full key is part of the stored entry.
    """
    if len(tagged) <= MAX_TAGGED:
        return tagged
    import hashlib  # it loads OpenSSL, for the few that have such keys

    return HASHED + hashlib.blake2b(tagged, digest_size=32).digest()
