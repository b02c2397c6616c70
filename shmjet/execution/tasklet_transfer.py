"""How a tasklet travels to another worker: one pickle of its processor and of what its tasklet knows.

What belongs to the place and not to the processor (outbox, context, the member's maps) stays behind and is replaced by
its counterpart at the other end, wherever the processor refers to it; so are the NaNs that stand in keys. A native
table goes as the descriptor of its memory, so that its size does not matter. A processor that holds what cannot travel,
a generator that is suspended, an open file, or that is larger than a move is worth, is refused and stays.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import cloudpickle

from shmjet.core.key_functions import NAN, OTHER_NAN
from shmjet.data.code_pickling import CodePickler

MOST_BYTES = 1 << 20
"""A state larger than this stays: a megabyte takes some milliseconds to pickle and to read back."""
MOST_TABLES = 8
"""A message carries no more descriptors than these and one for the state."""

_NANS = {"nan": NAN, "other nan": OTHER_NAN}
"""States find NaN by identity, so a state that comes along needs the objects of the process that it comes to."""


class TooLarge(Exception):
    """The state is larger than `MOST_BYTES`."""


class _Bounded(io.BytesIO):
    """Takes bytes up to a limit."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._left = most

    def write(self, data: Any) -> int:
        size = len(data)
        self._left -= size
        if self._left < 0:
            raise TooLarge
        return super().write(data)


class _Pickler(CodePickler):
    """Leaves out what stays behind, by identity, and native tables."""

    def __init__(self, file: io.BytesIO, staying: Mapping[int, str]) -> None:
        super().__init__(file, protocol=5)
        self._staying = staying
        columns = sys.modules.get("shmjet._native._columns")  # without it there is no table
        self._table_type = None if columns is None else columns.GroupTable
        self.tables: list[Any] = []

    def persistent_id(self, obj: Any) -> str | int | None:
        if type(obj) is self._table_type:
            at = next((i for i, table in enumerate(self.tables) if table is obj), len(self.tables))
            if at == len(self.tables):
                self.tables.append(obj)
            return at
        return self._staying.get(id(obj))


class _Unpickler(cloudpickle.pickle.Unpickler):  # type: ignore[misc]
    def __init__(self, file: io.BytesIO, here: Mapping[str, Any], fds: Sequence[int]) -> None:
        super().__init__(file)
        self._here = here
        self._fds = fds
        self._tables: dict[int, Any] = {}

    def persistent_load(self, pid: Any) -> Any:
        if isinstance(pid, str):
            return self._here[pid]
        if pid not in self._tables:
            from shmjet._native._columns import GroupTable  # only here: few jobs have tables

            self._tables[pid] = GroupTable.attach(self._fds[pid])
        return self._tables[pid]


def pack(state: Any, staying: Mapping[str, Any], most: int = MOST_BYTES) -> tuple[bytes, list[int]] | None:
    """Pickle a tasklet's state.

    Args:
        state: what `ProcessorTasklet.export_state` gave, with the processor.
        staying: name -> object that is not to travel.
        most: bytes.

    Returns:
        the pickle, and descriptors of the tables in it, which are the caller's to close; None when something in it
        does not travel or it is too large.
    """
    file = _Bounded(most)
    pickler = _Pickler(file, {id(value): name for name, value in {**staying, **_NANS}.items()})
    try:
        pickler.dump(state)
        if len(pickler.tables) > MOST_TABLES:
            return None
        return file.getvalue(), [os.dup(table.fileno()) for table in pickler.tables]
    except Exception:  # TooLarge, no descriptor, or whatever the user's classes raise when they are pickled
        return None


def unpack(data: bytes | memoryview, here: Mapping[str, Any], fds: Sequence[int]) -> Any:
    """Read a state back, with what it referred to replaced by its counterparts here; the descriptors are not closed."""
    return _Unpickler(io.BytesIO(data), {**here, **_NANS}, fds).load()
