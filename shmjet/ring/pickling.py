"""Objects to bytes and back, for whatever the column codec cannot take.

Three levels, each tried when the one before refuses: `pickle` protocol 5 with out-of-band buffers; the same with
classes that have no importable name sent as ids (below); `cloudpickle`. All three are read by the same `loads`.

Classes of `__main__`, of notebooks and of `register_pickle_by_value` modules travel by value, once, with the job.
Every process that has unpickled one knows it by the id that cloudpickle gave it, so items carry that id instead of
the class's body. A class that came in an item itself (made while the job ran) stays by value: other processes may not
have it.

Knows nothing of lanes, rings or jobs.
"""

from __future__ import annotations

import gc
import io
import pickle
from collections.abc import Callable, Iterable
from typing import Any, Final
from weakref import WeakSet

import cloudpickle
from cloudpickle import cloudpickle as _internals

from shmjet.data import code_pickling
from shmjet.ring.frames import BUFFER_ALIGNMENT, BUFFER_SIZE, PICKLE_HEAD

Buffer = bytes | bytearray | memoryview

PLAIN: Final = 0
CLASSES_BY_ID: Final = 1
BY_VALUE: Final = 2

_IN_BAND: Final = 1024
"""Buffers below this many bytes are cheaper inside the pickle."""
_PROBE_INTERVAL: Final = 64
_BY_VALUE_SIGNS: Final = (b"_make_skeleton_class", b"_make_skeleton_enum")
_PADDING: Final = bytes(BUFFER_ALIGNMENT)

_classes_in_items: WeakSet[type] = WeakSet()


class ItemEncodingError(TypeError):
    """An item cannot be pickled; the text names its type and, where it can be found, the object inside it."""


class UnknownClassError(LookupError):
    """An item is of a class that travelled by value to other processes but never to this one."""


def class_by_id(class_id: str, name: str) -> type:
    """Return the class that cloudpickle's tracker knows under an id; called by pickles.

    Raises:
        UnknownClassError: the tracker does not have it.
    """
    found = _internals._DYNAMIC_CLASS_TRACKER_BY_ID.get(class_id)
    if not isinstance(found, type):
        raise UnknownClassError(
            f"an item is of class {name.replace(':', '.')!r}, which was defined in another process and has not been "
            "sent to this one; define it in a module that can be imported here, or use add_module() so that it travels "
            "with the job"
        )
    return found


def dumps(obj: object) -> list[Buffer]:
    """Return `obj` as the parts of one payload, to be written one behind the other.

    Large buffers (numpy arrays) are parts of their own and not copied. The layout is in `docs/formats/frame.md`.

    Raises:
        ItemEncodingError: it cannot be pickled in any way.

    Example:
        >>> loads(b"".join(dumps({"a": 1})))
        {'a': 1}
    """
    return Pickling().dumps(obj)


def dumps_by_value(obj: object) -> list[Buffer]:
    """Return `obj` as `dumps` does, for a reader that has no job in common with this process.

    What has no importable name there travels by value each time, classes too. Raises whatever the last attempt raises.
    """
    buffers: list[memoryview] = []
    try:
        data = _dump_plain(obj, buffers)
    except Exception:
        data = None
    if data is None:
        buffers.clear()
        data = code_pickling.dumps(obj, _keep_large(buffers))
    return _parts(data, buffers)


def loads(payload: Buffer, *, copy: bool = True) -> Any:
    """Return the object of a payload that `dumps` made.

    Args:
        payload: contiguous bytes; with `copy`, nothing of it is needed any more when this returns.
        copy: False lets large buffers (arrays) stay views of `payload`, which must then be writable and never change.

    Raises:
        ValueError: the payload is damaged.
        UnknownClassError: see `class_by_id`.
    """
    return loads_by(payload, _plain_load, copy=copy)


def _plain_load(stream: memoryview, buffers: Iterable[Any]) -> Any:
    return pickle.loads(stream, buffers=buffers)


def loads_by(payload: Buffer, load: Callable[[memoryview, Iterable[Any]], Any], *, copy: bool = True) -> Any:
    """Do as `loads` with another way to unpickle.

    Args:
        payload, copy: as of `loads`.
        load: makes the object of the pickle and its buffers.

    Raises:
        ValueError: the payload is damaged.
    """
    with memoryview(payload) as view:
        count, _, pickled = PICKLE_HEAD.unpack_from(view)
        at = PICKLE_HEAD.size + count * BUFFER_SIZE.size
        if at > len(view):
            raise ValueError("the pickled payload is damaged: it ends within its header")
        sizes = [BUFFER_SIZE.unpack_from(view, PICKLE_HEAD.size + i * BUFFER_SIZE.size)[0] for i in range(count)]
        at = _aligned(at)
        start, at = at, at + pickled
        buffers: list[bytearray | memoryview] = []
        for size in sizes:
            at = _aligned(at)
            if at + size > len(view):
                raise ValueError("the pickled payload is damaged: it ends within a buffer")
            buffers.append(bytearray(view[at : at + size]) if copy else view[at : at + size])
            at += size
        if at > len(view):
            raise ValueError("the pickled payload is damaged: it ends within the pickle")
        with view[start : start + pickled] as stream:
            return _load(stream, buffers, load)


def _load(stream: memoryview, buffers: Iterable[Any], load: Callable[[memoryview, Iterable[Any]], Any]) -> Any:
    """Unpickle with the cyclic collector off; remember classes that came by value."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        tracked = _internals._DYNAMIC_CLASS_TRACKER_BY_CLASS
        before = len(tracked)
        known = set(tracked) if carries_classes(stream) else None
        result = load(stream, buffers)
        if known is not None and len(tracked) != before:
            _classes_in_items.update(cls for cls in tracked if cls not in known)
        return result
    finally:
        if collecting:
            gc.enable()


def carries_classes(stream: memoryview) -> bool:
    """Say whether a pickle may bring the body of a class; only then is the tracker looked at."""
    if len(stream) > 1 << 20:
        return True
    data = bytes(stream)
    return any(sign in data for sign in _BY_VALUE_SIGNS)


class Pickling:
    """`dumps` with a memory: starts with the level that worked last, and tries a cheaper one again now and then."""

    def __init__(self) -> None:
        self._level = PLAIN
        self._until_probe = _PROBE_INTERVAL

    @property
    def level(self) -> int:
        """The level that worked last: PLAIN, CLASSES_BY_ID or BY_VALUE."""
        return self._level

    def dumps(self, obj: object) -> list[Buffer]:
        """Return the parts of the payload of `obj`; see the function `dumps`."""
        level = self._level
        if level != PLAIN:
            self._until_probe -= 1
            if self._until_probe <= 0:
                level, self._until_probe = PLAIN, _PROBE_INTERVAL
        while True:
            buffers: list[memoryview] = []
            try:
                data = _LEVELS[level](obj, buffers)
            except Exception as error:
                if level == BY_VALUE:
                    raise ItemEncodingError(_explain(obj, error)) from error
            else:
                if data is not None:
                    self._level = level
                    return _parts(data, buffers)
            level += 1


def _keep_large(buffers: list[memoryview]) -> Callable[[pickle.PickleBuffer], bool]:
    """Return pickle's buffer callback: True keeps a buffer in the pickle."""

    def callback(buffer: pickle.PickleBuffer) -> bool:
        try:
            raw = buffer.raw()
        except BufferError:
            return True  # not contiguous
        if raw.nbytes < _IN_BAND:
            return True
        buffers.append(raw)
        return False

    return callback


def _dump_plain(obj: object, buffers: list[memoryview]) -> bytes | None:
    data = pickle.dumps(obj, 5, buffer_callback=_keep_large(buffers))
    if any(name in data for name in _by_value_modules()):
        return None  # a name that means something else, or nothing, where this is read
    return data


def _by_value_modules() -> list[bytes]:
    """Return the names of modules whose contents travel by value. That a str looks like one costs only time."""
    registered = cloudpickle.list_registry_pickle_by_value()
    return [b"__main__", *(name.encode() for name in registered)] if registered else [b"__main__"]


class _ByIdPickler(pickle.Pickler):
    """pickle, but known classes without an importable name go as their ids."""

    def reducer_override(self, obj: Any) -> Any:
        return _reduce_class(obj) if isinstance(obj, type) else NotImplemented


class _ByValuePickler(code_pickling.CodePickler):
    """cloudpickle, with the same exception for known classes."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type):
            reduced = _reduce_class(obj)
            if reduced is not NotImplemented:
                return reduced
            if _goes_by_value(obj):
                _classes_in_items.add(obj)
        return super().reducer_override(obj)


def _goes_by_value(cls: type) -> bool:
    return not _internals._should_pickle_by_reference(cls)


def _reduce_class(cls: type) -> Any:
    class_id = _internals._DYNAMIC_CLASS_TRACKER_BY_CLASS.get(cls)
    if class_id is None or cls in _classes_in_items or not _goes_by_value(cls):
        return NotImplemented
    return class_by_id, (class_id, f"{cls.__module__}:{cls.__qualname__}")


def _dump_by_id(obj: object, buffers: list[memoryview]) -> bytes | None:
    if not len(_internals._DYNAMIC_CLASS_TRACKER_BY_CLASS):
        return None
    stream = io.BytesIO()
    _ByIdPickler(stream, 5, buffer_callback=_keep_large(buffers)).dump(obj)
    data = stream.getvalue()
    # `module:Class` goes with an id; a module's name by itself is a reference, which would mean nothing elsewhere.
    return data if all(data.count(name) == data.count(name + b":") for name in _by_value_modules()) else None


def _dump_by_value(obj: object, buffers: list[memoryview]) -> bytes | None:
    stream = io.BytesIO()
    _ByValuePickler(stream, 5, buffer_callback=_keep_large(buffers)).dump(obj)
    return stream.getvalue()


_LEVELS: Final = (_dump_plain, _dump_by_id, _dump_by_value)


def _aligned(offset: int) -> int:
    return -(-offset // BUFFER_ALIGNMENT) * BUFFER_ALIGNMENT


def _parts(data: bytes, buffers: list[memoryview]) -> list[Buffer]:
    head = PICKLE_HEAD.pack(len(buffers), 0, len(data)) + b"".join(BUFFER_SIZE.pack(b.nbytes) for b in buffers)
    parts: list[Buffer] = [head + _PADDING[: -len(head) % BUFFER_ALIGNMENT], data]
    end = len(data)
    for buffer in buffers:
        if end % BUFFER_ALIGNMENT:
            parts.append(_PADDING[: -end % BUFFER_ALIGNMENT])
        parts.append(buffer)
        end = buffer.nbytes
    return parts


def _explain(obj: object, error: Exception) -> str:
    """Say what cannot be pickled: the type of the item, and of the innermost object that refuses by itself."""
    text = f"an item of type {type(obj).__qualname__!r} cannot be pickled"
    culprit = _culprit(obj, 0)
    if culprit is not None and culprit is not obj:
        text += f", because of a {type(culprit).__qualname__!r} inside it"
    return f"{text}: {type(error).__name__}: {error}"


def _culprit(obj: object, depth: int) -> object | None:
    """Return the innermost part of `obj` that cannot be pickled, or None when `obj` can be."""
    try:
        _dump_by_value(obj, [])
        return None
    except Exception:
        if depth > 8:
            return obj
    if isinstance(obj, dict):
        inner: Iterable[object] = [*obj.keys(), *obj.values()]
    elif isinstance(obj, list | tuple | set | frozenset):
        inner = obj
    else:
        inner = list(getattr(obj, "__dict__", {}).values())
    for part in inner:
        found = _culprit(part, depth + 1)
        if found is not None:
            return found
    return obj
