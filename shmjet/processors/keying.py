"""Key functions: `None` and `lambda x: x` mean the item itself and cost nothing per item.

Must not know: partitions and canonical bytes (`shmjet.core.keys`); here a key is whatever a dict takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import FunctionType
from typing import Any

KeyFn = Callable[[Any], Any] | None
"""What is accepted as a key function: a callable of one item, or None for the item itself."""


def _identity(item: Any) -> Any:
    return item


def is_identity(key_fn: KeyFn) -> bool:
    """Tell whether `key_fn` is None or a plain function that returns its only argument.

    Recognised by its byte code, so that `lambda word: word` is as fast as None.

    Example:
        >>> is_identity(None), is_identity(lambda word: word), is_identity(str.lower)
        (True, True, False)
    """
    if key_fn is None:
        return True
    if type(key_fn) is not FunctionType:
        return False
    code, model = key_fn.__code__, _identity.__code__
    return (
        code.co_code == model.co_code
        and code.co_flags & 0x2F == model.co_flags & 0x2F  # no *args, **kwargs, generator
        and code.co_argcount == code.co_nlocals == 1
        and code.co_kwonlyargcount == 0
        and not code.co_cellvars
    )


def plain(key_fn: KeyFn) -> KeyFn:
    """Return None for every spelling of the identity, else `key_fn` itself.

    Raises:
        TypeError: when it is neither None nor callable.
    """
    if key_fn is not None and not callable(key_fn):
        raise TypeError(f"a key function must be callable or None, got {type(key_fn).__name__}: {key_fn!r}")
    return None if is_identity(key_fn) else key_fn


def keys_of(key_fn: KeyFn, items: list[Any]) -> Iterable[Any]:
    """Return the keys of `items` (lazily unless they are the items)."""
    return items if key_fn is None else map(key_fn, items)


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
