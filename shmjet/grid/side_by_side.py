"""Things that are done side by side, as each of them waits for other processes most of the time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


def one_after_the_other(things: Sequence[Callable[[], None]]) -> None:
    """Do things in their order; the first error ends that."""
    for do in things:
        do()


class SideBySide:
    """A few threads, which are there from the first use on.

    Args:
        count: of threads.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._threads: ThreadPoolExecutor | None = None

    def do_all(self, things: Sequence[Callable[[], None]]) -> None:
        """Do things in any order, and return when all are done; then an error of one of them is raised."""
        if len(things) < 2:
            one_after_the_other(things)
            return
        from concurrent.futures import ThreadPoolExecutor, wait  # which few processes need

        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._count, thread_name_prefix="shmjet-grid")
        done = [self._threads.submit(do) for do in things]
        wait(done)
        for future in done:
            future.result()

    def close(self) -> None:
        """End the threads."""
        if self._threads is not None:
            self._threads.shutdown()
