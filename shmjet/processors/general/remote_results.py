"""Results of processors on hosts that cannot reach the client's socket: they travel through a list of the cluster.

The client opens the list before the job starts, by its first item, so that a processor knows whether a client will
read the list; each further item is some frames as `collect` writes them. After each a processor rings: it writes to an
observable of the same name. The client fetches frames into its own file as it reads, when it was rung, and removes the
list when it has all. Must not know: frames' contents.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from shmjet.data.errors import ShmjetError
from shmjet.processors.general.spill_files import SpillErrors, spill_file
from shmjet.ring import pickling

if TYPE_CHECKING:
    from typing_extensions import Buffer

_OPEN = b"open"
_PAGE = 64
"""Items of the list that are fetched at once."""
_RINGS = 8
"""Times that a processor rings without waiting for the member."""
_MOST_KEPT = 256 << 10
"""So many bytes of frames at least are put into the list at once, or what has gathered for `delay` seconds."""


class RemoteFrames(Protocol):
    """What is used of a list of the cluster."""

    def append(self, item: bytes) -> None: ...
    def destroy(self) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: slice) -> list[bytes]: ...


def name_of(address: str) -> str:
    """Return the name of the list that stands for a socket.

    Example:
        >>> name_of("\\0shmjet-results-12")
        'shmjet-results-12'
    """
    return address.lstrip("\0")


def list_of(grid: Any, address: str) -> RemoteFrames | None:
    """Return the list that a client has opened, in a processor; None when no client has.

    Args:
        grid: of the processor's context, or None.
        address: of the client's socket.
    """
    found: RemoteFrames | None = None if grid is None else grid.get_list(name_of(address))
    return found if found is not None and len(found) else None


class RemoteBell(Protocol):
    """What is used of the connection to an observable."""

    def write(self, count: int, items: bytes) -> None: ...
    def wait(self, most: int = 0) -> None: ...
    def close(self) -> None: ...


_RING = b"".join(pickling.dumps([None]))


class RemoteFrameWriter:
    """A processor's end: gathers frames and puts them into the list, which takes a message there and back.

    Args:
        frames: the list.
        bell: tells the client.
        delay: seconds for which frames wait for others, at most.
        clock: gives seconds.
    """

    def __init__(
        self, frames: RemoteFrames, bell: RemoteBell, delay: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._frames = frames
        self._bell = bell
        self._delay = delay
        self._clock = clock
        self._kept: list[bytes] = []
        self._size = 0
        self._sent_at = clock() - delay

    def write(self, parts: Iterable[Buffer]) -> None:
        """Take a frame; the parts are copied."""
        frame = b"".join(parts)
        self._kept.append(frame)
        self._size += len(frame)
        self.send_if_due()

    def send_if_due(self) -> bool:
        """Send what is kept if that has been long enough, or is enough; False while something is kept."""
        if self._kept and (self._size >= _MOST_KEPT or self._clock() - self._sent_at >= self._delay):
            self.send()
        return not self._kept

    @property
    def patience(self) -> float:
        """Seconds until what is kept has waited long enough."""
        return max(self._sent_at + self._delay - self._clock(), 0.0)

    def send(self) -> None:
        """Put what is kept into the list."""
        if self._kept:
            self._frames.append(b"".join(self._kept))
            self._bell.wait(_RINGS)
            self._bell.write(1, _RING)
            self._kept.clear()
            self._size = 0
            self._sent_at = self._clock()

    def close(self) -> None:
        """Let go of the bell."""
        self._bell.close()


class RemoteResults:
    """The client's end: opens the list, and fetches what is in it into a temporary file.

    Args:
        frames: the list.
    """

    def __init__(self, frames: RemoteFrames) -> None:
        self._frames: RemoteFrames | None = frames
        self._fetching = threading.Lock()
        self._next = 1
        frames.append(_OPEN)
        with spill_file(tempfile.gettempdir(), "collect()") as file:
            self.file = os.dup(file.fileno())
        """A descriptor, which is the caller's to close."""

    def fetch(self, keep: Callable[[Callable[[], None]], None], *, last: bool) -> None:
        """Write what has come meanwhile to the end of the file.

        Args:
            keep: calls what writes when the file is still open, and raises when it is not.
            last: nothing more will come, so the list can go.

        Raises:
            ShmjetError: the list is gone.
        """
        with self._fetching:
            frames = self._frames
            if frames is None:
                return
            if last and not len(frames):
                raise ShmjetError("the results that lay on another host are lost: so is the member that had them")
            while page := frames[self._next : self._next + _PAGE]:
                keep(partial(_write_all, self.file, b"".join(page)))
                self._next += len(page)
            if last:
                self._frames = None
                frames.destroy()

    def give_up(self) -> None:
        """Remove the list, if it is still there."""
        with self._fetching:
            frames, self._frames = self._frames, None
        if frames is not None:
            with contextlib.suppress(ShmjetError):
                frames.destroy()


def _write_all(fd: int, data: bytes) -> None:
    left = memoryview(data)
    with SpillErrors(tempfile.gettempdir(), "collect()", "write results"):
        while left:
            left = left[os.write(fd, left) :]
