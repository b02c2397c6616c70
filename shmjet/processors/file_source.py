"""The source that reads lines of text files, however large or many, with all its processors at once.

Must not know: what becomes of the lines. The files are found and cut into units once, on the coordinator
(`file_blocks`); within one member the processors claim units in turn (`claims`), so that none waits while another
still has work; among several members the units are dealt out. Jet's `readFilesP` deals whole files; one large file
then keeps one core busy.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, repeat
from time import monotonic
from typing import Any

from shmjet.core.processor import (
    MetaSupplierContext,
    Processor,
    ProcessorContext,
    ProcessorMetaSupplier,
    ProcessorSupplier,
)
from shmjet.processors.bulk import BulkProcessor
from shmjet.processors.claims import ClaimCounter, Claims
from shmjet.processors.file_blocks import LARGEST_UNIT, Unit, absolute_patterns, cut_units, find_files, unit_size
from shmjet.processors.line_blocks import LineReader, check_encoding

STATS_PERIOD = 0.1
"""Seconds between two updates of a processor's entry in the map of `read_files(stats=...)`."""

CALL_SECONDS = 0.0005
"""A call begins no new piece after this long."""

_OPEN_COST = 16 << 10
"""What a file costs besides its bytes, in bytes."""

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class FileReading:
    """How files are read; the arguments of `read_files`."""

    patterns: tuple[str, ...]
    encoding: str
    errors: str
    skip_binary: bool
    with_path: bool
    largest_unit: int
    stats: str | None


class FileProcessor(BulkProcessor):
    """Reads the units that `numbers` hands out.

    Args:
        reading: how to read.
        units: all units.
        claims: where to claim numbers of units; None: take a fixed share by the processor's global index.
    """

    def __init__(self, reading: FileReading, units: Sequence[Unit], claims: str | None) -> None:
        self._reading = reading
        self._units = units
        self._address = claims
        self._claims: Claims | None = None
        self._next_report = 0.0

    def start(self, context: ProcessorContext) -> None:
        """Open the counter of claims."""
        reading = self._reading
        self._reader = LineReader(reading.encoding, reading.errors, reading.skip_binary)
        if self._address is not None:
            self._claims = Claims(self._address)
        self._pieces = self._read()

    def complete(self) -> bool:
        """Emit lines until the outbox refuses or a call's time is over; True when all units are read."""
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
        if self._claims is not None:
            self._claims.close()
        reader: LineReader | None = getattr(self, "_reader", None)  # absent when init failed before
        if reader is not None:
            reader.close()

    def _numbers(self) -> Iterator[int]:
        if self._claims is not None:
            while True:
                yield self._claims.next()
        yield from count(self.context.global_index, self.context.total_parallelism)

    def _read(self) -> Iterator[list[Any]]:
        """Yield lists of lines; an empty one behind each segment, so that skipping files takes no long call."""
        reader, with_path = self._reader, self._reading.with_path
        for number in self._numbers():
            if number >= len(self._units):
                return
            for segment in self._units[number]:
                try:
                    reader.open(segment)
                    while (lines := reader.next_lines()) is not None:
                        yield list(zip(repeat(segment.path), lines)) if with_path else lines
                except (OSError, UnicodeError) as error:
                    error.add_note(f"while reading {segment.path}, bytes {segment.start} to {segment.end}")
                    raise
                yield []

    def _report(self) -> None:
        name = self._reading.stats
        if name is not None and self.context.grid is not None:
            reader = self._reader
            report = {"files": reader.files, "bytes": reader.bytes, "skipped": reader.skipped}
            self.context.grid.get_map(name)[self.context.global_index] = report


class FileSupplier(ProcessorSupplier):
    """Makes the processors of one member."""

    is_cooperative = True

    def __init__(self, reading: FileReading, units: Sequence[Unit], claims: str | None) -> None:
        self._reading = reading
        self._units = units
        self._claims = claims

    def get(self, count: int) -> Sequence[Processor]:
        """Return processors that share the units."""
        return [FileProcessor(self._reading, self._units, self._claims) for _ in range(count)]


class FileMetaSupplier(ProcessorMetaSupplier):
    """Finds the files and cuts them into units when an execution starts; it owns the counter of claims."""

    is_cooperative = True

    def __init__(self, reading: FileReading) -> None:
        self._reading = reading
        self._units: list[Unit] = []
        self._counter: ClaimCounter | None = None

    def init(self, context: MetaSupplierContext) -> None:
        """List files and sizes.

        Raises:
            FileNotFoundError: when a path does not exist; it names it.
        """
        files = find_files(self._reading.patterns)
        total = sum(size for _, size in files) + _OPEN_COST * len(files)
        self._units = cut_units(files, unit_size(total, context.total_parallelism, self._reading.largest_unit))

    def get(self, addresses: Sequence[str]) -> Mapping[str, ProcessorSupplier]:
        """Return the suppliers: with claims on the only member, with fixed shares on several."""
        address = None
        if len(addresses) == 1:
            self._counter = ClaimCounter()
            address = self._counter.address
        return dict.fromkeys(addresses, FileSupplier(self._reading, self._units, address))

    def close(self, error: BaseException | None) -> None:
        """Free the counter."""
        if self._counter is not None:
            self._counter.close()


def read_files(
    paths: PathLike | Iterable[PathLike],
    *,
    encoding: str = "utf-8",
    errors: str = "replace",
    skip_binary: bool = False,
    with_path: bool = False,
    block_size: int = LARGEST_UNIT,
    stats: str | None = None,
) -> ProcessorMetaSupplier:
    """Emit the lines of text files, without terminators; large files are read by all processors at once.

    Lines end as in Python's text mode: with `\\n`, `\\r\\n` or `\\r`. The order of lines is kept only within a piece
    of a file. Each line is read once, whatever the parallelism.

    Args:
        paths: a file, folder (read recursively) or glob (`**` included), or several. They are made absolute here, and
            looked for when the job starts.
        encoding: of the files; one in which a newline is one byte.
        errors: what bytes that are not text become, as for `bytes.decode`.
        skip_binary: leave out files with a NUL byte among their first 8 KiB.
        with_path: emit (path, line) tuples.
        block_size: bytes that a processor reads between two claims, at most.
        stats: name of a map that gets an entry {"files", "bytes", "skipped"} per processor while they read.

    Returns:
        A supplier for `DAG.new_vertex`.

    Raises:
        ValueError: no paths, a block size below 1, or an encoding like UTF-16.
        TypeError: when a path is none.

    A path that does not exist makes the job fail with a `FileNotFoundError` that names it.

    Example:
        >>> dag = DAG()                                                            # doctest: +SKIP
        >>> lines = dag.new_vertex("lines", read_files("/usr/lib/python3/**/*.py"))  # doctest: +SKIP
    """
    if block_size < 1:
        raise ValueError(f"read_files: block_size must be at least 1 byte, got {block_size}")
    reading = FileReading(
        absolute_patterns(paths), check_encoding(encoding), errors, skip_binary, with_path, block_size, stats
    )
    return FileMetaSupplier(reading)
