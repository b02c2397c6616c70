"""cloudpickle, with the names of the files that functions come from.

From 3.1.3 on cloudpickle leaves them out, so that the same function gives the same bytes wherever it is defined. But a
traceback of the user's code names the file and shows the line, and its file tells a method that `dataclass` has made
from a method of the user. Must not know what is pickled.
"""

from __future__ import annotations

import contextlib
import io
from abc import ABCMeta
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator
from pickle import PickleBuffer
from types import CodeType, FunctionType, ModuleType
from typing import Any

import cloudpickle

_reduce_without_file: Callable[[CodeType], tuple[Any, tuple[Any, ...]]] = cloudpickle.Pickler.dispatch_table[CodeType]


def _reduce_code(code: CodeType) -> tuple[Any, tuple[Any, ...]]:
    make, parts = _reduce_without_file(code)
    at = next(at for at, part in enumerate(parts) if isinstance(part, str))  # the file comes before the name
    return make, (*parts[:at], code.co_filename, *parts[at + 1 :])


_NAMED = frozenset({type, ABCMeta, FunctionType})
_importable: set[Any] = set()
"""Classes and functions of this package that pickle by name: cloudpickle searches the modules for each, each time."""


class CodePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """The pickler of functions and of classes that have no importable name."""

    dispatch_table = ChainMap({CodeType: _reduce_code}, cloudpickle.Pickler.dispatch_table)

    def reducer_override(self, obj: Any) -> Any:
        """Return how to pickle what cloudpickle reduces in its own way; NotImplemented for all else."""
        if type(obj) not in _NAMED:
            return super().reducer_override(obj)
        if obj in _importable:
            return NotImplemented
        reduced = super().reducer_override(obj)
        if reduced is NotImplemented and str(obj.__module__).startswith("shmjet."):
            _importable.add(obj)
        return reduced


def dumps(obj: object, buffer_callback: Callable[[PickleBuffer], object] | None = None) -> bytes:
    """Return an object as bytes of pickle protocol 5, which `pickle.loads` reads where cloudpickle is installed.

    Args:
        obj: with its functions and classes.
        buffer_callback: as of `pickle.Pickler`.

    Raises:
        Exception: whatever pickling a part of it raises.
    """
    stream = io.BytesIO()
    CodePickler(stream, 5, buffer_callback=buffer_callback).dump(obj)
    return stream.getvalue()


@contextlib.contextmanager
def modules_by_value(modules: Iterable[ModuleType]) -> Iterator[None]:
    """Have functions and classes of these modules pickled by value."""
    already = set(cloudpickle.list_registry_pickle_by_value())
    added = [module for module in modules if module.__name__ not in already]
    for module in added:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in added:
            cloudpickle.unregister_pickle_by_value(module)
