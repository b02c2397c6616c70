"""The sink that writes batches into .npy files, one structured array per processor.

Must not know: where batches come from. A file has a temporary name until the processor is through.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from shmjet.core.processor import Processor, ProcessorContext
from shmjet.data.errors import BatchError
from shmjet.processors.files.new_file import NewFile, path_in_errors
from shmjet.processors.general.base import BulkProcessor, Supply, require_batches

if TYPE_CHECKING:
    import numpy as np

    from shmjet.data.batch import Batch


class WriteNpyProcessor(BulkProcessor):
    """Writes rows as records; the header, whose length the first batch decides, gets their number at the end."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._new: NewFile | None = None
        self._file: IO[bytes] | None = None
        self._dtype: np.dtype[Any] | None = None
        self._rows = 0

    def start(self, context: ProcessorContext) -> None:
        """Create the folder; there is no file without a batch."""
        self._new = NewFile(self._folder, f"{context.global_index}.npy")

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Write batches.

        Raises:
            BatchError: an item is not a batch, has other columns than those before, or has a column that .npy cannot
                hold.
        """
        import numpy as np

        require_batches("write_npy", items)
        for batch in items:
            records = np.empty(len(batch), self._record_type(batch))
            for name, column in batch.parts()[0].items():
                records[name] = column
            assert self._new is not None
            self._new.write(records.view(np.uint8).data)
            self._rows += len(records)

    def finish(self) -> bool:
        """Put the number of rows into the header, and give the file its name."""
        from shmjet.processors.files.npy_format import make_header

        if self._file is not None:
            assert self._new is not None
            assert self._dtype is not None
            with path_in_errors(self._folder):
                self._file.seek(0)
            self._new.write(make_header(self._dtype, self._rows))
            self._file = None
            self._new.keep()
        return True

    def close(self) -> None:
        """Remove what is unfinished."""
        self._file = None
        if self._new is not None:
            self._new.drop()

    def _record_type(self, batch: Batch) -> np.dtype[Any]:
        from shmjet.processors.files.npy_format import make_header

        dtype = _record_type(batch)
        if self._dtype is None:
            self._dtype = dtype
            assert self._new is not None
            self._file = self._new.open()
            self._new.write(make_header(dtype, 0))
        elif dtype != self._dtype:
            raise BatchError(f"write_npy: a file has the columns of its first batch, {self._dtype}; then came {dtype}")
        return dtype


def _record_type(batch: Batch) -> np.dtype[Any]:
    import numpy as np

    fields: list[tuple[str, Any]] = []
    for name, column in batch.parts()[0].items():
        if batch.validity(name) is not None:
            raise BatchError(f"write_npy: column {name!r} has nulls, for which .npy has no place; fill or filter them")
        if not isinstance(column, np.ndarray):
            raise BatchError(
                f"write_npy: column {name!r} is {column.dtype} of variable length, which .npy cannot hold; make it one "
                "of fixed width, as numpy.array(batch[name], 'U20'), or write CSV"
            )
        fields.append((name, column.dtype))
    if not fields:
        raise BatchError("write_npy: a batch without columns cannot be written")
    return np.dtype(fields)


def write_npy(folder: str | os.PathLike[str]) -> Callable[[], Processor]:
    """Write batches into `folder/<global index of the processor>.npy`, a structured array with a field for each column.

    `numpy.load` and `read_npy` read it. The folder is created when it is missing. A file of the same name is replaced,
    when its processor has written all, and stays where the job fails after that; a processor that gets no batch
    writes none.

    Args:
        folder: where the files go; made absolute here.

    The job fails with a `BatchError` for columns of variable-length text (.npy has only fixed width), for nulls, and
    when batches differ in their columns.

    Example:
        >>> writer = write_npy("/tmp/points")
    """
    return Supply(WriteNpyProcessor, os.path.abspath(os.path.expanduser(folder)))
