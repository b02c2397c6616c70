"""What follows the changes of a map: `Journal`, an iterator that waits, and `Listener`, a thread that calls a function.

`journal_reader` reads them.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from shmjet.data.errors import MemberLostError, ShmjetError
from shmjet.grid.errors import GridError
from shmjet.grid.map_event import MapEvent

if TYPE_CHECKING:
    from shmjet.grid.journal_reader import JournalReader

_SHORTEST_WAIT, _LONGEST_WAIT = 0.0005, 0.02
_LONGEST_WAIT_AFAR = 0.1
PATIENCE_S = 5.0
"""How long the end of a store waits for calls of listeners that are under way: they may never return."""

logger = logging.getLogger("shmjet.grid")


class Journal(Iterator[MapEvent]):
    """The endless iterator of `IMap.journal`: waits where there is nothing new.

    Args:
        reader: reads.
        is_far: each look costs a round trip.
    """

    def __init__(self, reader: JournalReader, *, is_far: bool) -> None:
        self._reader = reader
        self._waits = Waits(is_far=is_far)
        self._events: deque[MapEvent] = deque()
        self._stopped = threading.Event()

    def __next__(self) -> MapEvent:
        while not self._events:
            if self._stopped.is_set():
                raise StopIteration
            self._events.extend(self._reader.read())
            if not self._events:
                self._stopped.wait(self._waits.next())
        self._waits.begin()
        return self._events.popleft()

    def close(self) -> None:
        """End the iteration, also while another thread waits in it."""
        self._stopped.set()
        self._events.clear()


class Waits:
    """How long to wait until the next look, longer and longer.

    Args:
        is_far: each look costs a round trip.
    """

    def __init__(self, *, is_far: bool) -> None:
        self._longest = _LONGEST_WAIT_AFAR if is_far else _LONGEST_WAIT
        self.begin()

    def begin(self) -> None:
        """Note that there was something."""
        self._wait = _SHORTEST_WAIT

    def next(self) -> float:
        """Return seconds, after a look that found nothing."""
        wait, self._wait = self._wait, min(self._longest, 2 * self._wait)
        return wait


class Listeners:
    """The listeners of one store in this process: they end with it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[Listener, None] = {}

    def add(self, listener: Listener) -> None:
        """Start a listener."""
        with self._lock:
            self._running[listener] = None
        listener.start(self._ended)

    def close(self) -> None:
        """End all of them, and wait for that; a call that does not return within `PATIENCE_S` is named and left."""
        with self._lock:
            running = list(self._running)
            self._running.clear()  # so that a second call does not wait as long again
        deadline = time.monotonic() + PATIENCE_S
        for listener in running:
            listener.stop()
        for listener in running:
            listener.wait(max(0.0, deadline - time.monotonic()))

    def _ended(self, listener: Listener) -> None:
        with self._lock:
            self._running.pop(listener, None)


class Listener:
    """Calls a function with each event, in a thread of its own.

    Args:
        label: how messages call the map.
        reader: reads.
        fn: the function.
        wanted: says whether an event is for it.
        is_far: each look costs a round trip.
    """

    def __init__(
        self,
        label: str,
        reader: JournalReader,
        fn: Callable[[MapEvent], object],
        wanted: Callable[[MapEvent], bool],
        *,
        is_far: bool,
    ) -> None:
        self._label = label
        self._reader = reader
        self._fn = fn
        self._wanted = wanted
        self._waits = Waits(is_far=is_far)
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, ended: Callable[[Listener], None]) -> None:
        """Begin; `ended` is called when it is over."""
        self._thread = threading.Thread(target=self._run, args=(ended,), name="shmjet-listener", daemon=True)
        self._thread.start()

    def remove(self) -> None:
        """End it. When this returns, the function is not called any more, unless it is what calls this."""
        self.stop()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def stop(self) -> None:
        """Have the function called no more; does not wait for a call that is under way."""
        self._stopped.set()

    def wait(self, seconds: float) -> None:
        """Wait for the end of a call that is under way, and log that it has none within so many seconds."""
        if self._thread is None or self._thread is threading.current_thread():
            return
        self._thread.join(seconds)
        if self._thread.is_alive():
            logger.warning(
                "a listener of %s has not returned from %r; it is not waited for any longer", self._label, self._fn
            )

    def _run(self, ended: Callable[[Listener], None]) -> None:
        try:
            while not self._stopped.is_set():
                events = self._reader.read()
                self._tell(events)
                if events:
                    self._waits.begin()
                else:
                    self._stopped.wait(self._waits.next())
        except (GridError, MemberLostError) as error:
            if not self._stopped.is_set():
                logger.warning("a listener of %s has ended: %s", self._label, error)
        except ShmjetError as error:  # the instance is being shut down
            logger.debug("a listener of %s has ended: %s", self._label, error)
        finally:
            ended(self)

    def _tell(self, events: Iterable[MapEvent]) -> None:
        for event in filter(self._wanted, events):
            if self._stopped.is_set():
                return
            with _logged(self._label):
                self._fn(event)


def log_unreadable(label: str, error: BaseException) -> None:
    """Log that a listener is told of a change as lost, and why."""
    logger.error("a listener of %s cannot read a change, and is told that it is lost", label, exc_info=error)


@contextlib.contextmanager
def _logged(label: str) -> Iterator[None]:
    try:
        yield
    except (Exception, SystemExit):  # an exit would end this thread, and with it the listener, without a word
        logger.exception("a listener of %s has raised an error, and goes on with the next event", label)
