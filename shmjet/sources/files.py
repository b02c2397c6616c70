"""Sources that read files."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from shmjet.core.job import ProcessingGuarantee
from shmjet.data.columnar import Columnar
from shmjet.pipeline.definitions import SourceDef
from shmjet.processors.files.compression import check_method, compression_of
from shmjet.processors.files.line_blocks import check_encoding
from shmjet.processors.files.paths import absolute_paths
from shmjet.processors.files.record_reader import PATH_COLUMN, RecordReadOptions
from shmjet.processors.files.record_source import RecordMetaSupplier

PathLike = str | os.PathLike[str]
_BATCH_ROWS = 16384


def files(
    paths: PathLike | Iterable[PathLike],
    format: Literal["lines", "json", "csv", "raw"] = "lines",  # noqa: A002
    *,
    as_: Any = None,
    charset: str = "utf-8",
    errors: str = "replace",
    with_path: bool = False,
    schema: Mapping[str, Any] | None = None,
    columns: Sequence[str] | None = None,
    delimiter: str = ",",
    quote: str | None = '"',
    header: bool = True,
    nulls: Sequence[str] = ("",),
    on_bad_line: Literal["error", "skip"] = "error",
    batch_rows: int = _BATCH_ROWS,
    storage_options: Mapping[str, Any] | None = None,
) -> SourceDef[Any]:
    """Read files: lines of text, JSON lines, CSV or raw bytes; packed ones too.

    Large plain files are read by all processors at once, packed and remote ones by one each. Names that end in `.gz`,
    `.bz2`, `.xz` or `.zst` (package zstandard) are unpacked on the way. The order of items is kept only within a piece
    of a file. Packed or remote files that become CSV or batches are first unpacked into temporary files without names.

    In a job with a processing guarantee files have to stay as they are: a restarted job goes on in the middle of them,
    and fails where one of this host was changed. It reads the files that were there when it began.

    Args:
        paths: a file, folder (read recursively) or glob (`**` included), a URL for fsspec such as `s3://bucket/*.gz`
            (package fsspec), or several. Paths are made absolute here; all are looked for when the job starts.
        format: "lines": `str` without line ends; "json": the value of each line, by default dicts and the like;
            "csv": a dict for each record; "raw": the `bytes` of each whole file.
        as_: `Batch`: batches of columns, for "lines" and "csv". For "json" and "csv" also a type that each item is
            made into, such as a dataclass.
        charset: of the text; one in which a newline is one byte.
        errors: what bytes that are not text become, as for `bytes.decode`.
        with_path: emit (path, item) tuples; in batches, add a text column `path`.
        schema: CSV: type by column, as numpy names it, or "text" or "bytes"; None: infer it from the header and the
            first 1,000 records of the first file. Lines as batches: {name: "text" or "bytes"}.
        columns: CSV: read only these, in this order.
        delimiter, quote, header, nulls, on_bad_line: CSV: as for `processors.read_files`.
        batch_rows: rows of a batch; the last of each processor has fewer.
        storage_options: for fsspec.

    Raises:
        ValueError, TypeError, LookupError, BatchError: for arguments that make no sense.
        ModuleNotFoundError: a package is missing that a URL or a packed file needs.

    A path that does not exist makes the job fail with a `FileNotFoundError` that names it, a bad line with an error
    that names file and line, a damaged packed file with an `OSError` that names it.

    Example:
        >>> p.read_from(sources.files("corpus/**/*.txt"))                                   # doctest: +SKIP
        >>> p.read_from(sources.files("s3://logs/2024/*.json.gz", "json"))                  # doctest: +SKIP
        >>> p.read_from(sources.files("flights.csv", "csv", as_=Batch, nulls=("", "NA")))   # doctest: +SKIP
    """
    is_columnar = isinstance(as_, type) and issubclass(as_, Columnar)
    _check_format(format, as_, is_columnar, schema, columns)
    absolute = absolute_paths("sources.files", paths)
    for path in absolute:
        check_method("sources.files", compression_of(path))
    batches: Any = None
    if is_columnar or format == "csv":
        of_csv = {"delimiter": delimiter, "quote": quote, "header": header, "nulls": nulls, "on_bad_line": on_bad_line}
        of_columns = {"batch_rows": batch_rows, "schema": schema, "columns": columns, **of_csv}
        batches = _batches(format, charset, errors, with_path, is_columnar, of_columns)
    else:
        check_encoding(charset)
        codecs.lookup_error(errors)
    items = None if is_columnar else as_
    options = dict(storage_options or {})
    reading = RecordReadOptions(format, charset, errors, with_path, items, batches, not is_columnar, options)
    name = f"{_kind(format)}({_short(absolute)})"
    if is_columnar and format == "csv":
        return CsvSource(name, absolute, reading)
    return SourceDef(
        name,
        RecordMetaSupplier(absolute, reading),
        columnar=is_columnar,
        guarantee=ProcessingGuarantee.EXACTLY_ONCE,
        nbytes=_bytes(absolute),
    )


class CsvSource(SourceDef[Any]):
    """CSV files as batches, of which columns and rows can be left out while they are read.

    Args:
        name: stem of the vertex' name.
        paths: absolute.
        reading: how to read.
    """

    def __init__(self, name: str, paths: tuple[str, ...], reading: RecordReadOptions) -> None:
        guarantee = ProcessingGuarantee.EXACTLY_ONCE
        super().__init__(
            name, RecordMetaSupplier(paths, reading), columnar=True, guarantee=guarantee, nbytes=_bytes(paths)
        )
        object.__setattr__(self, "_paths", paths)
        object.__setattr__(self, "_reading", reading)

    _paths: tuple[str, ...]
    _reading: RecordReadOptions

    @property
    def column_names(self) -> tuple[str, ...] | None:
        """The names of the columns; None where the files will tell."""
        csv: Any = self._reading.batches
        if csv.schema is None and csv.columns is None:
            return csv.needed  # type: ignore[no-any-return]
        names = (*csv.declared(), *([csv.path_column] if csv.path_column is not None else []))
        return names if csv.needed is None else tuple(name for name in names if name in csv.needed)

    def takes(self, condition: Any) -> bool:
        """Whether rows for which a condition is not true can be left out here: it is of the files' columns."""
        names = self.column_names
        return bool(condition.names) and (names is None or set(condition.names) <= set(names))

    def narrowed(self, columns: tuple[str, ...] | None, conditions: tuple[Any, ...]) -> CsvSource:
        """Return a source of some columns, None for all, of the rows for which conditions are true.

        Where bad lines are left out all columns are read, because any may make a line bad.
        """
        csv: Any = self._reading.batches
        needed = csv.needed if csv.skip_bad or columns is None else columns
        narrow = replace(csv, needed=needed, conditions=(*csv.conditions, *conditions))
        found = CsvSource(self.name, self._paths, replace(self._reading, batches=narrow))
        notes = [] if needed is None else [f"reads only {', '.join(needed) or 'one column, to count rows'}"]
        notes += [f"gives only rows where {condition!r}" for condition in narrow.conditions]
        object.__setattr__(found, "notes", tuple(notes))
        object.__setattr__(found, "parallelism", self.parallelism)
        return found

    def telling_columns(self) -> CsvSource:
        """Return a source that tells the columns also where the files have no records."""
        csv: Any = replace(self._reading.batches, tells_columns=True)  # type: ignore[type-var]
        found = CsvSource(self.name, self._paths, replace(self._reading, batches=csv))
        for name in ("notes", "parallelism"):
            object.__setattr__(found, name, getattr(self, name))
        return found

    def __reduce__(self) -> Any:
        return CsvSource, (self.name, self._paths, self._reading)


def _bytes(paths: Iterable[str]) -> int | None:
    """Return how many bytes plain files have; None where one is packed, elsewhere, or named by a pattern."""
    try:
        return None if any(compression_of(path) for path in paths) else sum(os.path.getsize(path) for path in paths)
    except OSError:
        return None


def json(
    paths: PathLike | Iterable[PathLike],
    as_: Any = None,
    *,
    with_path: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> SourceDef[Any]:
    """Read JSON lines, in UTF-8: the value of each line; `files(format="json")`.

    Args:
        paths, with_path, storage_options: see `files`.
        as_: a type that each value is made into and checked against, such as a dataclass; None: dicts and the like.

    Example:
        >>> p.read_from(sources.json("events/*.json.gz"))             # doctest: +SKIP
    """
    return files(paths, "json", as_=as_, errors="strict", with_path=with_path, storage_options=storage_options)


def csv(
    paths: PathLike | Iterable[PathLike],
    schema: Mapping[str, Any] | None = None,
    *,
    columns: Sequence[str] | None = None,
    as_: Any = None,
    charset: str = "utf-8",
    errors: str = "replace",
    with_path: bool = False,
    delimiter: str = ",",
    quote: str | None = '"',
    header: bool = True,
    nulls: Sequence[str] = ("",),
    on_bad_line: Literal["error", "skip"] = "error",
    batch_rows: int = _BATCH_ROWS,
    storage_options: Mapping[str, Any] | None = None,
) -> SourceDef[Any]:
    """Read CSV files: a dict for each record, or with `as_=Batch` batches of columns; `files(format="csv")`.

    Args:
        schema: type by column, as numpy names it, or "text" or "bytes"; None: infer it.
        paths, columns, as_, charset, errors, with_path, batch_rows, storage_options: as for `files`.
        delimiter, quote, header, nulls, on_bad_line: as for `files`.

    Raises:
        ValueError, TypeError, LookupError, BatchError: for arguments that make no sense.

    Example:
        >>> p.read_from(sources.csv("flights.csv", {"carrier": "text", "dep_delay": "float64"}))  # doctest: +SKIP
    """
    return files(
        paths,
        "csv",
        as_=as_,
        charset=charset,
        errors=errors,
        with_path=with_path,
        schema=schema,
        columns=columns,
        delimiter=delimiter,
        quote=quote,
        header=header,
        nulls=nulls,
        on_bad_line=on_bad_line,
        batch_rows=batch_rows,
        storage_options=storage_options,
    )


def _check_format(
    format_: str, as_: Any, is_columnar: bool, schema: Mapping[str, Any] | None, columns: Sequence[str] | None
) -> None:
    """Raise ValueError or TypeError when a format is unknown, or other arguments do not go with it."""
    if format_ not in ("lines", "json", "csv", "raw"):
        raise ValueError(f'sources.files: format must be "lines", "json", "csv" or "raw", got {format_!r}')
    if as_ is not None and format_ in (("json", "raw") if is_columnar else ("lines", "raw")):
        raise TypeError(f"sources.files: format {format_!r} gives no items of type {getattr(as_, '__name__', as_)!r}")
    if format_ != "csv" and (columns is not None or (schema is not None and not is_columnar)):
        raise ValueError(f'sources.files: schema and columns are for format="csv", not {format_!r}')


def _batches(
    format_: str, charset: str, errors: str, with_path: bool, is_columnar: bool, options: Mapping[str, Any]
) -> Any:
    """Return how files become batches; where their rows are wanted, the path comes in a column that no file has."""
    from shmjet.data.batch import Batch
    from shmjet.processors.files.file_batches import batch_format

    as_column = with_path and is_columnar
    batches: Any = batch_format(Batch, format_, encoding=charset, errors=errors, with_path=as_column, **options)
    return replace(batches, path_column=PATH_COLUMN) if with_path and not is_columnar else batches


def _kind(format_: str) -> str:
    return "files" if format_ in ("lines", "raw") else format_


def _short(paths: Sequence[str]) -> str:
    name = paths[0].rstrip("/").rpartition("/")[2] or paths[0]
    return name if len(paths) == 1 else f"{name}, ..."
