"""The news of a run: told to its listeners, to its client, and to the coroutines that wait for a change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from shmjet.cluster.jobs.unexpected import unexpected
from shmjet.core import JobStatus

ANNOUNCE_S = 0.002
"""How long after its start a run's client is told how far it is, if it has not ended by then. The smallest job takes a
millisecond, and more where other programs run."""

StatusListener = Callable[[JobStatus, JobStatus], None]
"""Called with a run's status before a change and after it."""


class RunNews:
    """See the module.

    Args:
        tell_client: has the client of the run told how far it is.
    """

    def __init__(self, tell_client: Callable[[], None]) -> None:
        self.tell_client = tell_client
        self._listeners: list[StatusListener] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._announcer: asyncio.TimerHandle | None = None
        self._client_waits = False
        self.last = JobStatus.STARTING
        """The status that was told last."""

    def start(self) -> None:
        """Tell the client soon how far the run is, unless it has ended by then.

        A job of a millisecond need not wake its client twice.
        """
        self._announcer = asyncio.get_running_loop().call_later(ANNOUNCE_S, self._announce)

    def _announce(self) -> None:
        self._announcer = None
        self._client_waits = True
        self.tell_client()

    def client_waits(self) -> None:
        """Tell the client of each change from now on."""
        self._client_waits = True

    def add_listener(self, listener: StatusListener) -> Callable[[], None]:
        """Have a function called at every change of the status; return what removes it."""
        self._listeners.append(listener)

        def remove() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return remove

    def tell_listeners(self, status: JobStatus) -> None:
        """Tell the listeners of a status, if it is a new one."""
        if status is not self.last:
            old, self.last = self.last, status
            for listener in list(self._listeners):
                try:
                    listener(old, status)
                except Exception as error:
                    unexpected(error, "a listener to the status of a job")

    def tell(self, *, is_over: bool) -> None:
        """Tell the client, in time, and all that waits, that the run has changed.

        Args:
            is_over: whether it has ended.
        """
        if is_over:
            if self._announcer is not None:
                self._announcer.cancel()
                self._announcer = None
            self.tell_client()
        elif self._client_waits:
            self.tell_client()
        if self._waiting:
            self.wake()

    def wake(self) -> None:
        """Have all coroutines that wait look again."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait for changes until a condition holds, at most so many seconds; return whether it holds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not condition():
            change = loop.create_future()
            self._waiting.append(change)
            try:
                async with asyncio.timeout_at(deadline):
                    await change
            except TimeoutError:
                return condition()
        return True

    def close(self) -> None:
        """Let go of all that were to hear of the run: it does not change any more, and is remembered for long."""
        self.tell_client = _nothing
        self._listeners.clear()


def _nothing() -> None:
    """Stand for what tells the client."""
