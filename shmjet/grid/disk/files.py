"""The files of a store on disk: their names, the frames of a log, and the times of their host's clock.

A log is a sequence of frames, each one record of `change_log`. A frame that was being written when the host lost power
is cut off at the end of a log; anything else that does not fit is damage, and named by file and offset.
"""

from __future__ import annotations

import os
import re
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from shmjet.core.map_config import MapConfig
from shmjet.data.checksum import crc32
from shmjet.data.decoders import from_json
from shmjet.data.errors import ConfigError
from shmjet.grid.disk.checksums import CHANGED, UNSET, fits, with_checksum
from shmjet.grid.errors import GridError
from shmjet.grid.times import now
from shmjet.host.folders import replace_file

FORMAT = 2
"""The version of what is described here."""
FORMATS = (1, FORMAT)
"""Versions that are read; a folder of another one is refused. The first one has no partitions that come and go."""
STORE_FILE = "store.json"
CHECKPOINT, LOG, UNFINISHED = "checkpoint-", "log-", "new-"
MAGIC = b"SJL1"
FRAME = struct.Struct("<4sIIHxxQ")
"""Magic, bytes of the record, CRC-32 of all that follows, environment, number of the record."""
_CHECKED_FROM = 12
CLOCK = 0xFFFF
"""The environment of the first frame of a log, which has a `Clock`."""

_LONGEST_CLOCK = 256
"""Bytes that the first frame of a log has at most."""

_GENERATION = re.compile(rf"(?:{CHECKPOINT}|{LOG})([0-9]{{1,18}})")


class Clock(msgspec.Struct, frozen=True):
    """What the moments in a file are counted from.

    Args:
        boot: identity of the host's boot.
        offset: by how much the wall clock is ahead of the clock since boot, in nanoseconds.
    """

    boot: str
    offset: int

    @staticmethod
    def of_host() -> Clock:
        """Return that of this host now."""
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return Clock(boot, Clock.offset_of_host())

    @staticmethod
    def offset_of_host() -> int:
        """Return the offset of this host's clock now."""
        return time.time_ns() - now()

    def later(self) -> int:
        """Return by how much moments in the file have to be changed to be those of this host now, in nanoseconds."""
        here = Clock.of_host()
        return 0 if here.boot == self.boot else self.offset - here.offset


class CheckpointFile(Clock, frozen=True):
    """What has to be known of a checkpoint before its environments are read.

    Args:
        environments: size and CRC-32 of the file of each; older versions have written none.
        checksum: of the file that has this; see `checksums`.
    """

    environments: list[tuple[int, int]] = []
    checksum: str = ""

    def write(self, path: Path) -> None:
        """Write a file with it. Raises OSError."""
        data = with_checksum(msgspec.json.encode(msgspec.structs.replace(self, checksum=UNSET)))
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    @staticmethod
    def read(path: Path) -> CheckpointFile:
        """Return what a file has.

        Raises:
            GridError: it is not there, or damaged.
        """
        try:
            data = path.read_bytes()
            found = from_json(data, CheckpointFile)
        except OSError as error:
            raise damaged(path, f"it cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise damaged(path, str(error)) from error
        if not fits(data, found.checksum):
            raise damaged(path, CHANGED)
        return found


class StoreFile(msgspec.Struct, frozen=True):
    """What has to be known of a store on disk before anything else of it is read.

    Args:
        partition_count, environments, maps, is_divided: as of the store (`grid.layout.Layout`).
        version: of the bytes in the store.
        format: of the files.
        checksum: of the file that has this; see `checksums`.
    """

    partition_count: int
    environments: int
    maps: dict[str, MapConfig]
    version: int
    format: int = FORMAT
    is_divided: bool = False
    checksum: str = ""

    def write(self, folder: Path) -> None:
        """Write it, whole or not at all; it is on disk when this returns."""
        data = with_checksum(msgspec.json.encode(msgspec.structs.replace(self, checksum=UNSET)))
        replace_file(folder / STORE_FILE, data, UNFINISHED + STORE_FILE)

    @staticmethod
    def read(folder: Path, version: int) -> StoreFile | None:
        """Return what a folder says of itself; None where there is no store.

        Raises:
            ConfigError: it is of a version that this shmjet does not know.
            GridError: it cannot be read.
        """
        path = folder / STORE_FILE
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise damaged(path, f"it cannot be read: {error.strerror}") from error
        try:
            versions = from_json(data, dict[str, msgspec.Raw])
            if not fits(data, from_json(versions.get("checksum", b'""'), str)):
                raise damaged(path, CHANGED)
            found = [int(bytes(versions.get(name, b"0"))) for name in ("format", "version")]
            if found[0] not in FORMATS or found[1] != version:
                known = " and ".join(f"{known}.{version}" for known in FORMATS)
                raise ConfigError(
                    f"{path} says that maps and lists lie here in format {found[0]}.{found[1]}; this shmjet reads "
                    f"{known}: start the version that wrote it, or give another folder as storage"
                )
            return from_json(data, StoreFile)
        except (msgspec.MsgspecError, ValueError) as error:
            raise damaged(path, f"it does not describe maps and lists: {error}") from error


class Frame(NamedTuple):
    """A record in a log, as a view of what was read. `end`: offset of the byte after it."""

    environment: int
    number: int
    record: memoryview
    end: int


def frame(environment: int, number: int, record: bytes) -> bytes:
    """Return the bytes of a frame."""
    rest = FRAME.pack(MAGIC, 0, 0, environment, number)[_CHECKED_FROM:]
    checksum = crc32(record, crc32(rest, len(record)))
    return FRAME.pack(MAGIC, len(record), checksum, environment, number) + record


def frames(data: Sequence[int] | memoryview | bytes, path: Path) -> Iterator[Frame]:
    """Yield the frames of a log, up to its end or the frame that is not whole there.

    Args:
        data: all bytes of the log.
        path: of it, for the error.

    Raises:
        GridError: there are good frames behind a bad one, or the first one is bad, and it is not that the log was just
            being begun.
    """
    view = memoryview(data)  # type: ignore[arg-type]
    at = 0
    if len(view) > _LONGEST_CLOCK and _frame_at(view, 0) is None:
        raise damaged(path, "what is there cannot be read, and it was on disk before anything was appended", 0)
    while (found := _frame_at(view, at)) is not None:
        yield found
        at = found.end
    behind = bytes(view[at + 1 :])
    start = behind.find(MAGIC)
    while start >= 0:
        if _frame_at(memoryview(behind), start) is not None:
            raise damaged(path, "what is there cannot be read, and what follows can", at)
        start = behind.find(MAGIC, start + 1)


def _frame_at(view: memoryview, at: int) -> Frame | None:
    if len(view) - at < FRAME.size:
        return None
    magic, length, checksum, environment, number = FRAME.unpack_from(view, at)
    end = at + FRAME.size + length
    if magic != MAGIC or end > len(view):
        return None
    record = view[at + FRAME.size : end]
    if crc32(record, crc32(view[at + _CHECKED_FROM : at + FRAME.size], length)) != checksum:
        return None
    return Frame(environment, number, record, end)


def damaged(path: Path, how: str, offset: int | None = None) -> GridError:
    """Return the error for a file that is not as it was written, from an offset on if that is known."""
    place = "" if offset is None else f" at offset {offset}"
    return GridError(
        f"{path} is damaged{place}: {how}. Bring the file back from a copy, or give another folder as storage to begin "
        "without these maps and lists"
    )


def generations(folder: Path, kind: str) -> list[int]:
    """Return the numbers of the checkpoints or logs in a folder, the oldest first."""
    found = (_GENERATION.fullmatch(name) for name in os.listdir(folder) if name.startswith(kind))
    return sorted(int(match[1]) for match in found if match is not None)
