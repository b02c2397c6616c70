"""Who leads an execution that runs on several members, as each member's part of it sees that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from shmjet.execution.messages import Failure, Probed

if TYPE_CHECKING:
    from shmjet.cluster.executions import MasterExecution


class Conductor(Protocol):
    """Who leads an execution in which several members take part; told of this member's part of it."""

    def other_addresses(self) -> list[str]:
        """Return where the other members are that take part. On the coordinator only."""

    def probed(self, part: MasterExecution, probed: Probed) -> None:
        """The meta-suppliers have answered; `deploy` comes next. On the coordinator only."""

    def ready(self, part: MasterExecution) -> None:
        """All is ready here; `go` comes next."""

    def failed(self, part: MasterExecution, failure: Failure) -> None:
        """Something has failed here, and all that runs here is being stopped."""

    def ended(self, part: MasterExecution) -> None:
        """No tasklet is left here; `commit`, on the coordinator, or `finish` comes next."""

    def committed(self, part: MasterExecution) -> None:
        """The meta-suppliers have committed; `finish` comes next."""
