"""The processor that reads files: it claims units and hands their segments to a reader of lines or of batches.

Must not know: which files there are (`file_source`), and how their bytes become items (`line_blocks`, and
`file_batches`, which is loaded when it is needed).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, repeat
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from shmjet.core.processor import ProcessorContext
from shmjet.processors.files.file_blocks import Segment, Unit
from shmjet.processors.files.line_blocks import LineReader
from shmjet.processors.general.base import BulkProcessor
from shmjet.processors.general.claims import Claims

if TYPE_CHECKING:
    from shmjet.processors.files.file_batches import Format

STATS_PERIOD = 0.1
"""Seconds between two updates of a processor's entry in the map of `read_files(stats=...)`."""

CALL_SECONDS = 0.0005
"""A call begins no new piece after this long."""


@dataclass(frozen=True)
class FileReadOptions:
    """How files are read; the arguments of `read_files`."""

    patterns: tuple[str, ...]
    encoding: str
    errors: str
    skip_binary: bool
    with_path: bool
    largest_unit: int
    stats: str | None
    batches: Format | None
    """None: lines as items."""
    unit: str = "bytes"
    """What segments count, "bytes" or (rows of arrays) "items"."""


class Reader(Protocol):
    """What reads segments one after the other: `LineItems`, `LineBatchReader`, `CsvReader`."""

    def open(self, segment: Segment) -> None:
        """Begin a segment."""

    def next_items(self) -> list[Any] | None:
        """Return what is to be emitted next, perhaps nothing yet, or None at the end of the segment."""

    def rest(self) -> list[Any]:
        """Return what is to be emitted last, once all segments are read."""

    def report(self) -> dict[str, int]:
        """Return counts, by name."""

    def warning(self) -> str | None:
        """What a person should know at the end."""

    def close(self) -> None:
        """Free everything."""


class LineItems:
    """Reads lines as items: str, or (path, str)."""

    def __init__(self, reading: FileReadOptions) -> None:
        self._with_path = reading.with_path
        self._path = ""
        self._reader = LineReader(reading.encoding, reading.errors, reading.skip_binary)
        self.report = self._reader.report
        self.close = self._reader.close

    def open(self, segment: Segment) -> None:
        """Begin a segment."""
        self._path = segment.path
        self._reader.open(segment)

    def next_items(self) -> list[Any] | None:
        """Return lines, or None at the end of the segment."""
        lines = self._reader.next_lines()
        return list(zip(repeat(self._path), lines)) if self._with_path and lines is not None else lines

    def rest(self) -> list[Any]:
        """Nothing is left."""
        return []

    def warning(self) -> str | None:
        """Nothing is worth one."""
        return None


class FileProcessor(BulkProcessor):
    """Reads the units that `numbers` hands out.

    Args:
        reading: how to read.
        units: all units.
        claims: where to claim numbers of units; None: take a fixed share by the processor's global index.
        seams: where the table of `csv_seams` is, if there is one.
    """

    def __init__(self, reading: FileReadOptions, units: Sequence[Unit], claims: str | None, seams: str | None) -> None:
        self._reading = reading
        self._units = units
        self._address = claims
        self._seams = seams
        self._claims: Claims | None = None
        self._next_report = 0.0
        self._done = self._total = 0
        self.work_unit = reading.unit

    def start(self, context: ProcessorContext) -> None:
        """Open the counter of claims."""
        self._reader = self._make_reader()
        if self._address is not None:
            self._claims = Claims(self._address)
        mine: Sequence[Unit] = self._units if context.global_index == 0 else ()
        if self._claims is None:
            mine = self._units[context.global_index :: context.total_parallelism]
        self._total = sum(segment.end - segment.start for unit in mine for segment in unit)
        self._pieces = self._read()

    def complete(self) -> bool:
        """Emit lines or batches until the outbox refuses or a call's time is over; True when all units are read."""
        if not self.emission.flush():
            return False
        deadline = monotonic() + CALL_SECONDS
        for lines in self._pieces:
            if not self.emission.put(lines):
                return False
            now = monotonic()
            if now >= self._next_report:
                self._next_report = now + STATS_PERIOD
                self._report()
            if now >= deadline:
                return False
        self._report()
        return True

    def close(self) -> None:
        """Close the file that is open, and the counter."""
        self._pieces = iter(())  # a suspended generator would keep this object, and what it has open, in a cycle
        if self._claims is not None:
            self._claims.close()
        reader: Reader | None = getattr(self, "_reader", None)  # absent when init failed before
        if reader is not None:
            reader.close()

    def progress(self) -> tuple[int, int]:
        """Return the size of the segments that are read, and of all; the first processor has that of shared ones."""
        return self._done, max(self._total, 0)

    def _numbers(self) -> Iterator[int]:
        if self._claims is not None:
            while True:
                yield self._claims.next()
        yield from count(self.context.global_index, self.context.total_parallelism)

    def _make_reader(self) -> Reader:
        if self._reading.batches is None:
            return LineItems(self._reading)
        from shmjet.processors.files.file_batches import reader_of

        return reader_of(self._reading.batches, self._reading.skip_binary, self._seams, self._units)

    def _read(self) -> Iterator[list[Any]]:
        """Yield lists of items; an empty one behind each segment, so that skipping files takes no long call."""
        reader = self._reader
        for number in self._numbers():
            if number >= len(self._units):
                break
            for segment in self._units[number]:
                try:
                    reader.open(segment)
                    while (items := reader.next_items()) is not None:
                        yield items
                except (OSError, UnicodeError) as error:
                    error.add_note(f"while reading {segment.path}, bytes {segment.start} to {segment.end}")
                    raise
                self._done += max(segment.end - segment.start, 0)
                yield []
        yield reader.rest()
        if (warning := reader.warning()) is not None:
            self.context.logger.warning("read_files: %s", warning)

    def _report(self) -> None:
        name = self._reading.stats
        if name is not None and self.context.grid is not None:
            self.context.grid.get_map(name)[self.context.global_index] = self._reader.report()
