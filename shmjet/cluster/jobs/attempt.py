"""The state machine of an attempt, as its coordinator drives it: reports of members go in, orders come out.

The order is Jet's. All members prepare; when all are ready, all start; the first error anywhere cancels all,
everywhere; when all have ended, what has something to commit does so, on every member, and all let go. A member that is
lost has ended, and is an error, unless it had nothing left to do.

Reports and orders of one member keep their order, as they go over one connection; when that breaks, the member counts
as lost for this attempt. So nothing is ever repeated. No clock and no I/O in here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shmjet.cluster.jobs.phase import Phase, Progress
from shmjet.cluster.membership.peer_messages import (
    CancelPart,
    CommitPart,
    FinishPart,
    PartCommitted,
    PartEnded,
    PartFailed,
    PartFinished,
    PartReady,
    StartPart,
)
from shmjet.core import JobStatus
from shmjet.execution.failure import is_loss, without_exception
from shmjet.execution.messages import Failure

Order = StartPart | CancelPart | CommitPart | FinishPart


class Attempt:
    """One execution of a job's plan, on all members that take part.

    Args:
        id: of the attempt, unique in the cluster.
        members: identities of the participating members; `ask` tells each of the attempt.
    """

    def __init__(self, id: int, members: Sequence[str]) -> None:  # noqa: A002
        self.id = id
        self.phase = Phase.PREPARING
        self.failure: Failure | None = None
        self.cancelled = False
        self.may_be_visible = False
        """Whether results may have been made visible: then no other attempt may follow."""
        self.left_off: str | None = None
        """Why it ends with a terminal snapshot; None when it does not."""
        self._members = {uuid: Progress() for uuid in members}
        self._asked: set[str] = set()
        self._orders: list[tuple[str, Order]] = []
        self._started = False

    @property
    def members(self) -> tuple[str, ...]:
        """Who takes part."""
        return tuple(self._members)

    @property
    def status(self) -> JobStatus:
        """What clients are told."""
        if self.phase is Phase.PREPARING or (self.phase is Phase.STOPPING and not self._started):
            return JobStatus.STARTING
        if self.phase in (Phase.FINISHING, Phase.OVER):
            return JobStatus.COMPLETED if self.error is None else JobStatus.FAILED
        return JobStatus.COMPLETING if self.phase is Phase.COMMITTING else JobStatus.RUNNING

    @property
    def error(self) -> str | None:
        """What suppliers are told when they are closed; None when all is well."""
        if self.failure is not None:
            return self.failure.text
        return "the job was cancelled" if self.cancelled else self.left_off

    def take_orders(self) -> list[tuple[str, Order]]:
        """Return what members are to be told, in this order, and forget it."""
        orders, self._orders = self._orders, []
        return orders

    def forget_exception(self) -> None:
        """Keep the text of the failure only."""
        if self.failure is not None:
            self.failure = without_exception(self.failure)

    def ask(self, members: Iterable[str]) -> bool:
        """Take that members hear of the attempt now; False when it is too late for that."""
        if self.phase is not Phase.PREPARING:
            return False
        self._asked.update(members)
        return True

    # -- reports ------------------------------------------------------------------------------------------------

    def report(self, member: str, message: object) -> None:
        """Take what a participant says. It stops by itself when it has failed, and says that it has ended."""
        progress = self._members.get(member)
        if progress is None:
            return
        match message:
            case PartReady():
                progress.ready = True
                self._check_ready()
            case PartFailed():
                self.fail(message.failure)
            case PartEnded():
                progress.ended, progress.commits = True, message.commits
                self._check_ended()
            case PartCommitted():
                progress.commits = False
                if self.phase is Phase.COMMITTING and not any(p.commits for p in self._members.values()):
                    self._finish()
            case PartFinished():
                progress.finished = True
                self._check_over()

    def lost(self, members: Iterable[str], failure: Failure) -> bool:
        """Take that members are gone; returns whether one of them took part and was still needed."""
        concerned = [self._members[uuid] for uuid in members if uuid in self._members]
        needed = any(not progress.ended or progress.commits for progress in concerned)
        for progress in concerned:
            progress.is_out()
        if needed:
            self.fail(failure)
        self._check_ended()
        self._check_over()
        return needed

    def cancel(self) -> None:
        """Ask for the end; without effect once the results are being made visible."""
        if self.phase.is_early:
            self.cancelled = True
            self._stop()

    def fail(self, failure: Failure) -> None:
        """Stop for an error, without effect when no tasklet is left anywhere."""
        if self.phase in (Phase.FINISHING, Phase.OVER):
            return
        if self.failure is None and not self.cancelled:
            self.failure = failure
        self._stop()

    def leave_off(self, why: str) -> None:
        """Take that a terminal snapshot is valid: all tasklets end, and nothing is committed.

        Args:
            why: what suppliers are told when they are closed.
        """
        if self.phase is Phase.RUNNING:
            self.left_off = why

    # -- transitions --------------------------------------------------------------------------------------------

    def _check_ready(self) -> None:
        if self.phase is Phase.PREPARING and all(progress.ready for progress in self._members.values()):
            self.phase = Phase.RUNNING
            self._started = True
            self._tell_unended(StartPart(self.id))

    def _tell_unended(self, order: Order) -> None:
        self._orders += [(uuid, order) for uuid, progress in self._members.items() if not progress.ended]

    def _stop(self) -> None:
        if self.phase.is_early or self.phase is Phase.COMMITTING:
            self.phase = Phase.STOPPING
            for uuid in self._members.keys() - self._asked:
                self._members[uuid].is_out()  # it has never heard of this attempt
            self._tell_unended(CancelPart(self.id, is_loss(self.failure)))
        self._check_ended()

    def _check_ended(self) -> None:
        if not all(progress.ended for progress in self._members.values()):
            return
        if self.phase is Phase.STOPPING:
            self._finish()
        elif self.phase is Phase.RUNNING:
            committing = [uuid for uuid, progress in self._members.items() if progress.commits]
            if committing and self.left_off is None:
                self.phase = Phase.COMMITTING
                self.may_be_visible = True
                self._orders += [(uuid, CommitPart(self.id)) for uuid in committing]
            else:
                self._finish()

    def _finish(self) -> None:
        self.phase = Phase.FINISHING
        order = FinishPart(self.id, self.error)
        self._orders += [(uuid, order) for uuid, progress in self._members.items() if not progress.finished]
        self._check_over()

    def _check_over(self) -> None:
        if self.phase is Phase.FINISHING and all(progress.finished for progress in self._members.values()):
            self.phase = Phase.OVER
