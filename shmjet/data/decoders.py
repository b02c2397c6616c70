"""Decoders of messages and files, made one at a time.

When the first decoder for a class is made, msgspec (0.22) notes on the class what it finds out about its fields, and
before that is complete: a thread that decodes the class meanwhile ends the process by a segmentation fault. So nothing
in shmjet makes a decoder but by this module, and ruff holds that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar, overload

import msgspec

T = TypeVar("T")
_Bytes = bytes | bytearray | memoryview
_ExtHook = Callable[[int, memoryview], Any]

_one_at_a_time: Final = threading.Lock()
_of_msgpack: Final[dict[Any, msgspec.msgpack.Decoder[Any]]] = {}
_of_json: Final[dict[Any, msgspec.json.Decoder[Any]]] = {}


@overload
def msgpack_decoder(kind: type[T], ext_hook: _ExtHook | None = None) -> msgspec.msgpack.Decoder[T]: ...
@overload
def msgpack_decoder(kind: Any, ext_hook: _ExtHook | None = None) -> msgspec.msgpack.Decoder[Any]: ...
def msgpack_decoder(kind: Any, ext_hook: _ExtHook | None = None) -> msgspec.msgpack.Decoder[Any]:
    """Return a new decoder of msgpack.

    Args:
        kind: the type of what is decoded.
        ext_hook: makes an object of an extension type's code and bytes.
    """
    with _one_at_a_time:
        return msgspec.msgpack.Decoder(kind, ext_hook=ext_hook)


def json_decoder(kind: Any = Any) -> msgspec.json.Decoder[Any]:
    """Return a new decoder of JSON, for this type."""
    with _one_at_a_time:
        return msgspec.json.Decoder(kind)


@overload
def from_msgpack(data: _Bytes, kind: type[T]) -> T: ...
@overload
def from_msgpack(data: _Bytes, kind: Any = Any) -> Any: ...
def from_msgpack(data: _Bytes, kind: Any = Any) -> Any:
    """Return what bytes hold, as an object of a type of shmjet's own, for which the decoder is kept.

    Raises:
        msgspec.MsgspecError: they are not msgpack, or of another type; and as `shmjet.ipc.decode_errors` says.
    """
    decoder = _of_msgpack.get(kind)
    if decoder is None:
        decoder = _of_msgpack[kind] = msgpack_decoder(kind)
    return decoder.decode(data)


@overload
def from_json(data: _Bytes | str, kind: type[T]) -> T: ...
@overload
def from_json(data: _Bytes | str, kind: Any = Any) -> Any: ...
def from_json(data: _Bytes | str, kind: Any = Any) -> Any:
    """Return what a text holds, as an object of a type of shmjet's own, for which the decoder is kept.

    Raises:
        msgspec.MsgspecError: it is not JSON, or of another type.
    """
    decoder = _of_json.get(kind)
    if decoder is None:
        decoder = _of_json[kind] = json_decoder(kind)
    return decoder.decode(data)


@overload
def converter(kind: type[T], *, strict: bool = True) -> Callable[[Any], T]: ...
@overload
def converter(kind: Any, *, strict: bool = True) -> Callable[[Any], Any]: ...
def converter(kind: Any, *, strict: bool = True) -> Callable[[Any], Any]:
    """Return what makes objects of a type, which may be a user's, of numbers, text, lists and dictionaries.

    It raises msgspec.ValidationError for a value that does not fit the type.

    Args:
        kind: the type.
        strict: take text for no numbers.
    """
    msgpack_decoder(kind)  # now all is noted that is noted of the type
    return partial(msgspec.convert, type=kind, strict=strict)
