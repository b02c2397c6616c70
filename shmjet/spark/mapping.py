"""From records in memory to what a feed emits: batches that are views, or items.

A frame that came in pieces is put together in memory of its own first. Must not know attempts or slots.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from shmjet.data.batch import Batch
from shmjet.data.typed_column import nulls
from shmjet.ring import pickling
from shmjet.ring.batch_frames import BatchCodec
from shmjet.spark.arrow import RecordBatch
from shmjet.spark.protocol import Content, Record
from shmjet.spark.schema import Field, is_columnar


@dataclass(frozen=True)
class Contents:
    """Turns frames into what the job gets.

    Args:
        fields: of the DataFrame's columns; empty for a feed from an RDD, whose frames say it themselves.
    """

    fields: tuple[Field, ...]
    columnar: bool = field(init=False)
    _codec: BatchCodec = field(default_factory=BatchCodec, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "columnar", is_columnar(self.fields))

    def open(self, content: int, memory: Any, start: int, length: int) -> list[Any]:
        """Return the items of one frame: one batch, or many items.

        Args:
            content: of the frame (`protocol.Content`).
            memory: where it lies; read-only, and kept by the batch.
            start: where in it.
            length: its bytes.

        Raises:
            BatchError: a value does not fit its column; the text names both.
        """
        if content in (Content.ARROW, Content.ARROW_LARGE):
            records = RecordBatch(memory, start, length, large=content == Content.ARROW_LARGE)
            if not records.rows:
                return []
            return [records.batch(self.fields)] if self.columnar else list(records.dicts(self.fields))
        payload = memory[start : start + length]
        if content == Content.BATCH:
            return [self._codec.decode(payload)]
        items: list[Any] = pickling.loads(payload)
        return items


_NOTHING = np.zeros(0, np.bool_)


def head_of(fields: tuple[Field, ...]) -> Batch:
    """Return a batch without rows of these columns, which are those of a DataFrame; see `schema_heads`.

    Example:
        >>> head_of((Field("day", "date"), Field("name", "text"))).schema
        {'day': dtype('<M8[D]'), 'name': 'text'}
    """
    columns = {each.name: nulls(each.column_kind, 0) for each in fields}
    known = {each.name: _NOTHING for each in fields if each.kind != "null"}
    return Batch.trusted(Batch(columns).parts()[0], known, 0)


class Pieces:
    """Frames of one attempt, or of one partition, that come in pieces."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._parts: npt.NDArray[np.uint8] | None = None

    def open(self, record: Record, memory: Any, *, own: bool) -> list[Any]:
        """Return the items that are complete with this record; none while more pieces have to come.

        Args:
            record: in the order of the attempt.
            memory: where its payload lies.
            own: have batches own their memory instead of viewing it.
        """
        if record.is_whole:
            items = self._contents.open(record.content, memory, record.place, record.length)
            return [item.copy() if isinstance(item, Batch) else item for item in items] if own else items
        if record.at == 0:
            self._parts = np.empty(record.total, np.uint8)
        assert self._parts is not None
        piece = np.frombuffer(memory, np.uint8, record.length, record.place)
        self._parts[record.at : record.at + record.length] = piece
        if not record.ends_frame:
            return []
        whole, self._parts = self._parts, None
        return self._contents.open(record.content, whole.data.toreadonly(), 0, record.total)


def map_file(fd: int, size: int) -> memoryview:
    """Map a file of records, read-only; the mapping lives as long as views of it."""
    mapping = mmap.mmap(fd, size, prot=mmap.PROT_READ)
    return memoryview(mapping)


def copied(memory: memoryview, used: int) -> memoryview:
    """Return the first `used` bytes in memory of their own, aligned for columns."""
    own = aligned(used)
    own[:] = np.frombuffer(memory, np.uint8, used)
    return own.data.toreadonly()


def aligned(size: int) -> npt.NDArray[np.uint8]:
    """Return uninitialised bytes that begin at a multiple of 64."""
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]
