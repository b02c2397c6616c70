"""The sink that writes text files, one per processor: lines, or batches as CSV (`csv_sink`).

Must not know: where lines come from. A file has a temporary name until its processor has finished, so `FOLDER/INDEX`
is always complete. After Jet's `writeFileP`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

from shmjet.core.key_functions import mapped
from shmjet.core.processor import Processor, ProcessorContext
from shmjet.processors.files.line_blocks import check_encoding
from shmjet.processors.files.new_file import NewFile
from shmjet.processors.files.output_file import FileSink, PartOptions
from shmjet.processors.files.paths import Folder
from shmjet.processors.general.base import Supply


class LocalFileSink(FileSink):
    """Writes into a folder of this host; the single file has its name as soon as its processor is through."""

    def __init__(self, folder: str, options: PartOptions) -> None:
        super().__init__(Folder(folder, {}), options)

    def single_file(self, context: ProcessorContext) -> NewFile:
        """Return the file that is called like the processor's index."""
        return NewFile(Path(self._folder.path), f"{context.global_index}{self.suffix}")


class WriteFileProcessor(LocalFileSink):
    """Writes `to_line(item)` and a newline for each item."""

    def __init__(self, folder: str, to_line: Callable[[Any], str], encoding: str, options: PartOptions) -> None:
        super().__init__(folder, options)
        self._to_line = to_line
        self._encoding = encoding

    def encode(self, items: list[Any]) -> Iterable[bytes]:
        """Return the lines."""
        return (("\n".join(mapped(self._to_line, items)) + "\n").encode(self._encoding),)


def write_files(
    folder: str | os.PathLike[str],
    to_line: Callable[[Any], str] = str,
    *,
    encoding: str = "utf-8",
    format: Literal["lines", "csv"] = "lines",  # noqa: A002
    delimiter: str = ",",
    quote: str | None = '"',
    header: bool = True,
    null: str = "",
    exactly_once: bool = True,
) -> Callable[[], Processor]:
    """Write each item as a line of text into `folder/<global index of the processor>`.

    The folder is created when it is missing. A file of the same name is replaced, when its processor has written all;
    other files in the folder stay, so use a fresh folder for each run. Where the job fails after that, the file stays:
    `sinks.files` waits for the whole job.

    With `format="csv"` the items are batches, and the files `folder/<global index>.csv` have a record for each row.
    `read_files(folder, as_=Batch, format="csv", schema=..., ...)` gives back equal values.

    In a job with a processing guarantee a processor writes a part for each snapshot, `folder/<index>_<number>`, which
    has a name with a dot until the snapshot is valid; see `sinks.files`.

    Args:
        folder: where the files go; made absolute here.
        to_line: text of an item, without the newline; not for CSV.
        encoding: of the files. CSV: UTF-8, or one byte a character.
        format: "lines", or "csv".
        delimiter: CSV: one ASCII character.
        quote: CSV: one ASCII character, or None: what would need quotes is an error.
        header: CSV: write the columns' names first.
        null: CSV: what stands for a null.
        exactly_once: False: parts get their names before the snapshot is valid; a restart may write items twice.

    Raises:
        TypeError: when `to_line` is not callable.
        LookupError, ValueError: for an encoding that is unknown or has no one-byte newline, or an argument for CSV that
            is wrong.

    With CSV, the job fails with a `BatchError` for columns that CSV cannot hold (complex, structured) and when batches
    differ in their columns.

    Example:
        >>> writer = write_files("/tmp/counts", lambda pair: f"{pair[0]},{pair[1]}")
        >>> table = write_files("/tmp/table", format="csv")
    """
    if not callable(to_line):
        raise TypeError(f"write_files: to_line must be callable, got {to_line!r}")
    place = os.path.abspath(os.path.expanduser(folder))
    if format == "lines":
        return Supply(WriteFileProcessor, place, to_line, check_encoding(encoding), PartOptions(exactly_once))
    if format != "csv":
        raise ValueError(f'write_files: format must be "lines" or "csv", got {format!r}')
    if to_line is not str:
        raise ValueError('write_files: to_line is for lines; format="csv" writes the columns of batches')
    from shmjet.processors.csv.sink import WriteCsvProcessor, csv_style

    style = csv_style(delimiter, quote, header, null, encoding)
    return Supply(WriteCsvProcessor, place, style, PartOptions(exactly_once))
