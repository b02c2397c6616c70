"""The sources that read numpy's own files: `read_npy` and `read_npz`.

They find the files and cut them into ranges of rows; `file_reading` claims these, `npy_reading` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from shmjet.core.processor import MetaSupplierContext, ProcessorMetaSupplier, ProcessorSupplier
from shmjet.data.errors import BatchError
from shmjet.processors.files.file_blocks import absolute_patterns, find_files
from shmjet.processors.files.file_reader import FileReadOptions
from shmjet.processors.files.file_source import FileSupplier, PathLike
from shmjet.processors.files.file_work import FileWork, last_changes
from shmjet.processors.general.base import check_batch_rows
from shmjet.processors.general.claims import ClaimCounter

if TYPE_CHECKING:
    from shmjet.processors.files.npy_reader import NpyFormat, NpzFormat

BATCH_ROWS = 65536
"""Rows of a batch."""

BATCHES_PER_UNIT = 16
"""Batches that a processor reads between two claims, at most."""


class ArrayMetaSupplier(ProcessorMetaSupplier):
    """Finds the files, and cuts .npy files into ranges of rows; it owns the counter of claims."""

    state_kind = "read_npy"
    is_cooperative = True

    def __init__(self, patterns: tuple[str, ...], suffix: str, batches: NpyFormat | NpzFormat) -> None:
        self._reading = FileReadOptions(patterns, "utf-8", "strict", False, False, 0, None, batches, "items")
        self._suffix = suffix
        self._batch_rows = batches.batch_rows
        self._work = FileWork(patterns, (), (), "whole", 0)
        self._counter: ClaimCounter | None = None

    def init(self, context: MetaSupplierContext) -> None:
        """List the files and read the headers of .npy files.

        Raises:
            FileNotFoundError: when a path does not exist; it names it.
            BatchError: when a file is not a .npy file of a one-dimensional array; it names it.
        """
        patterns = self._reading.patterns
        files = [file for file in find_files(patterns) if file[0].endswith(self._suffix) or file[0] in patterns]
        changed = last_changes(path for path, _ in files) if context.snapshotting_enabled else ()
        if self._suffix == ".npz":
            self._work = FileWork(patterns, (), tuple(files), "whole", 0, changed)
            return
        from shmjet.processors.files.npy_reader import npy_header

        rows = [(path, npy_header(path).rows) for path, _ in files]
        step = rows_at_once(rows, self._batch_rows, context.total_parallelism)
        self._work = FileWork(patterns, (), tuple(rows), "rows", step, changed)

    def get(self, addresses: Sequence[str]) -> Mapping[str, ProcessorSupplier]:
        """Return the suppliers: with claims on the only member, with fixed shares on several."""
        address = None
        if len(addresses) == 1:
            self._counter = ClaimCounter()
            address = self._counter.address
        return dict.fromkeys(addresses, FileSupplier(self._reading, self._work, address, None))

    def close(self, error: BaseException | None) -> None:
        """Free the counter."""
        if self._counter is not None:
            self._counter.close()


def rows_at_once(files: Iterable[tuple[str, int]], batch_rows: int, processors: int) -> int:
    """Return how many rows, in whole batches, a processor reads between two claims: so few that all end together.

    Args:
        files: (path, rows).
        batch_rows: rows of a batch.
        processors: how many share them.

    Example:
        >>> rows_at_once([("a", 25)], 10, 1), rows_at_once([("a", 9_000), ("b", 1_000)], 10, 4)
        (10, 150)
    """
    batches = sum(-(-rows // batch_rows) for _, rows in files)
    return batch_rows * max(1, min(BATCHES_PER_UNIT, batches // (BATCHES_PER_UNIT * processors)))


def read_npy(
    paths: PathLike | Iterable[PathLike],
    *,
    column: str = "value",
    columns: Sequence[str] | None = None,
    batch_rows: int = BATCH_ROWS,
) -> ProcessorMetaSupplier:
    """Emit batches of the rows of .npy files, which are mapped into memory; all processors share a large file.

    A structured array becomes a column for each field, a plain one the column `column`. Batches of plain arrays are
    views of the file, so files must not be changed while a job runs.

    Args:
        paths: a file, folder (its `.npy` files, recursively) or glob, or several.
        column: the name of a plain array's values.
        columns: read only these fields, in this order.
        batch_rows: rows of a batch; the last of each range has fewer.

    Returns:
        A supplier for `DAG.new_vertex`.

    Raises:
        ValueError: no paths, or a number of rows below 1.
        BatchError: a name that no column can have.

    A file that is not a .npy file of one-dimensional arrays of fixed width makes the job fail with a `BatchError` that
    names it. Pickled objects are never read.

    Example:
        >>> prices = dag.new_vertex("prices", read_npy("prices/*.npy", column="price"))   # doctest: +SKIP
    """
    from shmjet.processors.files.npy_reader import NpyFormat

    if not isinstance(column, str) or not column:
        raise BatchError(f"a column's name must be a non-empty str, got {column!r}")
    chosen = _check("read_npy", columns, batch_rows)
    return ArrayMetaSupplier(_patterns("read_npy", paths), ".npy", NpyFormat(column, chosen, batch_rows))


def read_npz(
    paths: PathLike | Iterable[PathLike],
    *,
    columns: Sequence[str] | None = None,
    batch_rows: int = BATCH_ROWS,
) -> ProcessorMetaSupplier:
    """Emit batches of .npz files, whose members are columns of equal length; a processor reads a whole file.

    Args:
        paths: a file, folder (its `.npz` files, recursively) or glob, or several.
        columns: read only these members, in this order; named without `.npy`.
        batch_rows: rows of a batch; the last of each file has fewer.

    Returns:
        A supplier for `DAG.new_vertex`.

    Raises:
        ValueError: no paths, or a number of rows below 1.
        BatchError: columns that are none.

    Members of different length, of more than one dimension or of pickled objects make the job fail with a `BatchError`
    that names file and member.

    Example:
        >>> points = dag.new_vertex("points", read_npz("points.npz", columns=["x", "y"]))   # doctest: +SKIP
    """
    from shmjet.processors.files.npy_reader import NpzFormat

    chosen = _check("read_npz", columns, batch_rows)
    return ArrayMetaSupplier(_patterns("read_npz", paths), ".npz", NpzFormat(chosen, batch_rows))


def _patterns(who: str, paths: PathLike | Iterable[PathLike]) -> tuple[str, ...]:
    try:
        return absolute_patterns(paths)
    except ValueError:
        raise ValueError(f"{who}: no paths were given") from None


def _check(who: str, columns: Sequence[str] | None, batch_rows: int) -> tuple[str, ...] | None:
    check_batch_rows(who, batch_rows)
    if columns is None:
        return None
    chosen = () if isinstance(columns, str) else tuple(columns)
    if not chosen or len(set(chosen)) < len(chosen):
        raise BatchError(f"{who}: columns must name one or more columns, each once, got {columns!r}")
    return chosen
