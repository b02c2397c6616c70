"""The globals that an initializer sets, for the tasks of its worker.

A function that travels by value (of `__main__`, of a notebook) has in a worker a copy of the globals that it names, of
its own. What the initializer binds or changes in its copy would be seen by no task. So in each worker tasks get these
globals from the initializer's copy, unless the client has bound them to something else after it made the pool.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Final

from shmjet.pool.functions import globals_named_by, goes_by_value

_ABSENT: Final = object()


class InitializerGlobals:
    """The client's side: which globals the initializer names, and what they were when the pool was made.

    Args:
        initializer: of the pool; None without one.
    """

    def __init__(self, initializer: Callable[..., object] | None) -> None:
        function = _function_of(initializer)
        self._namespace: dict[str, Any] | None = None
        self._were: dict[str, object] = {}
        if function is not None and goes_by_value(function):
            self._namespace = function.__globals__
            self._were = {name: self._namespace.get(name, _ABSENT) for name in globals_named_by(function)}

    @property
    def names(self) -> list[str]:
        """Their names."""
        return list(self._were)

    def rebound(self, fn: object) -> list[str]:
        """Return which of these globals of a function the client has bound to something else."""
        namespace = self._namespace
        if namespace is None or not isinstance(fn, FunctionType) or fn.__globals__ is not namespace:
            return []
        return [name for name, was in self._were.items() if namespace.get(name, _ABSENT) is not was]


class WorkerGlobals:
    """The worker's side: hands on what the initializer's copy has.

    Args:
        initializer: which has run here.
        names: of the globals that it names.
    """

    def __init__(self, initializer: Callable[..., object], names: Iterable[str]) -> None:
        function = _function_of(initializer)
        self._namespace = _own_globals(function)
        self._names = frozenset(names)

    def give(self, called: object, rebound: Iterable[str] = ()) -> None:
        """Give a function, or the function of a partial or method, these globals, except the rebound ones."""
        theirs = _own_globals(_function_of(called))
        ours = self._namespace
        if theirs is None or ours is None or theirs is ours or theirs.get("__name__") != ours.get("__name__"):
            return
        theirs.update({name: ours[name] for name in self._names.difference(rebound) if name in ours})


def _function_of(called: object) -> FunctionType | None:
    """Return the function in a partial or method, None when there is none."""
    while type(called) is partial:
        called = called.func
    if type(called) is MethodType:
        called = called.__func__
    return called if isinstance(called, FunctionType) else None


def _own_globals(function: FunctionType | None) -> dict[str, Any] | None:
    """Return the globals of a function that came by value; None for one of a module of this process."""
    if function is None:
        return None
    module = sys.modules.get(function.__globals__.get("__name__", ""))
    return None if module is not None and vars(module) is function.__globals__ else function.__globals__
