"""Column files: items with their columns, written as Parquet files.

Must not know Spark, nor who has the items.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import IO, Any

from shmjet.core.processor import ProcessorContext
from shmjet.data.batch import Batch, any_column
from shmjet.data.errors import BatchError
from shmjet.processors.general.base import BulkProcessor
from shmjet.spark.back.column_conversion import Fitted, fitted_column, fitted_rows
from shmjet.spark.back.parquet import ParquetWriter
from shmjet.spark.back.rows import uniform
from shmjet.spark.back.schemas import Column

ROWS = 16384
"""Rows that become a page together, where items come in smaller lists."""


class ColumnFile:
    """A file that takes items.

    Args:
        path: of the file, which must not exist.
        columns: of the file.
        partition: named in errors.
    """

    def __init__(self, path: str, columns: Sequence[Column], partition: int) -> None:
        self._columns = tuple(columns)
        self._names = [column.name for column in columns]
        self._partition = partition
        self._waiting: list[Any] = []
        self._file: IO[bytes] = open(path, "xb")  # noqa: SIM115
        self._writer = ParquetWriter(self._file, columns)

    def add(self, items: Iterable[Any]) -> None:
        """Append rows of any form.

        Raises:
            BatchError: a row or a value does not fit; the text names partition, column and value.
        """
        self._waiting += items
        if len(self._waiting) >= ROWS or any(type(item) is Batch for item in self._waiting):
            self._flush()

    def finish(self) -> int:
        """Write what waits and the footer, and close the file; return the number of rows."""
        self._flush()
        rows = self._writer.finish()
        self._file.close()
        return rows

    def close(self) -> None:
        """Close the file, whole or not."""
        self._file.close()

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        try:
            for rows in uniform(waiting, self._names):
                self._writer.write(self._fitted(rows), rows.num_rows if isinstance(rows, Batch) else len(rows))
        except BatchError as error:
            raise BatchError(f"partition {self._partition}: {error}") from error.__cause__

    def _fitted(self, rows: list[Any] | Batch) -> dict[str, Fitted]:
        if isinstance(rows, Batch):
            return {column.name: fitted_column(column, *any_column(rows, column.name)) for column in self._columns}
        width = len(self._columns)
        return {column.name: fitted_rows(column, rows, place, width) for place, column in enumerate(self._columns)}


class ColumnFileProcessor(BulkProcessor):
    """A sink that writes a column file for each processor, whole or not at all.

    Args:
        folder: of the files, those of other vertices among them.
        columns: of the files.
    """

    def __init__(self, folder: str, columns: tuple[Column, ...]) -> None:
        self._folder = folder
        self._columns = columns
        self._path = ""
        self._file: ColumnFile | None = None

    def start(self, context: ProcessorContext) -> None:
        """Create the file."""
        name = file_name(context.vertex_name, context.global_index, context.job_id)
        self._path = os.path.join(self._folder, name)
        self._file = ColumnFile(self._path, self._columns, context.global_index)

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Write a list."""
        assert self._file is not None
        self._file.add(items)

    def finish(self) -> bool:
        """Close the file."""
        if self._file is not None:
            self._file.finish()
            self._file = None
        return True

    def close(self) -> None:
        """Remove the file if it is not whole."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
            os.unlink(self._path)


def file_name(vertex: str, index: int, attempt: str) -> str:
    """Return the name of a processor's file; the sinks of several vertices may share a folder.

    Args:
        vertex: any text, of which the name has a digest.
        index: of the processor.
        attempt: at its work.
    """
    digest = blake2b(vertex.encode(errors="surrogatepass"), digest_size=8).hexdigest()
    return f"part-{index:05d}-{attempt}-{digest}.parquet"
