"""Functions of one item: `None` and `lambda x: x` mean the item itself and cost nothing per item.

Must not know: partitions and canonical bytes (`shmjet.core.keys`); here a key is whatever a dict takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
