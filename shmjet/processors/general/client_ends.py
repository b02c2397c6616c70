"""What a client holds open for executions under way, where the processors of some sinks find it.

Sinks that work together with the client (`collect`, `shmjet.spark.sink`) have an address that travels with them. Their
`on_client` opens the client's end there when an execution begins; it is ended with the execution. Must not know what
ends do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol

from shmjet.data.errors import ShmjetError


class Ties(Protocol):
    """What `on_client` gets of the instance, with the execution that begins."""

    def open_list(self, name: str) -> Any:
        """Return a list of the cluster, None when no part of it is on other hosts: a way for results."""

    def open_bell(self, name: str, told: Callable[[], None]) -> Any:
        """Return what processors ring through an observable; `told` is called then, and must return at once."""


class ClientEnd(Protocol):
    """What is open at an address."""

    def end(self) -> None:
        """Let go of the address; the execution has ended."""


class ClientEnds:
    """The ends of this process for one kind of sink, by address: copies of a sink have the same address.

    Args:
        sink: names the kind in errors, such as "collect()".
    """

    def __init__(self, sink: str) -> None:
        self._sink = sink
        self._lock = threading.Lock()
        self._holders: dict[str, _AddressHolder] = {}

    def open(self, address: str, execution: Future[None], opening: Callable[[], ClientEnd]) -> None:
        """Open the end for an execution, unless that is open already; it is ended when the execution is done.

        Args:
            address: of the sink.
            execution: which begins.
            opening: returns the end; called when that of the execution before has been ended.

        Raises:
            ShmjetError: the execution before is still running.
        """
        holder = _AddressHolder(execution)
        with self._lock:
            before = self._holders.get(address)
            if before is not None and before.execution is execution:
                return  # it is the sink of two vertices
            if before is not None and not before.execution.done():
                raise ShmjetError(
                    f"{self._sink}: the execution before is still running; wait for its end, or use a "
                    f"{self._sink} for each"
                )
            self._holders[address] = holder
        try:
            if before is not None:
                before.end()  # who waits for a future goes on before its callbacks have been called
            holder.open(opening)
        except BaseException:
            self._leave(address, execution)
            raise
        execution.add_done_callback(partial(self._leave, address))

    def _leave(self, address: str, execution: Future[None]) -> None:
        with self._lock:
            holder = self._holders.get(address)
        if holder is not None and holder.execution is execution:
            holder.end()  # it stays known meanwhile, so that the next execution waits for the address
            with self._lock:
                if self._holders.get(address) is holder:
                    del self._holders[address]


class _AddressHolder:
    """One execution's end, from before it is opened."""

    def __init__(self, execution: Future[None]) -> None:
        self.execution = execution
        self._lock = threading.Lock()
        self._end: ClientEnd | None = None

    def open(self, opening: Callable[[], ClientEnd]) -> None:
        with self._lock:
            self._end = opening()

    def end(self) -> None:
        """End it once; a second caller waits until that is done."""
        with self._lock:
            end, self._end = self._end, None
            if end is not None:
                end.end()
