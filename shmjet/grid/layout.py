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

from shmjet.core.map_config import MapConfig
from shmjet.data.decoders import from_json
from shmjet.grid.errors import GridError

VERSION = 5
LAYOUT_FILE = "grid.json"
BLOB_FOLDER = "blobs"
GONE_FOLDER = "gone"
"""Files of large values that no entry names any more, until the disk knows so, too."""
ANNOUNCEMENTS_FILE = "commits"
USES_FILE = "uses"
RESERVE_FILE, RESERVE_SIZE = "reserve", 1 << 20
"""Room that is given up when the file system is full and a user clears a map."""

CATALOGUE = b"\x00\x00\x00\x00"
"""Incarnation 0: the records that describe an environment itself. Data starts at incarnation 1."""
MAP_RECORD, LIST_RECORD = CATALOGUE + b"m", CATALOGUE + b"l"
GARBAGE_RECORD = CATALOGUE + b"g"
TYPE_RECORD = CATALOGUE + b"t"
LAST_INCARNATION = CATALOGUE + b"i"
MARKER_RECORD = CATALOGUE + b"w"
PARTITION_RECORD = CATALOGUE + b"p"
END_RECORD, USE_RECORD = CATALOGUE + b"e", CATALOGUE + b"u"
"""The indexes of the entries that have times: by end, and by use."""
LOG_RECORD = CATALOGUE + b"j"
"""The identity of a journal, which it keeps where its partition goes."""
OPEN_RECORD = CATALOGUE + b"o"
"""Of the partitions that are open here, in a store that is divided among members; see `ownership`."""
CHANGE_RECORD, LAST_CHANGE = CATALOGUE + b"r", CATALOGUE + b"n"
"""What backups have to be told of transactions, by number, and the highest number given out; see `change_log`."""
CLIENT_RECORD = CATALOGUE + b"c"
"""Of those whose operations come from elsewhere, and of the results of these; see `kept_results`."""
BY_PARTITION = (MARKER_RECORD, CLIENT_RECORD)
"""Records of the catalogue that belong to a partition, which is the first part of their keys."""

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
TIME = struct.Struct(">Q")
OPEN = struct.Struct(">QBQ")
RECORD = struct.Struct(">IQBQI")
FLAGS_AT = INCARNATION.size + INDEX.size
SIZES = struct.Struct(">QQQ")
PREFIX = INCARNATION.size + PARTITION.size
MAX_TAGGED = MAX_KEY - PREFIX
MOST_MAP_SIZE = 64 << 30


class Layout(msgspec.Struct, frozen=True):
    """What every process has to know of a store before it opens it.

    Args:
        partition_count: partitions of each map.
        environments: LMDB environments; partition p lives in environment p mod `environments`.
        map_size: most bytes that one environment may hold. Address space, not memory: the file grows as it fills.
        maps: settings of maps, by name or pattern.
        is_divided: it has those partitions alone that are open here; others are on other members.
        disk: folder in which the store is kept on disk, and its large values lie; empty: it ends with the member.
        waits_for_disk: whether a change counts only when it is there.
    """

    partition_count: int = 271
    environments: int = 8
    map_size: int = MOST_MAP_SIZE
    version: int = VERSION
    maps: dict[str, MapConfig] = dataclasses.field(default_factory=dict)
    is_divided: bool = False
    disk: str = ""
    waits_for_disk: bool = False

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
            found = from_json((folder / LAYOUT_FILE).read_bytes(), Layout)
        except FileNotFoundError:
            raise GridError(f"no store of maps and lists in {folder}: is the instance that owned it gone?") from None
        except msgspec.MsgspecError as error:
            raise GridError(f"{folder / LAYOUT_FILE} does not describe a store: {error}") from error
        if found.version != VERSION:
            raise GridError(f"the store in {folder} has version {found.version}; this shmjet reads version {VERSION}")
        return found


HAS_BLOBS, HAS_TIMES, HAS_ENDS = 1, 2, 4
"""Flags of a record: a value may lie in a file of its own; an entry may have a trailer, see `times`; one may end."""


class Record(msgspec.Struct):
    """What an environment knows of one map or list.

    Args:
        incarnation: prefix of its keys; a new one with every `clear()`.
        size: entries of a map in this environment, or items of a list.
        flags: what a reader or writer has to look for; `HAS_BLOBS` and the others.
        weight: bytes of the entries of a map with a limit.
        log: prefix of the events of a map with a journal, 0 for none.
    """

    incarnation: int
    size: int = 0
    flags: int = 0
    weight: int = 0
    log: int = 0

    def pack(self) -> bytes:
        """The 25 bytes that are stored."""
        return RECORD.pack(self.incarnation, self.size, self.flags, self.weight, self.log)

    @staticmethod
    def unpack(data: bytes) -> Record:
        """The inverse of `pack`."""
        return Record(*RECORD.unpack(data))


class Sizes(msgspec.Struct):
    """What an environment knows of one partition of a map.

    Args:
        entries: how many it has.
        following: sequence of its next event; 0 without a journal.
        oldest: sequence of the oldest event that may still be there.
    """

    entries: int = 0
    following: int = 0
    oldest: int = 0

    def pack(self) -> bytes:
        """The 24 bytes that are stored."""
        return SIZES.pack(self.entries, self.following, self.oldest)

    @staticmethod
    def unpack(data: bytes | None) -> Sizes:
        """The inverse of `pack`; None stands for a partition without a record."""
        return Sizes() if data is None else Sizes(*SIZES.unpack(data))


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


def name_of(record: bytes) -> str:
    """Return the name of a map or list from its key in the catalogue."""
    return record[len(MAP_RECORD) :].decode("utf-8", "surrogatepass")


def fitting(tagged: bytes) -> bytes:
    """Return `tagged` itself, or a digest of it when a key of that length does not fit.

    The digest has 32 bytes, so two keys do not meet by chance; the full key is part of the stored entry.
    """
    if len(tagged) <= MAX_TAGGED:
        return tagged
    import hashlib  # it loads OpenSSL, for the few that have such keys

    return HASHED + hashlib.blake2b(tagged, digest_size=32).digest()
