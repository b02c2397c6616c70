"""Keys for descending order, where an engine knows only ascending.

Must not know what is sorted.
"""

from __future__ import annotations

from typing import Any

from shmjet._native import unify_nans
from shmjet.core.key_functions import LEAST, KeyFn

_NEVER_NAN = frozenset((int, str, bytes))


class Descending:
    """A key whose order is turned round, NaNs excepted, which stay last; a class, so that it pickles."""

    def __init__(self, key_fn: KeyFn) -> None:
        self.key_fn = key_fn

    def __call__(self, item: Any) -> _Turned:
        key = item if self.key_fn is None else self.key_fn(item)
        return _Turned(key if type(key) in _NEVER_NAN else unify_nans([key], LEAST)[0])

    @property
    def __name__(self) -> str:
        """What drawings call it."""
        return "descending"


class _Turned:
    """A value that is smaller when the value inside is larger."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Turned) -> bool:
        return bool(other.value < self.value)
