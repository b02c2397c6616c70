"""The frames in which results lie in a file: lists of items, and notes on how far files have been committed.

A frame is its length (8 bytes, little-endian), then the pickle of a list of items. A length with the highest bit set is
that of a note: the id of the file itself, with which a file begins whose results are read when they are committed; or
lengths by id up to which files are committed, this one or others. Must not know: who writes and who reads.
"""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Mapping, Sequence
from typing import Any

LENGTH = struct.Struct("<Q")
_NOTE = 1 << 63


def begin_stream(stream_id: bytes) -> Sequence[bytes]:
    """Return the note with which a file begins that is read as far as it is committed."""
    return _note(stream_id)


def commit_streams(ends: Mapping[bytes, int]) -> Sequence[bytes]:
    """Return the note that files are committed up to some lengths."""
    return _note(dict(ends))


def _note(content: Any) -> Sequence[bytes]:
    data = pickle.dumps(content)
    return LENGTH.pack(_NOTE | len(data)), data


def next_frame(file: int, at: int, limit: int | None) -> tuple[bytearray | None, int]:
    """Return the next list of items as bytes, and where it ends; None where there is none yet.

    Args:
        file: descriptor.
        at: where to begin.
        limit: how far the file is committed; None: all of it is to be read.
    """
    while limit is None or at < limit:
        head = os.pread(file, LENGTH.size, at)
        if len(head) < LENGTH.size:
            break
        (size,) = LENGTH.unpack(head)
        if size & _NOTE:
            at += LENGTH.size + (size & ~_NOTE)
            continue
        payload = _read(file, at + LENGTH.size, size)
        return (None, at) if payload is None else (payload, at + LENGTH.size + size)
    return None, at


def _read(file: int, at: int, size: int) -> bytearray | None:
    """Return some bytes; None where they are not all there yet."""
    payload = bytearray(size)
    view, done = memoryview(payload), 0
    while done < size:
        got = os.preadv(file, [view[done:]], at + done)
        if not got:
            return None
        done += got
    return payload


class CommitScanner:
    """Finds the notes in a file that grows; of a file without an id it reads the first bytes only.

    Args:
        file: descriptor.
    """

    __slots__ = ("_at", "_file", "_has_notes", "_id")

    def __init__(self, file: int) -> None:
        self._file = file
        self._at = 0
        self._has_notes = True
        self._id: bytes | None = None

    def limit(self, committed: Mapping[bytes, int]) -> int | None:
        """Return how far the file may be read; None: to its end.

        Args:
            committed: lengths by id, as far as they are known.
        """
        if not self._has_notes:
            return None
        return 0 if self._id is None else committed.get(self._id, 0)

    def scan(self) -> dict[bytes, int]:
        """Return what has been committed since the last call."""
        committed: dict[bytes, int] = {}
        while self._has_notes:
            head = os.pread(self._file, LENGTH.size, self._at)
            if len(head) < LENGTH.size:
                break
            (size,) = LENGTH.unpack(head)
            length = size & ~_NOTE
            if size & _NOTE:
                data = _read(self._file, self._at + LENGTH.size, length)
                if data is None:
                    break
                content = pickle.loads(data)
                if isinstance(content, bytes):
                    self._id = content
                else:
                    committed |= content
            elif self._at == 0:
                self._has_notes = False
                break
            self._at += LENGTH.size + length
        return committed
