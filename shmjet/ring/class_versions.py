"""The classes of a job in place of older ones of the same name, when state that an older version has saved is read.

A class without an importable name (of a script, a notebook, or an added module) travels by value with the state. Read
as they are, objects would keep the methods of the version that has saved them, and would be no instances of the job's
class. So a class of the job's own code that has the same module and name takes its place, as an imported one would.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Mapping
from typing import Any

from cloudpickle import cloudpickle as _internals

ClassName = tuple[str, str]
"""Module and name of a class."""


def classes_in(code: bytes | memoryview) -> dict[ClassName, type]:
    """Return the classes that the pickled code of a job brings by value, by name; after it was unpickled here.

    Classes of one name, of which it cannot be said which one is meant, are left out.
    """
    data = bytes(code)
    found: dict[ClassName, set[type]] = {}
    for cls, class_id in list(_internals._DYNAMIC_CLASS_TRACKER_BY_CLASS.items()):
        if isinstance(cls, type) and class_id.encode() in data:
            found.setdefault((cls.__module__, cls.__name__), set()).add(cls)
    return {name: classes.pop() for name, classes in found.items() if len(classes) == 1}


class NewerClasses(pickle.Unpickler):
    """Unpickles with the job's own classes in place of the ones in the pickle.

    Args:
        stream: a pickle.
        buffers: that belong to it.
        classes: of the job (`classes_in`).
    """

    def __init__(self, stream: memoryview, buffers: Iterable[Any], classes: Mapping[ClassName, type]) -> None:
        super().__init__(io.BytesIO(stream), buffers=buffers)
        self._classes = classes
        self.taken: set[type] = set()
        """The classes that were used in place of others."""

    def find_class(self, module: str, name: str, /) -> Any:
        """Return what a pickle names; what makes and fills classes is this object's own."""
        found = super().find_class(module, name)
        if found is _internals._make_skeleton_class:
            return self._class
        if found is _internals._make_skeleton_enum:
            return self._enum
        if found is _internals._class_setstate:
            return self._filled
        return found

    def own_class(self, module: object, name: str) -> type | None:
        """Return the class of the job of that name; None when there is none."""
        own = self._classes.get((str(module), name))
        if own is not None:
            self.taken.add(own)
        return own

    def _class(self, metaclass: Any, name: str, bases: Any, namespace: dict[str, Any], *rest: Any) -> Any:
        own = self.own_class(namespace.get("__module__"), name)
        return _internals._make_skeleton_class(metaclass, name, bases, namespace, *rest) if own is None else own

    def _enum(self, bases: Any, name: str, qualname: str, members: Any, module: str, *rest: Any) -> Any:
        own = self.own_class(module, name)
        return _internals._make_skeleton_enum(bases, name, qualname, members, module, *rest) if own is None else own

    def _filled(self, cls: type, state: Any) -> type:
        if cls not in self.taken:
            _internals._class_setstate(cls, state)
        return cls
