"""What a client asks of an execution that a member runs: its end, a stop, another attempt, a snapshot, its metrics."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol

from shmjet.cluster.client.snapshot import Snapshot
from shmjet.cluster.lifecycle_messages import (
    DestroySnapshot,
    ExportSnapshot,
    ListSnapshots,
    RestartExecution,
    ResumeExecution,
    SuspendExecution,
)
from shmjet.cluster.protocol import CancelExecution, GetMetrics
from shmjet.execution.metrics import Metrics


class Ask(Protocol):
    """Sends a request and returns its reply; see `shmjet.cluster.client.connection.Connection.ask`."""

    def __call__(self, make: Callable[[int], Any], timeout: float | None = None) -> Any: ...


class ExecutionControl:
    """The requests of one instance about executions, by their numbers.

    Each raises MemberLostError when the member is gone, and what the coordinator refuses: JobStateError.

    Args:
        ask: sends a request.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def cancel(self, execution_id: int) -> None:
        """Ask for its end."""
        self._ask(lambda number: CancelExecution(number, execution_id))

    def suspend(self, execution_id: int) -> None:
        """Ask that it stops until it is resumed."""
        self._ask(lambda number: SuspendExecution(number, execution_id))

    def resume(self, execution_id: int) -> None:
        """Ask that it goes on."""
        self._ask(lambda number: ResumeExecution(number, execution_id))

    def restart(self, execution_id: int, *, graceful: bool) -> None:
        """Ask for another attempt, after a terminal snapshot if `graceful`."""
        self._ask(lambda number: RestartExecution(number, execution_id, graceful))

    def export_snapshot(self, execution_id: int, name: str, timeout: float | None, *, cancel: bool) -> Snapshot:
        """Have its state saved under a name, and wait for that.

        Args:
            execution_id: of the execution.
            name: of the snapshot; an older one of that name is replaced.
            timeout: seconds; when they are over the export goes on.
            cancel: let it end with that snapshot.

        Raises:
            TimeoutError: `timeout` is over.
        """
        token = os.urandom(8).hex()
        try:
            reply = self._ask(lambda number: ExportSnapshot(number, execution_id, name, cancel, token), timeout)
        except TimeoutError:
            text = f"snapshot {name!r} has not been saved within {timeout:g} s; the export goes on"
            raise TimeoutError(text) from None
        return Snapshot(reply.snapshot, self.destroy_snapshot)

    def snapshots(self) -> list[Snapshot]:
        """Return the exported snapshots, the oldest first."""
        return [Snapshot(row, self.destroy_snapshot) for row in self._ask(ListSnapshots).snapshots]

    def destroy_snapshot(self, name: str) -> None:
        """Remove an exported snapshot."""
        self._ask(lambda number: DestroySnapshot(number, name))

    def metrics(self, execution_id: int) -> Metrics:
        """Return its metrics."""
        metrics: Metrics = self._ask(lambda number: GetMetrics(number, execution_id)).metrics
        return metrics
