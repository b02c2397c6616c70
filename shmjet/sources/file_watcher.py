"""`file_watcher()`: what is appended to the files of a folder."""

from __future__ import annotations

import codecs
import os
from functools import partial
from typing import Any, Literal

from shmjet.core.event_time import EventTimePolicy
from shmjet.core.job import ProcessingGuarantee
from shmjet.core.processor import ProcessorMetaSupplier
from shmjet.data.columnar import Columnar
from shmjet.pipeline.definitions import StreamSourceDef
from shmjet.processors.files.line_blocks import check_encoding
from shmjet.processors.general.base import Supply


def file_watcher(
    folder: str | os.PathLike[str],
    glob: str = "*",
    format: Literal["lines", "json", "csv"] = "lines",  # noqa: A002
    *,
    as_: Any = None,
    charset: str = "utf-8",
    errors: str = "replace",
    with_path: bool = False,
    delimiter: str = ",",
    quote: str | None = '"',
) -> StreamSourceDef[Any]:
    """Emit the lines that are appended to the files of a folder, and those of new files, as they come.

    What is in the files when the job begins is left out; files that are made later are read from their beginning. A
    line is emitted when its newline has been written. A file is known by its inode: renamed in the folder, it goes on
    where it was, and another file under its old name is a new one, as log rotation makes them. A file that was cut is
    read from its beginning. Lines of a file come in order; what is deleted or moved out of the folder before it was
    read is lost.

    Changes are told by inotify, through the package `inotify_simple` (`pip install inotify_simple`); without it the
    folder is looked at ten times a second. Neither sees in time what other hosts write on a network file system.

    In a job with a guarantee the positions in the files are saved: a job that goes on reads what was appended
    meanwhile, each line once, also with another number of processors. One processor on each member reads all files;
    `set_local_parallelism(n)` deals them out. All members must see the same folder. The stream ends when the folder is
    removed.

    Args:
        folder: must exist on each member when the job starts. Folders in it are not looked at.
        glob: of the names of files, as for `fnmatch`. "*" leaves out names that begin with a dot.
        format: "lines": `str` without line ends; "json": the value of each line; "csv": a dict of text for each line,
            by the names in the first line of the file; a record is one line.
        as_: for "json" and "csv", a type that each item is made into, such as a dataclass; of CSV from text.
        charset: of the files; one in which a newline is one byte.
        errors: what bytes that are not text become, as for `bytes.decode`.
        with_path: emit (path, item) tuples.
        delimiter, quote: of CSV.

    Raises:
        TypeError, ValueError, LookupError: for arguments that make no sense.

    A folder that does not exist makes the job fail with a `FileNotFoundError`, a bad line with a `ValueError` that
    names the file and the place.

    Example:
        >>> p.read_from(sources.file_watcher("/var/log/app", "*.log")).with_ingestion_timestamps()   # doctest: +SKIP
        >>> file_watcher("/var/log", "*.json", "json").name
        'file_watcher(/var/log)'
    """
    if format not in ("lines", "json", "csv"):
        raise ValueError(f'file_watcher: format must be "lines", "json" or "csv", got {format!r}')
    if as_ is not None and format == "lines":
        raise TypeError(f"file_watcher: lines are text, so as_ does not apply, got {as_!r}")
    if isinstance(as_, type) and issubclass(as_, Columnar):
        raise TypeError("file_watcher: items are single lines; leave as_ out and say to_batches() for batches of them")
    if not isinstance(glob, str) or not glob or "/" in glob:
        raise ValueError(f"file_watcher: glob is a pattern of names, without a slash, got {glob!r}")
    for name, sign in (("delimiter", delimiter), ("quote", quote)):
        if sign is not None and (not isinstance(sign, str) or len(sign) != 1):
            raise ValueError(f"file_watcher: {name} must be one character, got {sign!r}")
    codecs.lookup_error(errors)
    path = os.fspath(folder)
    if not isinstance(path, str) or not path:
        raise TypeError(f"file_watcher: expected the path of a folder, got {folder!r}")
    line_format = (format, as_, check_encoding(charset), errors, with_path, delimiter, quote)
    timed = partial(_supplier, os.path.abspath(path), glob, line_format)
    return StreamSourceDef(
        f"file_watcher({path})", timed(None), 1, guarantee=ProcessingGuarantee.EXACTLY_ONCE, timed=timed
    )


def _supplier(
    folder: str, glob: str, line_format: tuple[Any, ...], policy: EventTimePolicy | None
) -> ProcessorMetaSupplier:
    from shmjet.processors.streams.file_watcher import FileWatcherProcessor
    from shmjet.processors.streams.line_format import LineFormat

    return ProcessorMetaSupplier.prefer_local_parallelism_one(
        Supply(FileWatcherProcessor, folder, glob, LineFormat(*line_format), policy)
    )
