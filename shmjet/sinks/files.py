"""Sinks that write files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

from shmjet.core.job import ProcessingGuarantee
from shmjet.pipeline.definitions import SinkDef
from shmjet.processors.files.compression import check_method
from shmjet.processors.files.line_blocks import check_encoding
from shmjet.processors.files.output_file import PartOptions
from shmjet.processors.files.paths import Folder, absolute_paths
from shmjet.processors.files.record_sink import RecordSinkSupplier, RecordWriteOptions

Compression = Literal["gzip", "bz2", "xz", "zstd"]


def files(
    folder: str | os.PathLike[str],
    to_string_fn: Callable[[Any], str] = str,
    *,
    format: Literal["lines", "json", "csv", "raw"] = "lines",  # noqa: A002
    charset: str = "utf-8",
    compression: Compression | None = None,
    columns: Sequence[str] | None = None,
    delimiter: str = ",",
    quote: str | None = '"',
    header: bool = True,
    null: str = "",
    storage_options: Mapping[str, Any] | None = None,
    exactly_once: bool = True,
    roll_by_size: int | None = None,
    roll_by_time: float | timedelta | None = None,
) -> SinkDef[Any]:
    """Write the items into a folder, one file per processor: `0`, `1`, ..., with `.json`, `.csv` and `.gz` behind it.

    The files have temporary names until the whole job has succeeded; then they get their own, before `run` returns. A
    job that fails or is cancelled leaves none. The folder is made when it is missing. Files of the same names are
    replaced; others stay, so use a fresh folder for each run. Where several stages of a pipeline end in one folder,
    those of the second one are called `0-1`, `1-1`, ..., and so on.

    With a processing guarantee, or when files are rolled, a processor writes *parts* one after the other: `0_000000`,
    `0_000001`, ... A part without items is not made, and no part takes the name of an earlier one, also in later runs.
    In an EXACTLY_ONCE job each snapshot ends the part that is open; it is synced to the disk and gets its name when the
    snapshot is valid, and a restarted job removes what its snapshot does not know. Otherwise a part gets its name as
    soon as it is complete. What has no name yet begins with a dot.

    Args:
        folder: made absolute here; or a URL for fsspec, such as `s3://bucket/out` (package fsspec).
        to_string_fn: text of an item, without the newline; for format "lines" only.
        format: "lines" of text; "json": a line of JSON for each item; "csv": a record for each dict, tuple, dataclass
            or row of a `Batch`; "raw": items are bytes, written one behind the other.
        charset: of the text; JSON is UTF-8.
        compression: pack the files.
        columns: CSV: names of the columns, in order; by default those of the first item of each file.
        delimiter, quote, header, null: CSV: as for `processors.write_files`.
        storage_options: for fsspec.
        exactly_once: False: in an EXACTLY_ONCE job, too, parts get their names at once. They are seen earlier, and a
            restarted job writes some items twice.
        roll_by_size: bytes from which on a part is complete. It is a little larger, or by one long item, such as a
            `Batch`. Where parts are compressed, what is in the file already counts.
        roll_by_time: seconds (or a `timedelta`) after which a part is complete.

    Raises:
        TypeError, ValueError, LookupError: for arguments that make no sense.
        ModuleNotFoundError: a package is missing that the folder's URL or the compression needs.

    A folder that cannot be made or written makes the job fail with the `OSError`, which names it.

    Example:
        >>> stage.write_to(sinks.files("out", lambda pair: f"{pair[0]},{pair[1]}"))      # doctest: +SKIP
    """
    if not callable(to_string_fn):
        raise TypeError(f"sinks.files: to_string_fn must be callable, got {to_string_fn!r}")
    if format not in ("lines", "json", "csv", "raw"):
        raise ValueError(f'sinks.files: format must be "lines", "json", "csv" or "raw", got {format!r}')
    if to_string_fn is not str and format != "lines":
        raise ValueError(f'sinks.files: to_string_fn is for format="lines", not {format!r}')
    if isinstance(columns, str) or (columns is not None and (not columns or len(set(columns)) < len(columns))):
        raise ValueError(f"sinks.files: columns must be a sequence of different names, got {columns!r}")
    if format == "csv":
        from shmjet.processors.csv.sink import csv_style

        charset = csv_style(delimiter, quote, header, null, charset).encoding
    elif columns is not None:
        raise ValueError(f'sinks.files: columns are for format="csv", not {format!r}')
    if format == "json" and charset.lower().replace("_", "-") not in ("utf-8", "utf8"):
        raise ValueError(f"sinks.files: JSON is written in UTF-8, not in {charset!r}")
    (path,) = absolute_paths("sinks.files", folder if isinstance(folder, str | os.PathLike) else [folder])
    writing = RecordWriteOptions(
        format=format,
        encoding=check_encoding(charset),
        to_line=to_string_fn,
        compression=check_method("sinks.files", compression),
        delimiter=delimiter,
        quote=quote,
        header=header,
        null=null,
        columns=None if columns is None else tuple(columns),
        parts=_parts(exactly_once, roll_by_size, roll_by_time),
    )
    supplier = RecordSinkSupplier(Folder(path, dict(storage_options or {})), writing)
    guarantee = ProcessingGuarantee.EXACTLY_ONCE if exactly_once else ProcessingGuarantee.AT_LEAST_ONCE
    return SinkDef(f"files({_short(path)})", supplier, by_row=format == "lines", guarantee=guarantee)


def json(
    folder: str | os.PathLike[str],
    *,
    compression: Compression | None = None,
    storage_options: Mapping[str, Any] | None = None,
    exactly_once: bool = True,
    roll_by_size: int | None = None,
    roll_by_time: float | timedelta | None = None,
) -> SinkDef[Any]:
    """Write a line of JSON for each item (rows of a `Batch` are items of their own); `files(format="json")`.

    Dataclasses, named tuples, dates, UUIDs and numpy's numbers are written too; NaN becomes null.

    Args:
        folder, compression, storage_options, exactly_once, roll_by_size, roll_by_time: as for `files`.

    Example:
        >>> stage.write_to(sinks.json("out"))              # doctest: +SKIP
    """
    return files(
        folder,
        format="json",
        compression=compression,
        storage_options=storage_options,
        exactly_once=exactly_once,
        roll_by_size=roll_by_size,
        roll_by_time=roll_by_time,
    )


def csv(
    folder: str | os.PathLike[str],
    columns: Sequence[str] | None = None,
    *,
    charset: str = "utf-8",
    compression: Compression | None = None,
    delimiter: str = ",",
    quote: str | None = '"',
    header: bool = True,
    null: str = "",
    storage_options: Mapping[str, Any] | None = None,
    exactly_once: bool = True,
    roll_by_size: int | None = None,
    roll_by_time: float | timedelta | None = None,
) -> SinkDef[Any]:
    """Write CSV files of dicts, tuples, dataclasses or batches; `files(format="csv")`.

    Args:
        folder, columns, charset, compression, delimiter, quote, header, null, storage_options: as for `files`.
        exactly_once, roll_by_size, roll_by_time: as for `files`.

    Raises:
        TypeError, ValueError, LookupError: for arguments that make no sense.

    Example:
        >>> stage.write_to(sinks.csv("out", ["carrier", "delay"]))        # doctest: +SKIP
    """
    return files(
        folder,
        format="csv",
        columns=columns,
        charset=charset,
        compression=compression,
        delimiter=delimiter,
        quote=quote,
        header=header,
        null=null,
        storage_options=storage_options,
        exactly_once=exactly_once,
        roll_by_size=roll_by_size,
        roll_by_time=roll_by_time,
    )


def _parts(exactly_once: bool, size: int | None, time: float | timedelta | None) -> PartOptions:
    """Check when parts end. Raises TypeError or ValueError."""
    seconds = time.total_seconds() if isinstance(time, timedelta) else time
    for name, value, kinds in (("roll_by_size", size, int), ("roll_by_time", seconds, int | float)):
        if value is not None and (not isinstance(value, kinds) or isinstance(value, bool)):
            raise TypeError(f"sinks.files: {name} must be a number or None, got {value!r}")
        if value is not None and not 0 < value < float("inf"):
            raise ValueError(f"sinks.files: {name} must be above 0, got {value!r}")
    return PartOptions(bool(exactly_once), size, seconds)


def _short(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2] or path
