"""What a `DataFrameWriter` is told: format, mode, where to, options.

Must not know files in between.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shmjet.data.errors import ConfigError

_MODES = ("error", "errorifexists", "append", "overwrite", "ignore")


@dataclass(frozen=True)
class WriterOptions:
    """How a DataFrame is written."""

    path: str | None
    format: str
    mode: str
    table: str | None
    partition_by: tuple[str, ...]
    options: tuple[tuple[str, str], ...]

    @property
    def target(self) -> str:
        """Where to, in a word."""
        options = dict(self.options)
        if self.table is not None:
            return self.table
        return self.path.rstrip("/").rpartition("/")[2] if self.path else options.get("dbtable", self.format)

    def write(self, frame: Any) -> None:
        """Write a DataFrame."""
        writer = frame.write.format(self.format).mode(self.mode).options(**dict(self.options))
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        if self.table is not None:
            writer.saveAsTable(self.table)
        elif self.path is not None:
            writer.save(self.path)
        else:
            writer.save()


def checked_options(
    path: str | os.PathLike[str] | None,
    format_: str,
    mode: str,
    table: str | None,
    partition_by: Sequence[str],
    options: Mapping[str, Any] | None,
    columns: Sequence[str],
) -> WriterOptions:
    """Return the arguments of `sink`, checked.

    Raises:
        ConfigError: one makes no sense.

    Example:
        >>> checked_options("out", "orc", "append", None, [], {"compression": "zstd"}, ["a"]).target
        'out'
    """
    if not isinstance(format_, str) or not format_:
        raise ConfigError(f"shmjet.spark.sink: format must be a word such as 'parquet', got {format_!r}")
    if mode not in _MODES:
        raise ConfigError(f"shmjet.spark.sink: mode must be one of {', '.join(_MODES)}, got {mode!r}")
    if path is not None and table is not None:
        raise ConfigError(f"shmjet.spark.sink: give a path or a table, got {path!r} and {table!r}")
    given = {name: _option(value) for name, value in (options or {}).items()}
    if path is None and table is None and format_ != "jdbc" and "path" not in given:
        raise ConfigError(f"shmjet.spark.sink: format {format_!r} needs a path, or a table to save as")
    if format_ == "jdbc" and table is None and not {"url", "dbtable"} <= given.keys():
        raise ConfigError('shmjet.spark.sink: format "jdbc" needs the options url and dbtable')
    by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    for name in by:
        if name not in columns:
            raise ConfigError(f"shmjet.spark.sink: partition_by names {name!r}; columns: {', '.join(columns)}")
    where = None if path is None else os.fspath(path)
    return WriterOptions(where, format_, mode, table, by, tuple(given.items()))


def _option(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
