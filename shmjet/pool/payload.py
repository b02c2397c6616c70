"""Arguments and results as bytes: small ones in a ring's record, large ones in a file without a name.

Both are the payload of `shmjet.ring.pickling`, which holds the buffers of arrays unchanged. A payload from a ring is
copied once, into a reusable block of memory (`blocks`). A file is written once and its reader maps it privately: its
arrays are the file's pages, which may be written to without effect on other processes, and live until the last array is
gone, even after the pool's end.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from shmjet.pool.blocks import STEP, blocks, map_pages, unmap_pages
from shmjet.ring.pickling import Buffer, loads

PLAIN: Final = frozenset({int, float, str, bytes, bool, type(None)})
"""Exact types that the column codec takes without pickling."""

Load = Callable[[], Any]
"""Loads an object from a payload that stays where it is until then; raises what unpickling raises."""


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


def from_record(body: memoryview) -> Any:
    """Return the object whose payload came by a ring; it keeps no reference to `body`."""
    content = blocks.filled(body) if len(body) >= STEP else None
    return loads(body) if content is None else loads(content, copy=False)


def kept_record(body: memoryview) -> Load:
    """Return a function that loads the object whose payload came by a ring; it keeps no reference to `body`."""
    content = blocks.filled(body) if len(body) >= STEP else None
    return partial(loads, bytes(body)) if content is None else partial(loads, content, copy=False)


def from_file(fd: int, size: int) -> Any:
    """Return the object whose payload lies in a file; closes the descriptor."""
    return kept_file(fd, size)()


def kept_file(fd: int, size: int) -> Load:
    """Return a function that loads the object whose payload lies in a file; closes the descriptor.

    Raises:
        OSError: the file cannot be read.
        MemoryError: it cannot be mapped, and there is no memory for a copy.
    """
    try:
        address = map_pages(size, mmap.MAP_PRIVATE, fd)
        if address is None:  # as many mappings as a process may have: copy
            content = bytearray(size)
            view = memoryview(content)
            while view:
                view = view[os.preadv(fd, [view], size - len(view)) :]
            return partial(loads, content, copy=False)
    finally:
        os.close(fd)
    pages = (ctypes.c_char * size).from_address(address)
    weakref.finalize(pages, unmap_pages, address, size).atexit = False
    return partial(loads, memoryview(pages).cast("B"), copy=False)
