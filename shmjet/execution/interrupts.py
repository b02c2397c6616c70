"""How user code that does not return is left, without losing the process that runs it.

The member notes in a worker's control block which execution it wants out of there and sends SIGUSR1. The handler raises
`ExecutionInterrupted` only where that execution's code is running at this moment and the engine can take it. Code that
swallows the exception, or waits in C, is not reached: then the member kills the process. Nor is an import, of which a
half would stay in the process for all jobs that follow: the member signals again, until the import has ended. A `close`
has some time before it is left, because it lets go of what the processor has opened; it is left at a later signal.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from shmjet.execution import control

logger = logging.getLogger("shmjet.worker")

_OURS = (contextlib.__file__, __file__)
"""Files whose code runs between the worker's and the user's."""

CLOSE_S = 0.15
"""Seconds that a `close` has before it is interrupted; less than lies between two signals."""


class ExecutionInterrupted(BaseException):
    """Raised inside user code that does not return, so that an execution that is to end can end."""


class Interrupts:
    """The handler of the member's signal in one process.

    Args:
        words: of the process' control block.
        clock: gives seconds.
    """

    def __init__(self, words: memoryview, clock: Callable[[], float] = time.monotonic) -> None:
        self._words = words
        self._clock = clock
        self._earliest = 0.0  # when what is running now may be interrupted
        self.is_open = False
        """Whether user code is running now. The worker's loop sets it around each call; `around` is for the rest."""

    def install(self) -> None:
        """Handle the signal from now on; called once, by the main thread."""
        signal.signal(signal.SIGUSR1, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code.co_filename in _OURS:
            return  # on the way in or out, where no one would catch it; another signal follows
        wanted = self._words[control.INTERRUPT]
        if not self.is_open or not wanted or self._words[control.CURRENT_EXECUTION] != wanted or _imports(frame):
            return
        if self._clock() >= self._earliest:
            self.is_open = False
            raise ExecutionInterrupted(f"execution {wanted} is being ended")

    @contextmanager
    def around(self, execution_id: int) -> Iterator[None]:
        """Run a piece of an execution's code that may be interrupted, and show whose code it is."""
        self._words[control.CURRENT_EXECUTION] = execution_id
        try:
            self.is_open = True
            yield
        finally:
            self.is_open = False
            self._words[control.CURRENT_EXECUTION] = 0

    @contextmanager
    def closing(self, execution_id: int, what: str) -> Iterator[None]:
        """Run a `close` of an execution's code: that it fails, or has to be interrupted, is logged and no more.

        It is interrupted when it has run for `CLOSE_S`, not before.
        """
        self._earliest = self._clock() + CLOSE_S
        try:
            with self.around(execution_id):
                yield
        except ExecutionInterrupted:
            logger.error("close() of %s did not return, and was interrupted", what)
        except BaseException:  # SystemExit too: other jobs run in this process
            logger.exception("close() of %s failed", what)
        finally:
            self._earliest = 0.0


def _imports(frame: FrameType | None) -> bool:
    """Say whether the code that is running has been called by an import."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False
