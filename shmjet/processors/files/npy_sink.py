"""The sink that writes batches into .npy files, one structured array per processor.

Must not know: where batches come from. A file has a temporary name until the processor is through.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any

from shmjet.core.processor import Processor
from shmjet.data.errors import BatchError
from shmjet.processors.files.file_sink import LocalFileSink
from shmjet.processors.files.output_file import PartOptions
from shmjet.processors.general.base import Supply, require_batches

if TYPE_CHECKING:
    import numpy as np

    from shmjet.data.batch import Batch


class WriteNpyProcessor(LocalFileSink):
    """Writes rows as records; the header, whose length the first batch decides, gets their number at the end."""

    suffix = ".npy"
    opens_at_once = False  # there is no file without a batch

    def __init__(self, folder: str, options: PartOptions) -> None:
        super().__init__(folder, options)
        self._dtype: np.dtype[Any] | None = None
        self._rows = 0

    def begin_file(self) -> None:
        """Begin with a header."""
        self._dtype, self._rows = None, 0

    def encode(self, items: list[Any]) -> Iterator[Any]:
        """Return the records of batches.

        Raises:
            BatchError: an item is not a batch, has other columns than those before, or has a column that .npy cannot
                hold.
        """
        import numpy as np

        from shmjet.processors.files.npy_format import make_header

        require_batches("write_npy", items)
        for batch in items:
            dtype = _record_type(batch)
            if self._dtype is None:
                self._dtype = dtype
                yield make_header(dtype, 0)
            elif dtype != self._dtype:
                raise BatchError(
                    f"write_npy: a file has the columns of its first batch, {self._dtype}; then came {dtype}"
                )
            records = np.empty(len(batch), dtype)
            for name, column in batch.parts()[0].items():
                records[name] = column
            yield records.view(np.uint8).data
            self._rows += len(records)

    def end_file(self, file: IO[bytes]) -> None:
        """Put the number of rows into the header."""
        from shmjet.processors.files.npy_format import make_header

        if self._dtype is not None:
            file.seek(0)
            file.write(make_header(self._dtype, self._rows))


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


def write_npy(folder: str | os.PathLike[str], *, exactly_once: bool = True) -> Callable[[], Processor]:
    """Write batches into `folder/<global index of the processor>.npy`, a structured array with a field for each column.

    `numpy.load` and `read_npy` read it. The folder is created when it is missing. A file of the same name is replaced,
    when its processor has written all, and stays where the job fails after that; a processor that gets no batch
    writes none.

    Args:
        folder: where the files go; made absolute here.
        exactly_once: as for `write_files`, which says what files there are in a job with a processing guarantee.

    The job fails with a `BatchError` for columns of variable-length text (.npy has only fixed width), for nulls, and
    when batches differ in their columns.

    Example:
        >>> writer = write_npy("/tmp/points")
    """
    return Supply(WriteNpyProcessor, os.path.abspath(os.path.expanduser(folder)), PartOptions(exactly_once))
