"""Equality of key functions: whether two of them give equal keys for equal items, as far as the planner can tell.

Two functions that are written alike (`lambda trade: trade[0]` twice, or `itemgetter(0)`) give equal keys, so streams
that are partitioned by them are partitioned alike. What cannot be told is taken for different, which costs a move of
items and no more. Must not know partitions or stages.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from operator import attrgetter, itemgetter
from types import CodeType, FunctionType
from typing import Any

from shmjet.core.column_key import ColumnKey
from shmjet.core.key_functions import is_identity

KeyIdentity = Hashable
"""What stands for a key function; equal for functions that give equal keys."""

FIRST = itemgetter(0)
"""The key of `(key, result)` pairs, which stages by key emit, and of `(key, value)` entries."""


def _at_model(item: Any) -> Any:
    return item[0]


def _attribute_model(item: Any) -> Any:
    return item.a


def identity_of(key_fn: Callable[[Any], Any] | None) -> KeyIdentity:
    """Return what stands for a key function.

    Example:
        >>> identity_of(lambda pair: pair[0]) == identity_of(itemgetter(0))
        True
        >>> identity_of(lambda pair: pair[0]) == identity_of(lambda pair: pair[1])
        False
    """
    if is_identity(key_fn):
        return ("item",)
    if isinstance(key_fn, ColumnKey):
        return ("at", *key_fn.names)
    if type(key_fn) is itemgetter:
        return _hashable(("at", *key_fn.__reduce__()[1]), key_fn)
    if type(key_fn) is attrgetter:
        return ("attribute", *key_fn.__reduce__()[1])
    if type(key_fn) is FunctionType:
        return _hashable(_of_function(key_fn), key_fn)
    return _hashable(("object", key_fn), key_fn)


def _of_function(fn: FunctionType) -> tuple[Any, ...]:
    code = fn.__code__
    if fn.__closure__ or fn.__defaults__ or fn.__kwdefaults__:
        return ("object", fn)
    if code.co_argcount == code.co_nlocals == 1 and not code.co_flags & 0x2C:
        if code.co_code == _at_model.__code__.co_code and len(code.co_consts) == len(_at_model.__code__.co_consts):
            return ("at", code.co_consts[-1])
        if code.co_code == _attribute_model.__code__.co_code:
            return ("attribute", *code.co_names)
    return ("code", *_of_code(code), id(fn.__globals__))


def _of_code(code: CodeType) -> tuple[Any, ...]:
    constants = tuple(_of_code(c) if isinstance(c, CodeType) else (type(c), c) for c in code.co_consts)
    return (code.co_code, code.co_argcount, code.co_flags, constants, code.co_names, code.co_nlocals)


def _hashable(identity: tuple[Any, ...], key_fn: Any) -> KeyIdentity:
    try:
        hash(identity)
    except TypeError:
        return ("object", id(key_fn))
    return identity
