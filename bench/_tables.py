"""Columns in files that a process maps once and keeps mapped, so that a bench meets warm memory in every run.

A module of its own, because workers import it: what belongs to the script itself is made anew for every job.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from shmjet.data.batch import Batch
from shmjet.data.text import Text

Files = tuple[str, str]
"""Paths of the key and the value column."""


@functools.cache
def mapped(files: Files) -> tuple[Any, ...]:
    """Map the key and the value column."""
    return tuple(np.load(path, mmap_mode="r").view(np.ndarray) for path in files)


def read(files: Files, size: int, index: int, total: int) -> Iterator[Batch]:
    """Give a processor's share of the rows, in batches of views."""
    key, value = mapped(files)
    first, last = (len(key) * i // total for i in (index, index + 1))
    for at in range(first, last, size):
        end = min(at + size, last)
        yield Batch({"k": key[at:end], "v": value[at:end]})


# -- tables of any columns ---------------------------------------------------------------------------------------------

NamedFiles = tuple[tuple[str, str], ...]
"""Name and path of each column. That of a text ends with `.text`: its bytes; its offsets are in `PATH.npy`."""


@functools.cache
def columns_of(files: NamedFiles) -> dict[str, Any]:
    """Map the columns."""
    return {name: _text(path) if path.endswith(".text") else _array(path) for name, path in files}


def read_columns(files: NamedFiles, size: int, index: int, total: int) -> Iterator[Batch]:
    """Give a processor's share of the rows, in batches of views."""
    columns = columns_of(files)
    rows = len(next(iter(columns.values())))
    first, last = (rows * i // total for i in (index, index + 1))
    for at in range(first, last, size):
        end = min(at + size, last)
        yield Batch({name: values[at:end] for name, values in columns.items()})


def text_files(folder: Path, name: str, column: str, values: list[str]) -> dict[str, str]:
    """Save a column of text; return its files."""
    path = folder / f"{name}.text"
    text = Text.of(values)
    path.write_bytes(text.data.tobytes())
    np.save(f"{path}.npy", text.offsets)
    return {column: str(path)}


def _array(path: str) -> Any:
    return np.load(path, mmap_mode="r").view(np.ndarray)


def _text(path: str) -> Text:
    return Text.trusted(_array(f"{path}.npy"), np.memmap(path, np.uint8, "r").view(np.ndarray))
