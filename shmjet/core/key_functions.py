"""Functions of one item, called for each item of a list; `None` and `lambda x: x` mean the item itself.

Must not know: partitions and canonical bytes (`shmjet.core.keys`); here a key is whatever a dict takes.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter, itemgetter
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType
from typing import Any

from shmjet._native import unify_nans

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


NAN = float("nan")
"""The one NaN of all keys in this process."""


def keys_of(key_fn: KeyFn, items: list[Any], nan: float = NAN) -> list[Any]:
    """Return the keys of `items`, as many as there are items.

    All NaNs among them are one key, as in `shmjet.core.keys`. A dict would find each NaN by its identity, and so by
    whether the object was copied on its way.

    Args:
        nan: what stands for NaN. Two sides of a join whose NaNs must not meet use different objects.

    Example:
        >>> one, other = keys_of(None, [float("nan"), float("nan")])
        >>> one is other
        True
    """
    return unify_nans(items if key_fn is None else mapped(key_fn, items), nan)


def mapped(fn: Callable[[Any], Any], items: list[Any]) -> list[Any]:
    """Return `fn(item)` of each item.

    Not by `map` where `fn` may run Python code: for that a StopIteration is the end of the list, and what is left would
    be lost in silence (the trap that PEP 479 has closed for generators). A comprehension raises it, and it calls
    functions of Python faster.

    Example:
        >>> mapped(str.upper, ["a", "b"])
        ['A', 'B']
    """
    return list(map(fn, items)) if _is_native(fn) else [fn(item) for item in items]


def selected(predicate: Callable[[Any], Any], items: list[Any]) -> list[Any]:
    """Return the items for which a predicate is true; by `filter` only where `mapped` would take `map`."""
    return list(filter(predicate, items)) if _is_native(predicate) else [item for item in items if predicate(item)]


def _is_native(fn: Any) -> bool:
    """Tell whether a function runs no code of its own in Python."""
    kind = type(fn)
    if kind is BuiltinFunctionType:
        return fn is not next
    return kind in (itemgetter, attrgetter, MethodDescriptorType) or (kind is type and fn.__module__ == "builtins")
