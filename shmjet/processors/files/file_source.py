"""The source that reads text files, however large or many, with all its processors at once: lines or batches.

Must not know: what the lines are for, and how batches are made (`file_batches`, which is loaded when it is needed).
The files are found and cut into units once, on the coordinator (`file_blocks`); within one member the processors claim
units in turn (`claims`), so that none waits while another still has work; among several members the units are dealt
out. Jet's `readFilesP` deals whole files; one large file then keeps one core busy.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from shmjet.core.processor import (
    MetaSupplierContext,
    Processor,
    ProcessorMetaSupplier,
    ProcessorSupplier,
)
from shmjet.processors.files.file_blocks import (
    LARGEST_UNIT,
    absolute_patterns,
    find_files,
    unit_size,
)
from shmjet.processors.files.file_reader import FileProcessor, FileReadOptions
from shmjet.processors.files.file_work import Cut, FileWork, last_changes
from shmjet.processors.files.line_blocks import check_encoding
from shmjet.processors.general.claims import ClaimCounter

if TYPE_CHECKING:
    from shmjet.data.batch import Batch
    from shmjet.processors.csv.quote_seams import SeamTable

BATCH_ROWS = 16384
"""Rows of a batch: enough for the kernels, and still in the L2 cache."""

_OPEN_COST = 16 << 10
"""The fixed cost of a file, in bytes."""

PathLike = str | os.PathLike[str]


class FileSupplier(ProcessorSupplier):
    """Makes the processors of one member."""

    is_cooperative = True

    def __init__(self, reading: FileReadOptions, work: FileWork, claims: str | None, seams: str | None) -> None:
        self._reading = reading
        self._work = work
        self._claims = claims
        self._seams = seams

    def get(self, count: int) -> Sequence[Processor]:
        """Return processors that share the units."""
        return [FileProcessor(self._reading, self._work, self._claims, self._seams) for _ in range(count)]


class FileMetaSupplier(ProcessorMetaSupplier):
    """Finds the files and cuts them into units when an execution starts; it owns what processors share."""

    state_kind = "read_files"
    is_cooperative = True

    def __init__(self, reading: FileReadOptions) -> None:
        self._reading = reading
        self._files: list[tuple[str, int]] = []
        self._changed: tuple[int, ...] = ()
        self._unit_size = LARGEST_UNIT
        self._counter: ClaimCounter | None = None
        self._table: SeamTable | None = None

    def init(self, context: MetaSupplierContext) -> None:
        """List files and sizes; infer a schema, if that is asked for.

        Raises:
            FileNotFoundError: when a path does not exist; it names it.
            BatchError: when no schema can be inferred.
        """
        reading, files = self._reading, find_files(self._reading.patterns)
        total = sum(size for _, size in files) + _OPEN_COST * len(files)
        self._files = files
        self._unit_size = unit_size(total, context.total_parallelism, reading.largest_unit)
        if context.snapshotting_enabled:
            self._changed = last_changes(path for path, _ in files)
        if reading.batches is not None:
            from shmjet.processors.files.file_batches import prepared

            self._reading = replace(reading, batches=prepared(reading.batches, files))

    def get(self, addresses: Sequence[str]) -> Mapping[str, ProcessorSupplier]:
        """Return the suppliers: with claims on the only member, with fixed shares on several."""
        claims = seams = None
        has_seams, files = self._has_seams(), tuple(self._files)
        cut: Cut = "whole" if has_seams and len(addresses) > 1 else "bytes"  # the table is in the memory of one host
        work = FileWork(self._reading.patterns, (), files, cut, self._unit_size, self._changed)
        if len(addresses) == 1:
            self._counter = ClaimCounter()
            claims = self._counter.address
            if has_seams and (self._changed or any(size > self._unit_size for _, size in files)):
                from shmjet.processors.csv.quote_seams import SeamTable

                self._table = SeamTable(len(work.units()))
                seams = self._table.address
        return dict.fromkeys(addresses, FileSupplier(self._reading, work, claims, seams))

    def close(self, error: BaseException | None) -> None:
        """Free the counter and the table."""
        for shared in (self._counter, self._table):
            if shared is not None:
                shared.close()

    def _has_seams(self) -> bool:
        if self._reading.batches is None:
            return False
        from shmjet.processors.files.file_batches import has_seams

        return has_seams(self._reading.batches)


def read_files(
    paths: PathLike | Iterable[PathLike],
    *,
    encoding: str = "utf-8",
    errors: str = "replace",
    skip_binary: bool = False,
    with_path: bool = False,
    block_size: int = LARGEST_UNIT,
    stats: str | None = None,
    as_: type[Batch] | None = None,
    batch_rows: int = BATCH_ROWS,
    format: Literal["lines", "csv"] = "lines",  # noqa: A002
    schema: Mapping[str, Any] | None = None,
    columns: Sequence[str] | None = None,
    delimiter: str = ",",
    quote: str | None = '"',
    header: bool = True,
    nulls: Sequence[str] = ("",),
    on_bad_line: Literal["error", "skip"] = "error",
) -> ProcessorMetaSupplier:
    """Emit the lines of text files, or batches of columns; large files are read by all processors at once.

    Lines end as in Python's text mode: with `\\n`, `\\r\\n` or `\\r`, and come without their ends. The order of lines
    is kept only within a piece of a file. Each line is read once, whatever the parallelism.

    In a job with a processing guarantee the files have to stay as they are: a restarted job goes on in the middle of
    them, and fails where one was changed. It reads the files that were there when it began.

    With `as_=Batch` the lines come as batches of one text column, or, with `format="csv"`, the files' columns come as
    the schema types them. `docs/columns-files.md` says what is read as what.

    Args:
        paths: a file, folder (read recursively) or glob (`**` included), or several. They are made absolute here, and
            looked for when the job starts.
        encoding: of the files; one in which a newline is one byte. CSV: UTF-8, or one byte a character.
        errors: what bytes that are not text become, as for `bytes.decode`; with "strict" they are a bad line of CSV.
        skip_binary: leave out files with a NUL byte among their first 8 KiB.
        with_path: emit (path, line) tuples; in batches, add a text column `path`.
        block_size: bytes that a processor reads between two claims, at most.
        stats: name of a map that gets an entry {"files", "bytes", "skipped"} per processor while they read, for CSV
            with "bad_lines" too.
        as_: `shmjet.data.batch.Batch`: emit batches. None: emit lines.
        batch_rows: rows of a batch; the last of each processor has fewer.
        format: "lines", or "csv".
        schema: CSV: type by column, as numpy names it, or "text" or "bytes"; None: infer it from the header and the
            first 1,000 records of the first file. Lines: {name: "text" or "bytes"}, by default {"line": "text"}.
        columns: CSV: read only these, in this order; the files may then have columns that the schema lacks.
        delimiter: CSV: one ASCII character.
        quote: CSV: one ASCII character, or None: nothing is quoted.
        header: CSV: the files' first record names the columns, in any order; False: the columns are those of the
            schema, in its order.
        nulls: CSV: what stands for a null; in text columns only where it is not quoted.
        on_bad_line: CSV: "error", or "skip": leave records that do not fit out, count them and log that at the end.

    Returns:
        A supplier for `DAG.new_vertex`.

    Raises:
        ValueError: no paths, a block size below 1, an encoding like UTF-16, or an argument that is only for CSV.
        TypeError: when a path is none, or `as_` is not `Batch`.
        BatchError: when the schema or the columns cannot be read.

    A path that does not exist makes the job fail with a `FileNotFoundError` that names it, a line that does not fit
    with a `BatchError` that names file, line, column, what was expected and what was found.

    Example:
        >>> dag = DAG()                                                            # doctest: +SKIP
        >>> lines = dag.new_vertex("lines", read_files("/usr/lib/python3/**/*.py"))  # doctest: +SKIP
        >>> read = read_files("flights.csv", as_=Batch, format="csv", nulls=("", "NA"),         # doctest: +SKIP
        ...                   schema={"carrier": "text", "dep_delay": "float64"}, columns=["carrier", "dep_delay"])
    """
    if block_size < 1:
        raise ValueError(f"read_files: block_size must be at least 1 byte, got {block_size}")
    patterns = absolute_patterns(paths)
    batches = None
    if as_ is not None:
        from shmjet.processors.files.file_batches import batch_format

        csv: dict[str, Any] = {"schema": schema, "columns": columns, "delimiter": delimiter, "quote": quote}
        csv |= {"header": header, "nulls": nulls, "on_bad_line": on_bad_line}
        common: dict[str, Any] = {"encoding": encoding, "errors": errors, "with_path": with_path}
        batches = batch_format(as_, format, batch_rows=batch_rows, **common, **csv)
    elif format != "lines" or schema is not None or columns is not None:
        raise ValueError("read_files: format, schema and columns are for batches; add as_=Batch")
    else:
        check_encoding(encoding)
    return FileMetaSupplier(
        FileReadOptions(patterns, encoding, errors, skip_binary, with_path, block_size, stats, batches)
    )
