"""A producer and a consumer of Arrow's C interfaces in ctypes: they can lie as no library would."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

_POINTER = ctypes.c_void_p
_INT = ctypes.c_int64
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [_POINTER, ctypes.c_char_p, _POINTER]
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = _POINTER
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


class Schema(ctypes.Structure):
    """ArrowSchema."""


Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_char_p),
    ("flags", _INT),
    ("n_children", _INT),
    ("children", ctypes.POINTER(ctypes.POINTER(Schema))),
    ("dictionary", ctypes.POINTER(Schema)),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(Schema))),
    ("private_data", _POINTER),
]


class Array(ctypes.Structure):
    """ArrowArray."""


Array._fields_ = [
    ("length", _INT),
    ("null_count", _INT),
    ("offset", _INT),
    ("n_buffers", _INT),
    ("n_children", _INT),
    ("buffers", ctypes.POINTER(_POINTER)),
    ("children", ctypes.POINTER(ctypes.POINTER(Array))),
    ("dictionary", ctypes.POINTER(Array)),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(Array))),
    ("private_data", _POINTER),
]


class Stream(ctypes.Structure):
    """ArrowArrayStream."""


Stream._fields_ = [
    ("get_schema", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Stream), ctypes.POINTER(Schema))),
    ("get_next", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Stream), ctypes.POINTER(Array))),
    ("get_last_error", ctypes.CFUNCTYPE(_POINTER, ctypes.POINTER(Stream))),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(Stream))),
    ("private_data", _POINTER),
]


_ALL: list[Any] = []
"""What a release that comes late still calls: a library's code is never gone either."""


class Producer:
    """Makes structures, keeps their memory, and counts what is released."""

    def __init__(self) -> None:
        self.released: list[str] = []
        self._kept: list[Any] = []
        _ALL.append(self._kept)

    def _keep(self, value: Any) -> Any:
        self._kept.append(value)
        return value

    def _release(self, structure: Any, what: str) -> Any:
        def release(pointer: Any) -> None:
            self.released.append(what)
            pointer.contents.release = type(pointer.contents.release)()

        field: Any = dict(structure._fields_)["release"]
        return self._keep(field(release))

    def children_of(self, kind: Any, children: list[Any]) -> Any:
        if not children:
            return None
        pointers = [ctypes.POINTER(kind)() if child is None else ctypes.pointer(child) for child in children]
        return self._keep((ctypes.POINTER(kind) * len(children))(*pointers))

    def schema(self, code: bytes | None, name: bytes = b"", *children: Any, **fields: Any) -> Any:
        """A schema; fields replace what is right."""
        given: dict[str, Any] = {"n_children": len(children), "flags": 2, **fields}
        made = self._keep(Schema(format=code, name=name, release=self._release(Schema, "schema"), **given))
        if children:
            made.children = self.children_of(Schema, list(children))
        return made

    def array(self, length: int, buffers: list[Any], *children: Any, **fields: Any) -> Any:
        """An array; fields replace what is right."""
        given: dict[str, Any] = {"n_buffers": len(buffers), "n_children": len(children), **fields}
        made = self._keep(Array(length=length, release=self._release(Array, "array"), **given))
        places = [
            None if buffer is None else self._keep(np.ascontiguousarray(buffer)).ctypes.data for buffer in buffers
        ]
        if places:
            made.buffers = self._keep((_POINTER * len(places))(*places))
        if children:
            made.children = self.children_of(Array, list(children))
        return made

    def capsule(self, structure: Any, name: bytes) -> Any:
        """A capsule without a destructor."""
        self._keep(name)
        return _new_capsule(ctypes.addressof(self._keep(structure)), name, None)

    def table(self, schema: Any, array: Any) -> Any:
        """An object with `__arrow_c_array__`."""
        pair = self.capsule(schema, b"arrow_schema"), self.capsule(array, b"arrow_array")
        return type("Table", (), {"__arrow_c_array__": lambda _: pair})()

    def stream(self, get_schema: Callable[..., int], get_next: Callable[..., int], error: bytes | None = None) -> Any:
        """An object with `__arrow_c_stream__`."""
        kinds: dict[str, Any] = dict(Stream._fields_)
        text = None if error is None else ctypes.addressof(self._keep(ctypes.create_string_buffer(error)))
        made = Stream(
            get_schema=self._keep(kinds["get_schema"](get_schema)),
            get_next=self._keep(kinds["get_next"](get_next)),
            get_last_error=self._keep(kinds["get_last_error"](lambda _: text)),
            release=self._release(Stream, "stream"),
        )
        capsule = self.capsule(made, b"arrow_array_stream")
        return type("Stream", (), {"__arrow_c_stream__": lambda _: capsule})()


def structure_in(capsule: Any, name: bytes, kind: Any) -> Any:
    """What a capsule holds."""
    return kind.from_address(_capsule_pointer(capsule, name))
