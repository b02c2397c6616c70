"""Reusable memory blocks for arrays that come by a ring.

An array from a ring is copied into memory of this process alone. For an array of a megabyte the allocator asks the
system for pages each time, and gives them back when the array goes; that takes longer than the copy. Here a block whose
last array has gone is kept for the next one, up to `MOST_KEPT` bytes in all.
"""

from __future__ import annotations

import ctypes
import mmap
import weakref
from collections import defaultdict, deque
from typing import Final

from shmjet.ring.pickling import Buffer

STEP: Final = 128 << 10
"""The size of a block is a multiple of this many bytes."""
MOST_KEPT: Final = 16 << 20

_FAILED: Final = ctypes.c_void_p(-1).value
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


def map_pages(size: int, flags: int, fd: int = -1) -> int | None:
    """Map `size` bytes, writable, with libc: Python's mmap would keep a descriptor for as long as an array lives.

    Returns None when this process may not map any more.
    """
    address = _libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, fd, 0)
    return None if address is None or address == _FAILED else int(address)


def unmap_pages(address: int, size: int) -> None:
    """Unmap memory that `map_pages` has mapped."""
    _libc.munmap(address, size)


class Blocks:
    """The blocks of one process. Arrays may go in any thread, at any time: nothing here takes a lock."""

    def __init__(self) -> None:
        self._free: defaultdict[int, deque[int]] = defaultdict(deque)
        self.kept = 0
        """Bytes of the unused blocks, roughly: two threads may count at the same time."""

    def filled(self, content: Buffer) -> memoryview | None:
        """Return a writable copy of `content` that lives as long as any view of it; None without memory for it."""
        length = len(content)
        size = -(-length // STEP) * STEP
        try:
            address: int | None = self._free[size].pop()
            self.kept -= size
        except IndexError:
            address = map_pages(size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            if address is None:
                return None
        assert address is not None
        pages = (ctypes.c_char * size).from_address(address)
        weakref.finalize(pages, self._give_back, address, size).atexit = False
        view = memoryview(pages).cast("B")[:length]
        view[:] = content
        return view

    def _give_back(self, address: int, size: int) -> None:
        if self.kept + size > MOST_KEPT:
            unmap_pages(address, size)
            return
        self.kept += size
        self._free[size].append(address)

    def trim(self) -> None:
        """Give the memory of all unused blocks back to the system."""
        for size, addresses in list(self._free.items()):
            while True:
                try:
                    address = addresses.pop()
                except IndexError:
                    break
                self.kept -= size
                unmap_pages(address, size)


blocks = Blocks()
"""The blocks of this process."""
