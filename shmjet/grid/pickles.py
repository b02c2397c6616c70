"""Pickling for a store that outlives the processes and jobs that wrote into it.

Like `shmjet.ring.pickling`: plain pickle 5 with out-of-band buffers first, cloudpickle behind it. The difference is
what happens to a class that has no importable name (of `__main__`, of a notebook): lanes may rely on the job having
brought it, a store may not. Here each such class is kept in the store once, under the id that cloudpickle's tracker
gave it, before the first entry that needs it; entries carry the id. The process in which the class was born finds
its own class under that id, so `isinstance` holds there.

Knows nothing of entries or of LMDB: a class table is two functions.
"""

from __future__ import annotations

import io
import pickle
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import cloudpickle
from cloudpickle import cloudpickle as _internals

from shmjet.data.code_pickling import CodePickler, dumps
from shmjet.ring import pickling
from shmjet.ring.frames import BUFFER_ALIGNMENT, PICKLE_HEAD

if TYPE_CHECKING:
    from typing_extensions import Buffer

Keep = Callable[[pickle.PickleBuffer], bool]

_reading = threading.local()


def class_of(class_id: str, name: str) -> type:
    """Return the class with cloudpickle's id `class_id`; called by pickles that lie in a store.

    Raises:
        pickling.UnknownClassError: neither this process nor the store that is being read has it.
    """
    found = _internals._DYNAMIC_CLASS_TRACKER_BY_ID.get(class_id)
    if found is None:
        codec: ObjectCodec | None = getattr(_reading, "codec", None)
        found = codec.find(class_id) if codec is not None else None
    if not isinstance(found, type):
        raise pickling.UnknownClassError(f"the store holds an object of class {name!r} but not the class itself")
    return found


class ObjectCodec:
    """Objects to buffers and back, with the classes of one store.

    Args:
        in_band: buffers below this many bytes are copied into the pickle.
        load_class: returns the bytes kept under an id, or None.
        keep_class: keeps bytes under an id unless it is known; when it returns, all processes can load them.
    """

    def __init__(
        self, in_band: int, load_class: Callable[[str], bytes | None], keep_class: Callable[[str, bytes], None]
    ) -> None:
        self._in_band = in_band
        self._load_class = load_class
        self._keep_class = keep_class
        self._kept: set[str] = set()

    def dumps(self, obj: object, *, out_of_band: bool = True) -> list[Buffer]:
        """Return a pickle and the large buffers that it refers to, which are not copied; without `out_of_band` none.

        Raises:
            pickling.ItemEncodingError: `obj` cannot be pickled; the text names its type and the culprit's.
        """
        buffers: list[Buffer] = []
        callback = _out_of_band(buffers, self._in_band) if out_of_band else None
        try:
            data = pickle.dumps(obj, 5, buffer_callback=callback)
        except Exception:
            data = None  # a class or function without an importable name, or nothing that can be pickled at all
        if data is None or _names_local_module(data):
            buffers.clear()
            data = self._with_classes(obj, callback)
        return [data, *buffers]

    def loads(self, parts: Sequence[Buffer]) -> Any:
        """Return the object. Arrays take the buffers over, so pass memory that is not used elsewhere."""
        before = getattr(_reading, "codec", None)
        _reading.codec = self
        try:
            return pickle.loads(parts[0], buffers=parts[1:])
        finally:
            _reading.codec = before

    def forget_kept(self) -> None:
        """Take that the store may be another one, which has none of the classes yet."""
        self._kept.clear()

    def find(self, class_id: str) -> type | None:
        """Return a class from the store, or None."""
        data = self._load_class(class_id)
        if data is None:
            return None
        # shmjet.ring.pickling.loads remembers that other workers may not have a class that came this way
        found = pickling.loads(_framed(data))
        return found if isinstance(found, type) else None

    def _with_classes(self, obj: object, callback: Keep | None) -> bytes:
        stream = io.BytesIO()
        pickler = _StorePickler(stream, protocol=5, buffer_callback=callback)
        try:
            pickler.dump(obj)
            for class_id, cls in pickler.classes.items():
                if class_id not in self._kept:
                    self._keep_class(class_id, dumps(cls))
                    self._kept.add(class_id)
        except pickling.ItemEncodingError:
            raise
        except Exception as error:
            pickling.dumps(obj)  # fails too, with an ItemEncodingError that names the culprit
            raise pickling.ItemEncodingError(
                f"a {type(obj).__qualname__!r} cannot be kept in a store: {type(error).__name__}: {error}"
            ) from error
        return stream.getvalue()


class _StorePickler(CodePickler):
    """cloudpickle, but classes that would go by value are collected and go as ids."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.classes: dict[str, type] = {}

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type) and not _internals._should_pickle_by_reference(obj):
            class_id = _internals._DYNAMIC_CLASS_TRACKER_BY_CLASS.get(obj)
            if class_id is None:
                pickling.dumps(obj)  # gives it an id, and lanes learn that other workers may not have it
                class_id = _internals._DYNAMIC_CLASS_TRACKER_BY_CLASS.get(obj)
            if class_id is not None:
                self.classes[class_id] = obj
                return class_of, (class_id, f"{obj.__module__}.{obj.__qualname__}")
        return super().reducer_override(obj)


def _out_of_band(buffers: list[Buffer], in_band: int) -> Keep:
    """Return pickle's buffer callback: True keeps a buffer in the pickle."""

    def callback(buffer: pickle.PickleBuffer) -> bool:
        try:
            raw = buffer.raw()
        except BufferError:
            return True  # not contiguous
        if raw.nbytes < in_band:
            return True
        buffers.append(raw)
        return False

    return callback


def _names_local_module(data: bytes) -> bool:
    """Whether a plain pickle may refer to a module whose contents travel by value. A text that looks so costs time."""
    return b"__main__" in data or any(name.encode() in data for name in cloudpickle.list_registry_pickle_by_value())


def _framed(data: bytes) -> bytes:
    """Return a pickle as a payload of `shmjet.ring.pickling`."""
    head = PICKLE_HEAD.pack(0, 0, len(data))
    return head + bytes(-len(head) % BUFFER_ALIGNMENT) + data
