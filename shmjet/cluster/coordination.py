"""One execution on several members, as the coordinator drives it: what they report goes in, orders to them come out.

The order is Jet's. All members prepare; when all are ready, all start; the first error anywhere cancels all,
everywhere; when all have ended, what has something to commit does so, on every member, and all let go. A member that is
lost has ended, and is an error, unless it had nothing left to do.

Reports and orders of one member keep their order, as they go over one connection; when that breaks, the member counts
as lost for this execution. So nothing is ever repeated. No clock and no I/O in here.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shmjet.core import JobStatus
from shmjet.execution.failure import without_exception
from shmjet.execution.messages import Failure


class Order(enum.Enum):
    """What a member is told."""

    START = enum.auto()
    CANCEL = enum.auto()
    COMMIT = enum.auto()
    """To members that have something to commit: suppliers, and on the coordinator meta-suppliers."""
    FINISH = enum.auto()


class Stage(enum.Enum):
    """How far the execution has come."""

    PREPARING = enum.auto()
    RUNNING = enum.auto()
    STOPPING = enum.auto()
    COMMITTING = enum.auto()
    FINISHING = enum.auto()
    OVER = enum.auto()


@dataclass
class _Part:
    ready: bool = False
    ended: bool = False
    commits: bool = False
    finished: bool = False


class Coordination:
    """The state machine of one execution.

    Args:
        members: identities of those that take part, the coordinator's own first; they have been told to prepare.
    """

    def __init__(self, members: Sequence[str]) -> None:
        self.stage = Stage.PREPARING
        self.failure: Failure | None = None
        self.cancelled = False
        self._parts = {uuid: _Part() for uuid in members}
        self._orders: list[tuple[str, Order]] = []
        self._started = False

    @property
    def members(self) -> tuple[str, ...]:
        """Who takes part."""
        return tuple(self._parts)

    @property
    def status(self) -> JobStatus:
        """What clients are told."""
        if self.stage is Stage.PREPARING or (self.stage is Stage.STOPPING and not self._started):
            return JobStatus.STARTING
        if self.stage in (Stage.FINISHING, Stage.OVER):
            return JobStatus.FAILED if self.failure is not None or self.cancelled else JobStatus.COMPLETED
        return JobStatus.COMPLETING if self.stage is Stage.COMMITTING else JobStatus.RUNNING

    @property
    def error(self) -> str | None:
        """What suppliers are told when they are closed; None when all is well."""
        if self.failure is not None:
            return self.failure.text
        return "the job was cancelled" if self.cancelled else None

    def take_orders(self) -> list[tuple[str, Order]]:
        """Return (member, order) pairs and forget them."""
        orders, self._orders = self._orders, []
        return orders

    # -- reports ------------------------------------------------------------------------------------------------

    def ready(self, member: str) -> None:
        """All processors of a member are initialised, and its link is open."""
        if member in self._parts:
            self._parts[member].ready = True
            if self.stage is Stage.PREPARING and all(part.ready for part in self._parts.values()):
                self.stage = Stage.RUNNING
                self._started = True
                self._tell_all(Order.START)

    def forget_exception(self) -> None:
        """Keep the text of the failure only."""
        if self.failure is not None:
            self.failure = without_exception(self.failure)

    def failed(self, member: str, failure: Failure) -> None:
        """Something of a member's part failed; it stops by itself and says `ended` when it has."""
        if member not in self._parts or self.stage in (Stage.FINISHING, Stage.OVER):
            return
        if self.failure is None and not self.cancelled:
            self.failure = failure
        self._stop()

    def ended(self, member: str, commits: bool = False) -> None:
        """No tasklet is left on a member; `commits` says that it has something to commit when all others have ended."""
        if member in self._parts:
            self._parts[member].ended = True
            self._parts[member].commits = commits
            self._check_ended()

    def committed(self, member: str) -> None:
        """A member has committed what it had to."""
        if member in self._parts:
            self._parts[member].commits = False
        if self.stage is Stage.COMMITTING and not any(part.commits for part in self._parts.values()):
            self._finish()

    def finished(self, member: str) -> None:
        """A member has let go of everything."""
        if member in self._parts:
            self._parts[member].finished = True
            self._check_over()

    def lost(self, members: Iterable[str], failure: Failure) -> bool:
        """Take that members are gone; returns whether one of them took part and was still needed."""
        concerned = [self._parts[uuid] for uuid in members if uuid in self._parts]
        needed = any(not part.ended or part.commits for part in concerned)
        for part in concerned:
            part.ready = part.ended = part.finished = True
            part.commits = False
        if needed and self.stage not in (Stage.FINISHING, Stage.OVER):
            if self.failure is None and not self.cancelled:
                self.failure = failure
            self._stop()
        self._check_ended()
        self._check_over()
        return needed

    def cancel(self) -> None:
        """Ask for the end; without effect once the results are being made visible."""
        if self.stage in (Stage.PREPARING, Stage.RUNNING):
            self.cancelled = True
            self._stop()

    # -- transitions --------------------------------------------------------------------------------------------

    def _tell_all(self, order: Order) -> None:
        for uuid, part in self._parts.items():
            if not part.finished and (order is Order.FINISH or not part.ended):
                self._orders.append((uuid, order))

    def _stop(self) -> None:
        if self.stage in (Stage.PREPARING, Stage.RUNNING, Stage.COMMITTING):
            self.stage = Stage.STOPPING
            self._tell_all(Order.CANCEL)
        self._check_ended()

    def _check_ended(self) -> None:
        if not all(part.ended for part in self._parts.values()):
            return
        if self.stage is Stage.STOPPING:
            self._finish()
        elif self.stage is Stage.RUNNING:
            committing = [uuid for uuid, part in self._parts.items() if part.commits]
            if committing:
                self.stage = Stage.COMMITTING
                self._orders += [(uuid, Order.COMMIT) for uuid in committing]
            else:
                self._finish()

    def _finish(self) -> None:
        self.stage = Stage.FINISHING
        self._tell_all(Order.FINISH)
        self._check_over()

    def _check_over(self) -> None:
        if self.stage is Stage.FINISHING and all(part.finished for part in self._parts.values()):
            self.stage = Stage.OVER
