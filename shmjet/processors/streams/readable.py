"""A thread that waits until a descriptor has something to read, so that a processor need not ask.

It says so once, and again only after the processor has read what there was and armed it anew.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable


class ReadableThread:
    """Waits for one descriptor.

    Args:
        fd: which; it belongs to the caller.
        wake_up: called in the thread when there is something to read, once for each `arm`.
    """

    def __init__(self, fd: int, wake_up: Callable[[], None]) -> None:
        self._fd = fd
        self._wake_up = wake_up
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        self._epoll = select.epoll()
        self._epoll.register(self._stop, select.EPOLLIN)
        self._epoll.register(fd, select.EPOLLONESHOT)
        self._thread = threading.Thread(target=self._run, name="shmjet-readable", daemon=True)
        self._thread.start()

    def arm(self) -> None:
        """Wake up when there is something to read, or at once if there is already."""
        self._epoll.modify(self._fd, select.EPOLLIN | select.EPOLLONESHOT)

    def close(self) -> None:
        """End the thread; before the descriptor is closed."""
        os.eventfd_write(self._stop, 1)
        self._thread.join()
        self._epoll.close()
        os.close(self._stop)

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are for the main thread
        while True:
            ready = {fd for fd, _ in self._epoll.poll()}
            if self._stop in ready:
                return
            self._wake_up()
