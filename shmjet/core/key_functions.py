"""Functions of one item, called for each item of a list; `None` and `lambda x: x` mean the item itself.

Must not know: partitions and canonical bytes (`shmjet.core.keys`); here a key is whatever a dict takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter, itemgetter
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType
from typing import Any

from shmjet._native import unify_nans
from shmjet.core.timed import ITEM, TimedKey

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


def named_unhashable(error: TypeError, keys: Sequence[Any]) -> TypeError:
    """Return the error for one of a dict with these keys: it names the key that cannot be hashed, if any.

    Example:
        >>> named_unhashable(TypeError("unhashable type: 'list'"), [1, [2]])
        TypeError('[2] of type list cannot be a key: keys are hashable; make it a tuple(...)')
    """
    for key in keys:
        try:
            hash(key)
        except TypeError:
            advice = "make it a tuple(...)" if isinstance(key, list) else "take a part of it that can be hashed"
            return TypeError(f"{key!r:.80} of type {type(key).__name__} cannot be a key: keys are hashable; {advice}")
    return error


NAN, OTHER_NAN = float("nan"), float("nan")
"""The one NaN of all keys in this process, and that of the other side of a join, which the first must not meet.

Keys are told apart by which of these objects they hold, so whatever moves keys to another process has to put that
process's own in.
"""


@dataclass(frozen=True)
class RoutableKey:
    """A key function that never raises, for the edge into a stage that deals with items whose key function does.

    Such an item goes where those with the key None go, and the stage calls the key function itself.

    Args:
        key_fn: of an item; None: the item itself.

    Example:
        >>> RoutableKey(int)("7"), RoutableKey(int)("x")
        (7, None)
    """

    key_fn: KeyFn

    def __call__(self, item: Any) -> Any:
        """Return the key, None if the function raises."""
        try:
            return item if self.key_fn is None else self.key_fn(item)
        except Exception:
            return None

    @property
    def __name__(self) -> str:
        """What drawings and messages call it."""
        return getattr(self.key_fn, "__name__", None) or "item"


class _End:
    """Compares as less or as greater than whatever it is compared with."""

    __slots__ = ("_is_greater",)
    __array_ufunc__ = None  # so that numpy's numbers leave the comparison to this class

    def __init__(self, is_greater: bool) -> None:
        self._is_greater = is_greater

    def __lt__(self, other: Any) -> bool:
        return other is not self and not self._is_greater

    def __gt__(self, other: Any) -> bool:
        return other is not self and self._is_greater

    def __le__(self, other: Any) -> bool:
        return other is self or not self._is_greater

    def __ge__(self, other: Any) -> bool:
        return other is self or self._is_greater

    def __reduce__(self) -> str:
        return "GREATEST" if self._is_greater else "LEAST"  # the one of this module, wherever it is unpickled


LEAST, GREATEST = _End(False), _End(True)
"""What stands for NaN where items are ordered: no NaN is less or greater than a number, so sorting would go wrong."""


def ranks_of(key_fn: KeyFn, items: list[Any], nan: Any = GREATEST) -> list[Any]:
    """Return what `items` are ordered by, with `nan` in the place of every NaN; `items` itself where that is the same.

    Args:
        nan: `GREATEST`, or `LEAST` for a descending order whose end NaNs are.

    """
    return unify_nans(items if key_fn is None else mapped(key_fn, items), nan)


def in_order(key_fn: KeyFn, items: list[Any], reverse: bool = False) -> list[Any]:
    """Return the items sorted as by `sorted`, but with NaNs last, in both directions.

    Example:
        >>> in_order(None, [2.0, float("nan"), 1.0]), in_order(abs, [2.0, float("nan"), -3.0], reverse=True)
        ([1.0, 2.0, nan], [-3.0, 2.0, nan])
    """
    ranks = ranks_of(key_fn, items, LEAST if reverse else GREATEST)
    if ranks is items:
        return sorted(items, reverse=reverse)
    return sorted(items, key=one_by_one(ranks), reverse=reverse)


def one_by_one(ranks: list[Any]) -> Callable[[Any], Any]:
    """Return a function that gives a rank at each call, for what asks for one of each item in turn: `sorted`, `heapq`.

    It runs no code in Python: `next` takes the item as its default, which no call comes to.
    """
    return partial(next, iter(ranks))


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
    if is_native(fn):
        return list(map(fn, items))
    if type(fn) is TimedKey:
        bare = list(map(ITEM, items))
        return bare if fn.key_fn is None else mapped(fn.key_fn, bare)
    return [fn(item) for item in items]


def selected(predicate: Callable[[Any], Any], items: list[Any]) -> list[Any]:
    """Return the items for which a predicate is true; by `filter` only where `mapped` would take `map`."""
    return list(filter(predicate, items)) if is_native(predicate) else [item for item in items if predicate(item)]


def is_native(fn: Any) -> bool:
    """Tell whether a function runs no code of its own in Python."""
    kind = type(fn)
    if kind is BuiltinFunctionType:
        return fn is not next
    return kind in (itemgetter, attrgetter, MethodDescriptorType) or (kind is type and fn.__module__ == "builtins")
