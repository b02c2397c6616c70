"""The clients that are told of runs: of changes of their status, and what their processors log."""

from __future__ import annotations

from shmjet.cluster.jobs.run_parts import Running
from shmjet.cluster.jobs.suspension import cause_of
from shmjet.cluster.jobs.unexpected import unexpected
from shmjet.cluster.protocol import ExecutionChanged, Logged
from shmjet.cluster.requests.client_connections import Client


class RunWatchers:
    """See the module."""

    def __init__(self) -> None:
        self._watchers: dict[int, set[Client]] = {}
        self._readers: dict[int, set[Client]] = {}
        """The clients that want the log records of a run."""

    def watch(self, client: Client, number: int, *, logs: bool) -> None:
        """Tell a client of a run from now on; with `logs` also what its processors log."""
        self._watchers.setdefault(number, set()).add(client)
        if logs:
            self._readers.setdefault(number, set()).add(client)

    def tell(self, run: Running) -> None:
        """Tell all clients that watch a run how it stands."""
        news = news_of(run)
        for client in list(self._watchers.get(run.id, ())):
            try:
                client.send(news)
            except Exception as error:
                unexpected(error, f"while a client was told of job {run.job.label}")

    def logged(self, number: int, member: str, records: list[bytes], dropped: int) -> None:
        """Pass log records of a run's processors on to the clients that want them."""
        for client in self._readers.get(number, ()):
            client.send_if_read(Logged(number, member, records, dropped))

    def client_gone(self, client: Client) -> None:
        """Tell a client nothing any more; what it has started goes on."""
        for told in (*self._watchers.values(), *self._readers.values()):
            told.discard(client)

    def forget(self, number: int) -> None:
        """Tell no client of a run any more."""
        self._watchers.pop(number, None)
        self._readers.pop(number, None)

    def tell_nobody(self) -> None:
        """Tell clients nothing any more: they ask another member."""
        self._watchers.clear()
        self._readers.clear()


def news_of(run: Running) -> ExecutionChanged:
    """Return how a run stands, as its client is told of it."""
    return ExecutionChanged(run.id, run.status.value, cancelled=run.cancelled, failure=run.failure, cause=cause_of(run))
