"""Records of runs on disk: all that a member needs to go on with a run after it was started again.

One file for each run of a job with a guarantee, from its start to its outcome. It is written under a temporary name,
synced and renamed; a torn or damaged one is found by its checksum and left out.
"""

from __future__ import annotations

import logging
import struct
import zlib
from collections.abc import Container
from pathlib import Path
from typing import Final

import msgspec

from shmjet.cluster.protocol import Submission
from shmjet.data.decoders import from_msgpack
from shmjet.execution.messages import Failure
from shmjet.host.folders import remove_file, replace_file, usable_folder

MAGIC: Final = b"shmjetRR"
VERSION: Final = 1
HEAD: Final = struct.Struct("<8sIIQ")
"""Of a record's file: `MAGIC`, `VERSION`, CRC-32 of the body, bytes of the body."""
_SUFFIX = ".run"
_OF_ENDED = (
    "the record of a run that has ended (remove it by hand, or the run begins again when this member is started again)"
)

logger = logging.getLogger("shmjet.member")


class RunRecord(msgspec.Struct, frozen=True):
    """A run.

    Args:
        run: its number.
        lineage: the name of its lineage.
        job: what it runs, with its code.
        is_suspended: whether it is to wait until it is resumed.
        cause: the error that suspended it, None when a client asked for it; without its exception, which only the
            client could read.
    """

    run: int
    lineage: str
    job: Submission
    is_suspended: bool = False
    cause: Failure | None = None


class RunRecords:
    """The records of one member.

    Args:
        folder: where they are; it is made if it is not there.

    Raises:
        OSError: it cannot be made or used.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._unreadable: set[Path] = set()
        """The files that the log has named."""
        usable_folder(folder)

    def write(self, record: RunRecord) -> None:
        """Write a record, or replace it. Raises OSError when there is no room."""
        body = msgspec.msgpack.encode(record)
        path = self._path_of(record.run)
        head = HEAD.pack(MAGIC, VERSION, zlib.crc32(body), len(body))
        replace_file(path, head + body, path.with_suffix(".part").name)

    def remove(self, run: int) -> None:
        """Remove the record of a run that has its outcome; a record that stays is logged."""
        remove_file(self._path_of(run), _OF_ENDED)

    def keep_only(self, runs: Container[int]) -> None:
        """Remove the records of all other runs: they have ended while another member coordinated."""
        for path in self._folder.glob(f"*{_SUFFIX}"):
            if path.stem.isdecimal() and int(path.stem) not in runs:
                remove_file(path, _OF_ENDED)

    def all(self) -> list[RunRecord]:
        """Return all readable records, by the numbers of their runs."""
        found = []
        for path in self._folder.glob(f"*{_SUFFIX}"):
            try:
                found.append(self._read(path))
            except (OSError, ValueError, msgspec.MsgspecError) as error:
                if path in self._unreadable:
                    continue
                self._unreadable.add(path)
                logger.error("the record of a run %s cannot be read, so that run does not go on: %s", path, error)
        return sorted(found, key=lambda record: record.run)

    def _read(self, path: Path) -> RunRecord:
        record = _read(path)
        if path != self._path_of(record.run):
            raise ValueError(f"it has the record of run {record.run}, which belongs into {self._path_of(record.run)}")
        return record

    def _path_of(self, run: int) -> Path:
        return self._folder / f"{run}{_SUFFIX}"


def _read(path: Path) -> RunRecord:
    data = path.read_bytes()
    if len(data) < HEAD.size:
        raise ValueError(f"it has {len(data)} bytes")
    magic, version, checksum, size = HEAD.unpack_from(data)
    body = data[HEAD.size :]
    if magic != MAGIC or version != VERSION:
        raise ValueError("it is not of this version")
    if len(body) != size or zlib.crc32(body) != checksum:
        raise ValueError("it is damaged")
    return from_msgpack(body, RunRecord)
