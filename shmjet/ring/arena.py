"""The shared memory of one execution: created once, unlinked at once, passed on as a descriptor, never by name.

Pages are reserved when the arena is made, so that a full `/dev/shm` or a cgroup limit is an error here and not a
SIGBUS in the process that touches the page first. Where `/dev/shm` is too small (64 MB in a default container) the
arena is a memfd, which is charged to memory alone. This module knows nothing of what lies in the memory.
`multiprocessing.shared_memory` is not used because its tracker unlinks segments of live owners.
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
import resource
import time
from types import TracebackType

import posix_ipc

from shmjet.host.memory_limits import available_memory

_log = logging.getLogger(__name__)

_PREFIX = "/shmjet-"


class ArenaError(OSError):
    """There is not enough shared memory, or a descriptor is not an arena of the expected size; the text has advice."""


class Arena:
    """A mapping of shared memory that all processes of an execution have in common.

    Made by `create` in one process and by `attach` in the others. Rings, doorbells and views keep the mapping alive
    after `close`; the memory goes back to the system when the last process has let go of it.

    Example:
        >>> with Arena.create(1 << 16, label="example") as arena:
        ...     arena.memory[0] = 7
    """

    def __init__(self, fd: int, size: int, mapping: mmap.mmap, reserved: int) -> None:
        self._fd = fd
        self._size = size
        self._reserved = reserved
        self._mapping: mmap.mmap | None = mapping
        self._memory: memoryview | None = memoryview(mapping)

    @classmethod
    def create(cls, size: int, *, label: str, later: int = 0) -> Arena:
        """Make an arena of zeros.

        Args:
            size: bytes that are there at once; rounded up to whole pages by the system.
            later: bytes behind them that get memory when it is asked for with `reserve`.
            label: what it is for; shows in `/proc/PID/maps` and in error messages.

        Raises:
            ArenaError: memory cannot be reserved; the text names the limit, what is needed and the remedy.
            ValueError: `size` is not positive.
        """
        if size < 1:
            raise ValueError(f"arena {label!r}: size must be at least 1 byte, got {size}")
        try:
            fd = posix_segment(size, later)
        except OSError as error:
            fd = _anonymous_segment(size, later, label, error)
        return cls._map(fd, size + later, label, size)

    @classmethod
    def attach(cls, fd: int, size: int) -> Arena:
        """Map the arena behind a descriptor that another process made; the descriptor now belongs to the arena.

        Raises:
            ArenaError: the descriptor is not shared memory of at least `size` bytes.
        """
        actual = os.fstat(fd).st_size
        if actual < size:
            raise ArenaError(errno.EINVAL, f"descriptor {fd} has {actual} bytes, the arena should have {size}")
        return cls._map(fd, size, f"fd {fd}", size)

    @classmethod
    def _map(cls, fd: int, size: int, label: str, reserved: int) -> Arena:
        try:
            mapping = map_segment(fd, size, label)
        except ArenaError:
            os.close(fd)
            raise
        return cls(fd, size, mapping, reserved)

    @property
    def fd(self) -> int:
        """The descriptor to pass on; the arena keeps it open until `close`."""
        return self._fd

    @property
    def size(self) -> int:
        """Bytes asked for, those for later included."""
        return self._size

    @property
    def reserved(self) -> int:
        """Bytes from the start that have had memory from the beginning."""
        return self._reserved

    @property
    def used(self) -> int:
        """Bytes of memory that it takes now."""
        return os.fstat(self._fd).st_blocks * 512

    @property
    def memory(self) -> memoryview:
        """All of it, writable. Raises ValueError once closed."""
        if self._memory is None:
            raise ValueError("the arena is closed")
        return self._memory

    def close(self) -> None:
        """Let go of the descriptor and the mapping; idempotent.

        Where rings or views of the memory still live, the mapping goes with the last of them.
        """
        if self._memory is None or self._mapping is None:
            return
        memory, mapping = self._memory, self._mapping
        self._memory = self._mapping = None
        os.close(self._fd)
        try:
            memory.release()
            mapping.close()
        except BufferError:
            pass  # the exporters hold references; dropping ours is all that can be done

    def __enter__(self) -> Arena:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def map_segment(fd: int, size: int, label: str) -> mmap.mmap:
    """Map an arena's descriptor, which stays open.

    Raises:
        ArenaError: it cannot be mapped here; the text names the limit.
    """
    try:
        return mmap.mmap(fd, size)
    except OSError as error:
        if error.errno == errno.EMFILE:  # a mapping keeps a descriptor of its own
            raise _no_descriptor(label) from error
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        named = "" if limit == resource.RLIM_INFINITY else f"; RLIMIT_AS (`ulimit -v`) lets a process have {limit}"
        raise ArenaError(error.errno, f"arena {label!r}: {size} bytes cannot be mapped: {error}{named}") from error


def reserve(fd: int, offset: int, size: int) -> None:
    """Give a part of a segment its pages.

    Raises:
        OSError: there is not that much memory.
    """
    _allowance.take(size)
    os.posix_fallocate(fd, offset, size)


class _Allowance:
    """What may be reserved before the memory of the host and its control groups has to be read again.

    Reading it costs as much as a small job's work in a worker, and workers reserve in many small steps. So a reading
    is good for a second and a 256th of what it found: little, since other processes take memory meanwhile.
    """

    def __init__(self) -> None:
        self._left = 0
        self._until = 0.0

    def take(self, size: int) -> None:
        """Count bytes that are about to be reserved; OSError when there are not so many."""
        now = time.monotonic()
        if size > self._left or now > self._until:
            available = available_memory()
            if size > available:  # reserving it would not fail but wake the OOM killer
                raise OSError(
                    errno.ENOMEM, f"only {available} bytes of memory are available here, by host and control group"
                )
            self._left = available // 256
            self._until = now + 1.0
        self._left -= size


_allowance = _Allowance()


def _fill(fd: int, size: int, later: int) -> None:
    """Give a segment its size and its first pages."""
    os.ftruncate(fd, size + later)
    reserve(fd, 0, size)


def posix_segment(size: int, later: int) -> int:
    """Make a segment on /dev/shm that has no name any more; raises OSError when there is no room."""
    while True:
        name = _PREFIX + os.urandom(8).hex()
        try:
            segment = posix_ipc.SharedMemory(name, posix_ipc.O_CREX, mode=0o600, size=0)
        except posix_ipc.ExistentialError:
            continue
        segment.unlink()
        fd: int = segment.fd
        try:
            _fill(fd, size, later)
        except OSError:
            os.close(fd)
            raise
        return fd


def _anonymous_segment(size: int, later: int, label: str, reason: OSError) -> int:
    """Make a memfd, and log that /dev/shm did not do; raises ArenaError when there is no memory either."""
    try:
        fd = os.memfd_create(f"shmjet-{label}", os.MFD_CLOEXEC)
    except OSError as error:
        raise _no_memory(size, label, reason, error) from error
    try:
        _fill(fd, size, later)
    except OSError as error:
        os.close(fd)
        raise _no_memory(size, label, reason, error) from error
    text = "arena %r: /dev/shm has no room for %d bytes (%s); using anonymous memory instead."
    if reason.errno in (errno.ENOSPC, errno.ENOMEM):
        text += " Enlarge /dev/shm (docker run --shm-size=...) or lower ring_memory."
    _log.warning(text, label, size, reason.strerror or reason)
    return fd


def _no_memory(size: int, label: str, on_disk: OSError, anonymous: OSError) -> ArenaError:
    free = "unknown"
    try:
        status = os.statvfs("/dev/shm")
        free = f"{status.f_bavail * status.f_frsize} bytes"
    except OSError:
        pass
    if anonymous.errno == errno.EMFILE:
        return _no_descriptor(label)
    return ArenaError(
        anonymous.errno,
        f"arena {label!r} needs {size} bytes of shared memory; /dev/shm has {free} free "
        f"({on_disk.strerror or on_disk}) and anonymous memory failed too "
        f"({anonymous.strerror or anonymous}). Lower ring_memory, enlarge /dev/shm, or raise the memory limit of the "
        "container",
    )


def _no_descriptor(label: str) -> ArenaError:
    return ArenaError(
        errno.EMFILE,
        f"arena {label!r} needs two descriptors, and process {os.getpid()} has as many open as RLIMIT_NOFILE allows; "
        "raise it (`ulimit -n`)",
    )
