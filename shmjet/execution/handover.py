"""How a tasklet travels to another worker: one pickle of its processor and of what its tasklet knows.

What belongs to the place and not to the processor (outbox, context, the member's maps) stays behind and is replaced by
its counterpart at the other end, wherever the processor refers to it. A processor that holds what cannot travel, a
generator that is suspended, an open file, or that is larger than a move is worth, is refused and stays.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import cloudpickle

MOST_BYTES = 1 << 20
"""A state larger than this stays: a megabyte takes some milliseconds to pickle and to read back."""


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


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Leaves out what stays behind, by identity."""

    def __init__(self, file: io.BytesIO, staying: Mapping[int, str]) -> None:
        super().__init__(file, protocol=5)
        self._staying = staying

    def persistent_id(self, obj: Any) -> str | None:
        return self._staying.get(id(obj))


class _Unpickler(cloudpickle.pickle.Unpickler):  # type: ignore[misc]
    def __init__(self, file: io.BytesIO, here: Mapping[str, Any]) -> None:
        super().__init__(file)
        self._here = here

    def persistent_load(self, pid: Any) -> Any:
        return self._here[pid]


def pack(state: Any, staying: Mapping[str, Any], most: int = MOST_BYTES) -> bytes | None:
    """Pickle a tasklet's state.

    Args:
        state: what `ProcessorTasklet.packed` gave, with the processor.
        staying: name -> object that is not to travel.
        most: bytes.

    Returns:
        the pickle; None when something in it does not travel or it is too large.
    """
    file = _Bounded(most)
    try:
        _Pickler(file, {id(value): name for name, value in staying.items()}).dump(state)
    except Exception:  # TooLarge, or whatever the user's classes raise when they are pickled
        return None
    return file.getvalue()


def unpack(data: bytes, here: Mapping[str, Any]) -> Any:
    """Read a state back, with what it referred to replaced by its counterparts here."""
    return _Unpickler(io.BytesIO(data), here).load()
