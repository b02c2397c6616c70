"""Packed files: their compression by name, and the streams that unpack and pack them.

gzip, bzip2 and xz come with Python; zstd is Python's from 3.14 on and needs the package `zstandard` before. A module is
imported when the first file needs it. Must not know: what is in the files.
"""

from __future__ import annotations

import errno
import importlib
import os
from collections.abc import Callable
from typing import IO, Any

SUFFIXES = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".lzma": "xz", ".zst": "zstd"}
"""How the names of packed files end, and the method that this means."""

METHODS = ("gzip", "bz2", "xz", "zstd")

_PIECE = 64 << 10
"""Packed bytes read at once."""

_ZSTD_PIECE = 8 << 10
"""Packed bytes of zstd read at once: fewer, because they can unpack to any size."""

_SUFFIX_OF = {"gzip": ".gz", "bz2": ".bz2", "xz": ".xz", "zstd": ".zst"}


def compression_of(path: str) -> str | None:
    """Return the method that a file's name says it is packed with, or None.

    Example:
        >>> compression_of("log.json.GZ"), compression_of("log.json")
        ('gzip', None)
    """
    return SUFFIXES.get(os.path.splitext(path)[1].lower())


def suffix_of(method: str | None) -> str:
    """Return how the name of a file packed with a method ends; empty for None."""
    return "" if method is None else _SUFFIX_OF[method]


def check_method(who: str, method: str | None) -> str | None:
    """Return `method` when it can be used here.

    Raises:
        ValueError: it is none. ModuleNotFoundError: it is zstd, and the package is missing.
    """
    if method is not None and method not in METHODS:
        raise ValueError(f"{who}: compression must be one of {', '.join(METHODS)}, or None, got {method!r}")
    if method == "zstd":
        _zstd()
    return method


class UnpackedStream:
    """A stream of the bytes in a packed file.

    Args:
        file: the packed bytes; closed with this.
        method: of `METHODS`, or None: the bytes are not packed.
        path: for errors.
    """

    def __init__(self, file: IO[bytes], method: str | None, path: str) -> None:
        self._file = file
        self._method = method
        self._path = path
        self._stream: Any = file
        try:
            if method is not None:
                self._stream = _reader(file, method)
        except BaseException:
            file.close()
            raise

    def read(self, size: int) -> bytes:
        """Return the next bytes, at most `size`; none at the end.

        Raises:
            OSError: the file cannot be read, or is not (or not whole) what its name says; it names the file.
        """
        try:
            data: bytes = self._stream.read(size)
        except Exception as error:
            if self._method is None or (isinstance(error, OSError) and error.errno is not None):
                raise
            what = f"not a whole {self._method} file ({error or type(error).__name__})"
            raise OSError(errno.EIO, what, self._path) from error
        return data

    def close(self) -> None:
        """Close the file."""
        if self._stream is not self._file:
            self._stream.close()
        self._file.close()


def packing(file: IO[bytes], method: str) -> IO[bytes]:
    """Return a stream that packs what is written into `file`; closing it ends the data and leaves `file` open."""
    stream: Any
    if method == "gzip":
        stream = _module("gzip").GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0)
    elif method != "zstd":
        stream = _file_class(method)(file, "wb")
    else:
        module, is_builtin = _zstd()
        if is_builtin:
            stream = module.ZstdFile(file, "wb")
        else:
            stream = module.ZstdCompressor().stream_writer(file, closefd=False)
    packed: IO[bytes] = stream
    return packed


def _reader(file: IO[bytes], method: str) -> Any:
    if method == "gzip":
        return _module("gzip").GzipFile(fileobj=file, mode="rb")
    if method == "bz2":
        return _Parts(file, _module("bz2").BZ2Decompressor)
    if method == "xz":
        return _Parts(file, _module("lzma").LZMADecompressor)
    module, is_builtin = _zstd()
    if is_builtin:
        return module.ZstdFile(file, "rb")
    return _ZstdFrames(file, module)


class _Parts:
    """Unpacks the parts of a bzip2 or xz file, one after the other.

    Unlike Python's own streams it does not take a damaged part, or what else follows the first one, for the end.
    """

    def __init__(self, file: IO[bytes], make: Callable[[], Any]) -> None:
        self._file = file
        self._make = make
        self._part = make()
        self._is_between = False
        self._packed = b""

    def read(self, size: int) -> bytes:
        while True:
            if not self._packed and (self._is_between or self._part.needs_input):
                self._packed = self._file.read(_PIECE)
                if not self._packed:
                    if self._is_between:
                        return b""
                    raise EOFError("the file ends before its data does")
            if self._is_between:
                self._packed = self._packed.lstrip(b"\0")  # padding
                if not self._packed:
                    continue
                self._part, self._is_between = self._make(), False
            packed, self._packed = self._packed, b""
            data: bytes = self._part.decompress(packed, size)
            if self._part.eof:
                self._packed, self._is_between = self._part.unused_data, True
            if data:
                return data

    def close(self) -> None:
        self._packed = b""


class _ZstdFrames:
    """Unpacks one frame after the other; unlike the package's own stream, it tells when one is cut short."""

    def __init__(self, file: IO[bytes], module: Any) -> None:
        self._file = file
        self._make = module.ZstdDecompressor().decompressobj
        self._frame: Any = None
        self._packed = b""
        self._data = memoryview(b"")

    def read(self, size: int) -> bytes:
        while not self._data:
            packed = self._packed or self._file.read(_ZSTD_PIECE)
            self._packed = b""
            if not packed:
                if self._frame is not None:
                    raise EOFError("a frame is cut short")
                return b""
            if self._frame is None:
                self._frame = self._make()
            self._data = memoryview(self._frame.decompress(packed))
            if self._frame.eof:
                self._packed, self._frame = self._frame.unused_data, None
        data, self._data = self._data[:size], self._data[size:]
        return bytes(data)

    def close(self) -> None:
        self._data = memoryview(b"")


def _file_class(method: str) -> Any:
    return _module("bz2").BZ2File if method == "bz2" else _module("lzma").LZMAFile


def _module(name: str) -> Any:
    return importlib.import_module(name)


def _zstd() -> tuple[Any, bool]:
    """Return the module for zstd, and whether it is Python's own."""
    for name in ("compression.zstd", "zstandard"):
        try:
            return _module(name), name == "compression.zstd"
        except ModuleNotFoundError:
            continue
    raise ModuleNotFoundError(
        "files packed with zstd need Python 3.14 or the package zstandard: pip install zstandard", name="zstandard"
    )
