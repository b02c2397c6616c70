"""The observables of a cluster, kept by the coordinator: rings of items, and the readers that wait for more.

Nothing of what they hold is unpickled here. A reader asks for the next items each time it has taken the last ones, so
a slow one has nothing pile up, and misses what the ring does not keep any longer.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from shmjet.cluster.member.observable_ring import ObservableRing
from shmjet.cluster.observable_messages import (
    OLDEST,
    ConfigureObservable,
    DestroyObservable,
    JobEnd,
    LeaveObservable,
    Observed,
    ReadObservable,
    WriteObservable,
)
from shmjet.cluster.protocol import Done, Refused
from shmjet.execution.messages import Failure

if TYPE_CHECKING:
    from shmjet.cluster.requests.client_connections import ForwardedClient, LocalClient

    Client = LocalClient | ForwardedClient

CAPACITY = 10_000
"""Items that an observable keeps, unless it is configured."""
MOST_CAPACITY = 10_000_000
MOST_SUBSCRIPTIONS = 4096
"""Readers of one client that wait at the same time."""
MOST_UNWRITTEN = 100_000
"""Observables that there may be for clients to make others by looking at them."""
_TOO_MANY = f"there are {MOST_UNWRITTEN} observables; destroy() some of them"
_MOST_EXCEPTION = 1 << 20
"""Bytes of a pickled exception that an observable keeps."""


class Observables:
    """See the module."""

    def __init__(self) -> None:
        self._store = _new_store()
        self._count = 0
        self._rings: dict[str, ObservableRing] = {}
        self._waiting: dict[Client, dict[int, ReadObservable]] = {}
        self._by_name: dict[str, dict[tuple[Client, int], None]] = {}
        self._writers: dict[str, set[int]] = {}
        """The runs that write to each."""

    # -- requests -------------------------------------------------------------------------------------------------

    def write(self, client: Client, request: WriteObservable) -> None:
        """Add items and send them to the readers that wait."""
        if not client.is_here:
            text = "only processors of a job write to an observable"
            client.send(Refused(request.request, "AuthenticationError", text))
            return
        self._ring(request.name).add_items(request.count, request.items)
        self._wake(request.name)
        client.send(Done(request.request))

    def read(self, client: Client, request: ReadObservable) -> None:
        """Send a reader what there is, now or as soon as there is something."""
        waiting = self._waiting.setdefault(client, {})
        self._forget(client, request.subscription)
        text = ""
        if len(waiting) >= MOST_SUBSCRIPTIONS:
            text = f"a client has {MOST_SUBSCRIPTIONS} observers at most"
        elif request.name not in self._rings and len(self._rings) >= MOST_UNWRITTEN:
            text = _TOO_MANY
        if text:
            client.send(Refused(request.request, "ShmjetError", text))
            return
        client.queue(Done(request.request))
        if not self._answer(client, request):
            waiting[request.subscription] = request
            self._by_name.setdefault(request.name, {})[client, request.subscription] = None
        client.flush()

    def leave(self, client: Client, request: LeaveObservable) -> None:
        """Take that a reader wants nothing more."""
        self._forget(client, request.subscription)
        client.send(Done(request.request))

    def configure(self, client: Client, request: ConfigureObservable) -> None:
        """Set how many items an observable keeps, before it is used."""
        ring = self._rings.get(request.name)
        if ring is None and len(self._rings) >= MOST_UNWRITTEN:
            text = _TOO_MANY
        elif request.capacity > MOST_CAPACITY:
            text = f"configure_capacity: {request.capacity} items are more than {MOST_CAPACITY}"
        elif ring is not None and ring.capacity != request.capacity:
            text = (
                f"observable {request.name!r} is in use with a capacity of {ring.capacity} items; call "
                "configure_capacity() once, before the first job and the first observer, or destroy() it before"
            )
        else:
            self._ring(request.name, request.capacity)
            client.send(Done(request.request))
            return
        client.send(Refused(request.request, "ConfigError", text))

    def destroy(self, client: Client, request: DestroyObservable) -> None:
        """Remove an observable."""
        ring = self._rings.pop(request.name, None)
        number = 0 if ring is None else ring.number
        for reader, subscription in self._by_name.pop(request.name, {}):
            self._waiting[reader].pop(subscription, None)
            reader.send(Observed(subscription, 0, number))
        client.send(Done(request.request))

    def client_gone(self, client: Client) -> None:
        """Forget the readers of a client."""
        for subscription in list(self._waiting.get(client, ())):
            self._forget(client, subscription)
        self._waiting.pop(client, None)

    # -- jobs -----------------------------------------------------------------------------------------------------

    def run_begins(self, run: int, names: Iterable[str]) -> None:
        """Take that a run writes to these observables."""
        for name in names:
            self._writers.setdefault(name, set()).add(run)
            if name in self._rings:
                self._rings[name].age_ends()

    def run_ends(
        self, run: int, names: Iterable[str], *, job: str, failure: Failure | None = None, cancelled: bool = False
    ) -> None:
        """Tell the readers of these observables that a run has ended; once for each run.

        Args:
            run: its number, as it has begun.
            names: of the observables.
            job: how the job is called in a text.
            failure: what it failed with.
            cancelled: it was cancelled.
        """
        if failure is not None and failure.exception is not None and len(failure.exception) > _MOST_EXCEPTION:
            failure = msgspec.structs.replace(failure, exception=None)
        for name in names:
            writers = self._writers.get(name, set())
            if run not in writers:
                continue
            writers.discard(run)
            if not writers:
                del self._writers[name]
            self._ring(name).add_end(JobEnd(job, len(writers), None if cancelled else failure, cancelled))
            self._wake(name)

    def clear(self) -> None:
        """Remove all observables: this member is not the keeper any more. Readers ask the next one."""
        self._store = _new_store()
        self._rings.clear()
        self._waiting.clear()
        self._by_name.clear()
        self._writers.clear()

    @property
    def sizes(self) -> Mapping[str, int]:
        """How many readers wait for each observable."""
        return {name: len(readers) for name, readers in self._by_name.items() if readers}

    # -- readers --------------------------------------------------------------------------------------------------

    def _ring(self, name: str, capacity: int = CAPACITY) -> ObservableRing:
        ring = self._rings.get(name)
        if ring is None:
            self._count += 1
            ring = self._rings[name] = ObservableRing(self._count, capacity)
        return ring

    def _wake(self, name: str) -> None:
        """Send all readers that wait what has come."""
        for client, subscription in self._by_name.pop(name, {}):
            request = self._waiting[client].pop(subscription)
            self._answer(client, request)
            client.flush()

    def _answer(self, client: Client, request: ReadObservable) -> bool:
        """Queue what there is for a reader; False when that is nothing. A new reader is told where it begins."""
        ring = self._rings.get(request.name)
        is_known = request.store == self._store
        if is_known and request.ring and (ring is None or ring.number != request.ring):
            client.queue(Observed(request.subscription, 0, request.ring))
            return True
        ring = ring or self._ring(request.name)
        sequence, skip, frames = ring.read(request.sequence if is_known else OLDEST)
        if not frames and is_known:
            return False
        is_written = bool(self._writers.get(request.name))
        client.queue(Observed(request.subscription, self._store, ring.number, sequence, skip, frames, is_written))
        return True

    def _forget(self, client: Client, subscription: int) -> None:
        request = self._waiting.get(client, {}).pop(subscription, None)
        if request is not None:
            readers = self._by_name.get(request.name, {})
            readers.pop((client, subscription), None)
            if not readers:
                self._by_name.pop(request.name, None)


def _new_store() -> int:
    return int.from_bytes(os.urandom(7)) | 1  # 0 stands for none
