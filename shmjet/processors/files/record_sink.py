"""The sink that writes items into files as lines, JSON, CSV or as they are, one file per processor, or parts.

A single file has a temporary name until the whole job has succeeded; then the coordinator renames all of them. So a
folder never shows a part of a result under a final name, whatever fails, and what is unfinished is removed when the job
has ended (after a kill of the coordinator's worker it stays, under a name with a dot). `output_file` says when there
are parts and when they get their names. After Jet's `Sinks.filesBuilder`.

Must not know: jobs; `paths` knows where the folder is.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import IO, Any, Protocol

import msgspec

from shmjet.core.key_functions import mapped
from shmjet.core.processor import MetaSupplierContext, ProcessorContext, ProcessorMetaSupplier, ProcessorSupplier
from shmjet.data.columnar import Columnar
from shmjet.processors.checks.assertion_sinks import rows_of
from shmjet.processors.files.compression import suffix_of
from shmjet.processors.files.file_blocks import UNFINISHED
from shmjet.processors.files.output_file import FileSink, PartOptions
from shmjet.processors.files.paths import Folder
from shmjet.processors.files.row_text import RowEncoder
from shmjet.processors.general.base import Supply


@dataclass(frozen=True)
class RecordWriteOptions:
    """How files are written; the arguments of `sinks.files`, checked."""

    format: str
    encoding: str
    to_line: Callable[[Any], str]
    compression: str | None
    delimiter: str
    quote: str | None
    header: bool
    null: str
    columns: tuple[str, ...] | None
    part: int = 0
    """Which of the stages of a job that write into one folder this is."""
    parts: PartOptions = field(default_factory=PartOptions)

    @property
    def suffix(self) -> str:
        """How the names of files end."""
        return {"json": ".json", "csv": ".csv"}.get(self.format, "") + suffix_of(self.compression)

    def name_of(self, index: int) -> str:
        """Return the name of a processor's file."""
        return f"{index}-{self.part}{self.suffix}" if self.part else f"{index}{self.suffix}"

    def encoder(self) -> Encoder:
        """Return what makes one file's bytes."""
        kinds: dict[str, Callable[[RecordWriteOptions], Encoder]]
        kinds = {"lines": LineEncoder, "json": JsonEncoder, "csv": CsvEncoder, "raw": RawEncoder}
        return kinds[self.format](self)


class Encoder(Protocol):
    """Turns the items of one file into bytes."""

    def encode(self, items: list[Any]) -> bytes:
        """Return the bytes of a list of items."""


class LineEncoder:
    """A line of text for each item."""

    def __init__(self, writing: RecordWriteOptions) -> None:
        self._to_line = writing.to_line
        self._encoding = writing.encoding

    def encode(self, items: list[Any]) -> bytes:
        """Return the lines."""
        return ("\n".join(mapped(self._to_line, items)) + "\n").encode(self._encoding)


class JsonEncoder:
    """A line of JSON for each item; the rows of a batch are items of their own."""

    def __init__(self, writing: RecordWriteOptions) -> None:
        self._encode = msgspec.json.Encoder(enc_hook=_plain).encode_lines

    def encode(self, items: list[Any]) -> bytes:
        """Return the lines.

        Raises:
            TypeError: an item is nothing that JSON has; it is shown.
        """
        rows = rows_of(items)
        try:
            return self._encode(rows)
        except (TypeError, ValueError, OverflowError) as error:
            for row in rows:
                try:
                    self._encode([row])
                except (TypeError, ValueError, OverflowError) as cause:
                    raise TypeError(f"an item cannot be written as JSON: {cause}: {row!r:.200}") from error
            raise


class CsvEncoder:
    """A record for each row, of items or of batches."""

    def __init__(self, writing: RecordWriteOptions) -> None:
        style = writing.delimiter, writing.quote, writing.header, writing.null
        self._rows = RowEncoder(*style, writing.columns)
        self._style = (*style, writing.encoding)
        self._columns = writing.columns
        self._encoding = writing.encoding
        self._batches: Any = None
        self._kind: bool | None = None

    def encode(self, items: list[Any]) -> bytes:
        """Return the records.

        Raises:
            TypeError, ValueError, BatchError: an item is not a row, or has other columns than those before.
        """
        for item in items:
            if self._kind is None:
                self._kind = isinstance(item, Columnar)
            if isinstance(item, Columnar) is not self._kind:
                raise TypeError(f"a CSV file is written of rows or of batches; both came, among them {item!r:.200}")
        if not self._kind:
            return self._rows.encode(items).encode(self._encoding)
        if self._batches is None:
            from shmjet.processors.csv.sink import CsvStyle, CsvWriter

            self._batches = CsvWriter(CsvStyle(*self._style))
        return b"".join([self._batches.encode(self._chosen(batch)) for batch in items])

    def _chosen(self, batch: Any) -> Any:
        return batch if self._columns is None else batch.select(*self._columns)


class RawEncoder:
    """The bytes of each item, nothing between them."""

    def __init__(self, writing: RecordWriteOptions) -> None:
        pass

    def encode(self, items: list[Any]) -> bytes:
        """Return them all, joined. Raises TypeError for an item that is not bytes."""
        for item in items:
            if not isinstance(item, bytes | bytearray | memoryview):
                raise TypeError(f'sinks.files(format="raw") takes bytes, got {type(item).__name__}: {item!r:.80}')
        return b"".join(items)


class UncommittedFile:
    """A file that keeps its temporary name until the job has succeeded."""

    def __init__(self, folder: Folder, name: str, job_id: str) -> None:
        self._folder = folder
        self._hidden = temporary(name, job_id)
        self._is_begun = False
        self.path = f"{folder.path}/{name}"
        """What it is called in the end."""

    def open(self) -> IO[bytes]:
        """Begin to write."""
        self._is_begun = True
        return self._folder.open_new(self._hidden)

    def keep(self) -> None:
        """Leave it to `RecordSinkSupplier`."""
        self._is_begun = False

    def drop(self) -> None:
        """Remove it."""
        if self._is_begun:
            self._is_begun = False
            with contextlib.suppress(Exception):
                self._folder.remove(self._hidden)


class RecordSinkProcessor(FileSink):
    """Writes one file under its temporary name, or parts."""

    def __init__(self, folder: Folder, writing: RecordWriteOptions) -> None:
        super().__init__(folder, writing.parts)
        self._writing = writing
        self.suffix = writing.suffix
        self.stage = writing.part
        self.compression = writing.compression

    def single_file(self, context: ProcessorContext) -> UncommittedFile:
        """Return the file that is called like the processor's index in the end."""
        return UncommittedFile(self._folder, self._writing.name_of(context.global_index), context.job_id)

    def begin_file(self) -> None:
        """Begin with a header, where there is one."""
        self._encoder = self._writing.encoder()

    def encode(self, items: list[Any]) -> Iterable[bytes]:
        """Return the bytes of a list."""
        return (self._encoder.encode(items),)


class RemoteRecordSinkProcessor(RecordSinkProcessor):
    """The same where writing may block for long."""

    is_cooperative = False


class RecordSinkSupplier(ProcessorMetaSupplier):
    """Makes the folder when an execution starts, and gives the files their names when all have succeeded."""

    state_kind = "files written in parts"

    def __init__(self, folder: Folder, writing: RecordWriteOptions) -> None:
        self._folder = folder
        self._writing = writing
        self._processor = RemoteRecordSinkProcessor if folder.is_remote else RecordSinkProcessor
        self.is_cooperative = not folder.is_remote
        self._names: list[str] = []
        self._job_id = ""

    def init(self, context: MetaSupplierContext) -> None:
        """Make the folder. Raises OSError, which names it."""
        self._folder.create()
        self._job_id = context.job_id
        if not (context.snapshotting_enabled or self._writing.parts.rolls):  # parts get their names one by one
            self._names = [self._writing.name_of(index) for index in range(context.total_parallelism)]

    def get(self, addresses: Sequence[str]) -> Mapping[str, ProcessorSupplier]:
        """Return a supplier that is the same everywhere."""
        return dict.fromkeys(addresses, ProcessorSupplier.of(Supply(self._processor, self._folder, self._writing)))

    def commit(self) -> None:
        """Give all files their names."""
        while self._names:
            self._folder.rename(temporary(self._names[-1], self._job_id), self._names[-1])
            self._names.pop()

    def after_sinks(self, suppliers: Sequence[Any]) -> RecordSinkSupplier:
        """Return a supplier whose files have names of their own where earlier sinks write into the same folder."""
        part = sum(
            isinstance(other, RecordSinkSupplier) and other._folder.path == self._folder.path for other in suppliers
        )
        return RecordSinkSupplier(self._folder, replace(self._writing, part=part))

    def elsewhere(self) -> RecordFiles:
        """Return the parts of the sink, for another engine to put together."""
        return RecordFiles(self._folder, self._writing)

    def close(self, error: BaseException | None) -> None:
        """Remove what has not got its name."""
        for name in self._names:
            with contextlib.suppress(Exception):
                self._folder.remove(temporary(name, self._job_id))


@dataclass(frozen=True)
class RecordFiles:
    """A sink's files where another engine has its tasks write them, each under the id of its attempt."""

    folder: Folder
    writing: RecordWriteOptions

    def supply(self) -> Supply:
        """Return what makes the processor of a task; the job id that it is told names its file until it is renamed."""
        return Supply(RecordSinkProcessor, self.folder, self.writing)

    def name(self, index: int, job_id: str) -> None:
        """Give the file of a processor its name. Raises OSError when it is not there."""
        name = self.writing.name_of(index)
        self.folder.rename(temporary(name, job_id), name)

    def forget(self, index: int, job_id: str) -> None:
        """Remove the file of a processor that has not got its name."""
        self.folder.remove(temporary(self.writing.name_of(index), job_id))

    def sweep(self, run: str) -> None:
        """Remove unfinished files that attempts of a run have left, where the folder is one of this host."""
        if self.folder.is_remote:
            return
        for entry in os.scandir(self.folder.path):
            if entry.name.startswith(".") and entry.name.endswith(UNFINISHED) and f".{run}-" in entry.name:
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)


def temporary(name: str, job_id: str) -> str:
    """Return what a file is called until the job has succeeded.

    Example:
        >>> temporary("0.csv", "f00")
        '.0.csv.f00.unfinished'
    """
    return f".{name}.{job_id}{UNFINISHED}"


def _plain(value: Any) -> Any:
    """Return what JSON has for a value that msgspec does not know: numpy's scalars and arrays become Python's."""
    to_plain = getattr(value, "tolist", None)
    if callable(to_plain) and type(value).__module__ == "numpy":
        return to_plain()
    raise TypeError(f"type {type(value).__name__} has no form in JSON")
