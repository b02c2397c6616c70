"""Key functions of processors with several inbound edges.

Must not know: partitions and canonical bytes (`shmjet.core.keys`); here a key is whatever a dict takes.
"""

from __future__ import annotations

from collections.abc import Sequence

from shmjet._native import unify_nans
from shmjet.core.key_functions import NAN, KeyFn, is_identity, keys_of, mapped, plain, selected

__all__ = ["NAN", "KeyFn", "KeyFns", "is_identity", "keys_of", "mapped", "plain", "selected", "unify_nans"]


class KeyFns:
    """One key function for all inbound edges, or one for each ordinal.

    Args:
        key_fns: a callable or None (for all ordinals), or a sequence of these (one per ordinal).

    Raises:
        TypeError, ValueError: for anything else, or an empty sequence.
    """

    __slots__ = ("_all", "_each")

    def __init__(self, key_fns: KeyFn | Sequence[KeyFn]) -> None:
        self._all: KeyFn = None
        self._each: tuple[KeyFn, ...] | None = None
        if isinstance(key_fns, Sequence):
            if not key_fns:
                raise ValueError(f"key_fns: expected one key function per inbound edge, got {key_fns!r}")
            self._each = tuple(plain(key_fn) for key_fn in key_fns)
        else:
            self._all = plain(key_fns)

    def at(self, ordinal: int) -> KeyFn:
        """Return the function for an inbound edge, None meaning the item itself.

        Raises:
            ValueError: when there are functions for fewer edges.
        """
        if self._each is None:
            return self._all
        if ordinal >= len(self._each):
            raise ValueError(f"key_fns has {len(self._each)} functions, but items arrived on edge {ordinal}")
        return self._each[ordinal]
