"""Arguments and results as bytes: small ones in a ring's record, large ones in a file without a name.

Both are the payload of `shmjet.ring.pickling`, in which the buffers of arrays lie as they are. What comes by a ring is
copied out of it once. A file is written once and mapped by its reader, privately: its arrays are the file's pages,
which may be written to without anyone else seeing it, and live until the last array is gone, whatever becomes of the
pool.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from collections.abc import Sequence
from typing import Any, Final

from shmjet.ring.pickling import Buffer, loads

PLAIN: Final = frozenset({int, float, str, bytes, bool, type(None)})
"""Exact types that the column codec takes; no need to pickle them."""

_FAILED: Final = ctypes.c_void_p(-1).value
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


def size_of(parts: Sequence[Buffer]) -> int:
    """Return the bytes of a payload's parts."""
    return sum(map(len, parts))


def to_file(parts: Sequence[Buffer]) -> int:
    """Write a payload into a fresh file; returns its descriptor.

    Raises:
        OSError: there is no memory or no descriptor left.
    """
    fd = os.memfd_create("shmjet-payload", os.MFD_CLOEXEC)
    try:
        for part in parts:
            view = memoryview(part).cast("B")
            while view:
                view = view[os.write(fd, view) :]
    except BaseException:
        os.close(fd)
        raise
    return fd


def from_file(fd: int, size: int) -> Any:
    """Return the object whose payload lies in a file; closes the descriptor.

    Mapped with libc, because Python's mmap would keep a descriptor for as long as an array lives.
    """
    try:
        address = _libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE, fd, 0)
        if address is None or address == _FAILED:  # as many mappings as a process may have: copy
            content = bytearray(size)
            view = memoryview(content)
            while view:
                view = view[os.preadv(fd, [view], size - len(view)) :]
            return loads(content, copy=False)
    finally:
        os.close(fd)
    pages = (ctypes.c_char * size).from_address(address)
    weakref.finalize(pages, _libc.munmap, address, size).atexit = False
    return loads(memoryview(pages).cast("B"), copy=False)
