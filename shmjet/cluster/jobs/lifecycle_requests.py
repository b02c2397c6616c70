"""The answers to requests that stop a run for a while, let it go on, or begin another attempt.

Knows not how a run does that.
"""

from __future__ import annotations

from collections.abc import Callable

from shmjet.cluster.jobs.run_parts import Running
from shmjet.cluster.lifecycle_messages import RestartExecution, ResumeExecution, SuspendExecution
from shmjet.cluster.protocol import Done, Refused
from shmjet.cluster.requests.client_connections import Client
from shmjet.core import JobStateError


class LifecycleRequests:
    """See the module.

    Args:
        run: gives the run of a number, None if there is none.
    """

    def __init__(self, run: Callable[[int], Running | None]) -> None:
        self._run = run

    def suspend(self, client: Client, request: SuspendExecution) -> None:
        """Ask a run to stop until it is resumed."""
        self._ask(client, request, lambda run: run.suspend(), repeated=request.again)

    def resume(self, client: Client, request: ResumeExecution) -> None:
        """Ask a suspended run to go on."""
        self._ask(client, request, lambda run: run.resume(), repeated=request.again)

    def restart(self, client: Client, request: RestartExecution) -> None:
        """Ask a run for another attempt, unless one has begun since this was asked first."""

        def ask(run: Running) -> None:
            if not run.has_begun_within(request.age):
                run.restart(graceful=request.graceful)

        self._ask(client, request, ask)

    def _ask(
        self,
        client: Client,
        request: SuspendExecution | ResumeExecution | RestartExecution,
        what: Callable[[Running], None],
        *,
        repeated: bool = False,
    ) -> None:
        try:
            run = known(self._run, request.execution_id)
            try:
                what(run)
            except JobStateError:
                if not repeated or run.status.is_terminal:  # else the first time has brought it where it is
                    raise
        except JobStateError as error:
            client.send(Refused(request.request, "JobStateError", str(error)))
        else:
            client.send(Done(request.request))


def known(run_of: Callable[[int], Running | None], number: int) -> Running:
    """Return the run of a number.

    Raises:
        JobStateError: there is none any more.
    """
    run = run_of(number)
    if run is None:
        raise JobStateError(f"execution {number} has ended, and the cluster does not know it any more")
    return run
