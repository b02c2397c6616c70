"""The functions that a pool has sent to its workers: each once per worker, by value when it has no importable name.

A function is known by its identity. A function that travels by value (of `__main__`, of a notebook, a lambda, a
closure) is checked again with every call: when the globals that its code names, the contents of its closure or its
defaults are other objects than before, it is sent anew, so that redefining a helper in a notebook has the expected
effect. Changes in place are not noticed. Methods, partials and other callable objects have their own state and travel
with every call.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from operator import is_
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Final

from cloudpickle import cloudpickle as _internals

from shmjet.ring.pickling import Buffer, dumps_by_value

MOST_FUNCTIONS: Final = 256
"""Functions that workers keep; the least recently called is forgotten first."""


class Function:
    """One function as the workers know it.

    `number` is 0 for a function that travels with every call. `estimate` is how long a call takes in ns, None before
    the first has ended; of a chunk of `map` it is one item's share. `item_bytes` is the size of an item of `map`.
    `rebound` names globals that it does not get from the initializer.
    """

    __slots__ = ("_seen", "estimate", "fn", "item_bytes", "number", "pickled", "rebound")

    def __init__(
        self, fn: Any, number: int, pickled: bytes, seen: list[Any] | None, rebound: Sequence[str] = ()
    ) -> None:
        self.rebound = rebound
        self.fn = fn
        self.number = number
        self.pickled = pickled
        self.estimate: float | None = None
        self.item_bytes = 0.0
        self._seen = seen

    @property
    def is_current(self) -> bool:
        """Whether nothing that the function refers to has been exchanged since it was pickled."""
        if self._seen is None:
            return True
        now = _references(self.fn)
        return len(now) == len(self._seen) and all(map(is_, now, self._seen))

    def took(self, nanoseconds: float, calls: int = 1) -> None:
        """Update the estimate with the average time of some calls, or of the items of a chunk."""
        known = self.estimate
        weight = 0.75**calls
        self.estimate = nanoseconds if known is None else weight * known + (1 - weight) * nanoseconds


class Functions:
    """All functions of a pool, by identity. Not for two threads at once.

    Args:
        rebound: says of a function that travels by value which globals of the initializer have been bound to something
            else (`initializer_globals`).
    """

    def __init__(self, rebound: Callable[[object], Sequence[str]] = lambda _: ()) -> None:
        self._rebound = rebound
        self._known: OrderedDict[int, Function] = OrderedDict()
        self._loose: OrderedDict[Any, Function] = OrderedDict()
        self._next = 1

    def find(self, fn: Any) -> tuple[Function, int]:
        """Return the function of `fn`, and the number of the function to be forgotten for it, else 0.

        Raises:
            Exception: `fn` cannot be pickled.
        """
        found = self._known.get(id(fn))
        if found is not None:
            self._known.move_to_end(id(fn))
            if found.is_current:
                return found, 0
            del self._known[id(fn)]
        elif not _is_plain(fn):
            return self._loose_one(fn), 0
        seen = _references(fn) if goes_by_value(fn) else None
        rebound = () if seen is None else self._rebound(fn)
        function = Function(fn, self._next, b"".join(dumps_by_value(fn)), seen, rebound)
        self._next += 1
        self._known[id(fn)] = function
        if found is not None:
            return function, found.number
        if len(self._known) > MOST_FUNCTIONS:
            return function, self._known.popitem(last=False)[1].number
        return function, 0

    def _loose_one(self, fn: Any) -> Function:
        """Return the function shared by all callables like this one: the same method, or the same type."""
        like = getattr(fn, "__func__", None) or type(fn)
        function = self._loose.get(like)
        if function is None:
            function = self._loose[like] = Function(None, 0, b"", None)
            if len(self._loose) > MOST_FUNCTIONS:
                self._loose.popitem(last=False)
        return function


def _is_plain(fn: Any) -> bool:
    """Whether `fn` is a function, a builtin one or a class."""
    if isinstance(fn, FunctionType | type):
        return True
    return isinstance(fn, BuiltinFunctionType) and isinstance(fn.__self__, ModuleType)


def goes_by_value(fn: Any) -> bool:
    """Whether it is a function that travels by value."""
    return isinstance(fn, FunctionType) and not _internals._should_pickle_by_reference(fn)


def _references(fn: FunctionType, known: set[int] | None = None) -> list[Any]:
    """Return all objects that a function refers to that travels by value, recursively through such functions."""
    known = {id(fn)} if known is None else known
    found: list[Any] = [fn.__code__, fn.__defaults__, fn.__kwdefaults__]
    for cell in fn.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:
            found.append(None)
    namespace = fn.__globals__
    found.extend(namespace.get(name) for name in _names(fn.__code__))
    for other in found[3:]:
        if isinstance(other, FunctionType) and id(other) not in known and goes_by_value(other):
            known.add(id(other))
            found.extend(_references(other, known))
    return found


def globals_named_by(fn: FunctionType) -> set[str]:
    """Return the names that a function by value, and such functions of its module to which it refers, may look up."""
    found: set[str] = set()
    left, known = [fn], {id(fn)}
    while left:
        names = _names(left.pop().__code__)
        found.update(names)
        for other in map(fn.__globals__.get, names):
            if not isinstance(other, FunctionType) or other.__globals__ is not fn.__globals__:
                continue
            if id(other) not in known and goes_by_value(other):
                known.add(id(other))
                left.append(other)
    return found


def _names(code: CodeType) -> list[str]:
    """Return the names that a code object and those inside it may look up among the globals."""
    names = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names.extend(_names(constant))
    return names


def parts_of(function: Function | None, with_path: bool) -> list[Buffer]:
    """Return the payload that brings a worker a function, or `sys.path` alone."""
    pickled, rebound = (None, ()) if function is None else (function.pickled, function.rebound)
    return dumps_by_value((pickled, rebound, list(sys.path) if with_path else None))
