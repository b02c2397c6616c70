"""What sources and sinks that work together with the client use of its instance, from before a run starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shmjet.cluster.client.observable import Bell, Observers
from shmjet.cluster.settings import SOCKET_NAME

if TYPE_CHECKING:
    from shmjet.cluster.client.backend import Backend
    from shmjet.cluster.client.grid_access import GridAccess
    from shmjet.cluster.client.known_run import KnownRun


class InstanceTies:
    """The ties of one instance: to the member's socket, its lists and its observables.

    Args:
        backend: the member, or the way to it.
        maps: of the instance.
        observers: of the instance.
    """

    def __init__(self, backend: Backend, maps: GridAccess, observers: Observers) -> None:
        self.backend = backend
        self.maps = maps
        self.observers = observers

    def of(self, run: KnownRun) -> ClientTies:
        """Return the ties for one run."""
        return ClientTies(self, run)


class ClientTies:
    """The ties for one run; see `shmjet.processors.general.client_ends.Ties`."""

    def __init__(self, instance: InstanceTies, run: KnownRun) -> None:
        self._instance = instance
        self._run = run

    @property
    def member_socket(self) -> str:
        """Path of the socket of the member that runs it. Raises ShmjetError where this process has no member."""
        return str(self._instance.backend.own_folder() / SOCKET_NAME)

    def wait_for_id(self) -> int:
        """Return the run's number as soon as the member has given one; 0 when it ended without."""
        return self._run.wait_for_id()

    def open_list(self, name: str) -> Any:
        """Return a list of the cluster, None when no part of it is on other hosts: a way for results."""
        return self._instance.maps.open().get_list(name) if self._instance.backend.is_networked else None

    def open_bell(self, name: str, told: Callable[[], None]) -> Bell:
        """Return what processors ring through an observable; `told` is called then, and must return at once."""
        return Bell(self._instance.observers, name, told)
