"""The state machine of one member's part of an attempt.

What its processes report and what the coordinator orders go in; what processes are told, and the coordinator, come out.
Every process makes and initialises its processors; when all are ready the coordinator hears of it, and says when to
start; the first failure stops all processes here; the part has ended when no tasklet is left in any of them. No clock
and no I/O in here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shmjet.cluster.jobs.phase import Phase, Progress
from shmjet.cluster.membership.peer_messages import PartCommitted, PartEnded, PartFailed, PartProbed, PartReady
from shmjet.core import JobStatus
from shmjet.execution.failure import is_loss, without_exception
from shmjet.execution.messages import Cancel, Commit, Failure, Finish, Probed, Start

_DONE = (Phase.ENDED, Phase.COMMITTING, Phase.FINISHING, Phase.OVER)
_LAST = (Phase.FINISHING, Phase.OVER)

Command = Start | Cancel | Commit | Finish
Report = PartProbed | PartReady | PartFailed | PartEnded | PartCommitted


class Part:
    """One member's part. Processes are known by their endpoints.

    Args:
        attempt: its id.
    """

    def __init__(self, attempt: int) -> None:
        self.phase = Phase.PROBING
        self.failure: Failure | None = None
        self.cancelled = False
        self.started = False
        self.entered: list[Phase] = []
        """The phases since STOPPING that it has come to; who carries them out takes them away."""
        self.commands: list[tuple[int, Command]] = []
        """What processes are to be told; who tells them takes them away."""
        self.reports: list[Report] = []
        """What the coordinator is to be told; who tells it takes them away."""
        self._attempt = attempt
        self._processes: dict[int, Progress] = {}
        self._is_linked = True
        self._processors: list[int] = []
        self._said_ready = False
        self._error: str | None = None
        self._orphaned: str | None = None

    @property
    def status(self) -> JobStatus:
        """How far this part is, in a client's words."""
        if self.phase in _LAST:
            return JobStatus.COMPLETED if self._error is None else JobStatus.FAILED
        if not self.started:
            return JobStatus.STARTING
        return JobStatus.COMPLETING if self.phase is Phase.COMMITTING else JobStatus.RUNNING

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to stop, or has failed."""
        return self.cancelled or self.failure is not None

    @property
    def awaits_ready(self) -> bool:
        """Whether processors are being made."""
        return self.phase is Phase.PREPARING and not self._said_ready

    def unended(self) -> list[int]:
        """Return the processes with tasklets."""
        return [endpoint for endpoint, process in self._processes.items() if not process.ended]

    def unfinished(self) -> list[int]:
        """Return the processes that have not let go."""
        return [endpoint for endpoint, process in self._processes.items() if not process.finished]

    def forget_exception(self) -> None:
        """Keep the text of the failure only."""
        if self.failure is not None:
            self.failure = without_exception(self.failure)

    # -- beginning ----------------------------------------------------------------------------------------------

    def probe(self, endpoint: int) -> None:
        """Take that a process is asked about the suppliers."""
        self._processes[endpoint] = Progress()

    def prepare(self, endpoints: Iterable[int], *, linked: bool, processors: Sequence[int] = ()) -> None:
        """Note that processes make their processors; a process that only answered the probe has none.

        Args:
            endpoints: of the processes.
            linked: whether no link to other members has to be opened first.
            processors: how many each vertex has here.
        """
        self.phase = Phase.PREPARING
        self._processors = list(processors)
        self._is_linked = linked
        for process in self._processes.values():
            process.ready = process.ended = True
        for endpoint in endpoints:
            known = self._processes.get(endpoint)
            self._processes[endpoint] = Progress(commits=known is not None and known.commits)

    def link_opened(self) -> None:
        """Take that lanes to and from other members are open."""
        self._is_linked = True
        self._check_ready()
        self._check_ended()

    def refuse(self, failure: Failure, endpoints: Iterable[int]) -> None:
        """Take that there can be no part here; its processes, as far as there are any, have not been told of it."""
        for endpoint in endpoints:
            self._processes.setdefault(endpoint, Progress()).is_out()
        self._fail(failure)
        self._check_ended()

    # -- reports of processes -----------------------------------------------------------------------------------

    def probed(self, endpoint: int, probed: Probed) -> None:
        """Take what a process has found out about the suppliers."""
        process = self._processes[endpoint]
        process.ended, process.commits = True, probed.commits
        if self.is_stopping:
            self._check_ended()
        else:
            self.reports.append(PartProbed(self._attempt, probed))

    def ready(self, *endpoints: int) -> None:
        """Take that the processors of processes are made."""
        for endpoint in endpoints:
            self._processes[endpoint].ready = True
        self._check_ready()

    def failed(self, endpoint: int, failure: Failure) -> None:
        """Take an error of a process; it stops by itself, and says when it has ended."""
        if self.phase is Phase.PROBING:
            self._processes[endpoint].ended = True
        for process in self._processes.values():
            process.commits = False
        self._fail(failure)
        self._check_ended()

    def ended(self, endpoint: int, *, adopted: int, finished: bool, commits: bool) -> None:
        """Take that no tasklet is left in a process, unless one was on its way when it said so.

        Args:
            endpoint: of the process.
            adopted: tasklets that it has been handed over, as far as it knows.
            finished: whether it has let go of everything.
            commits: whether it has something to commit.
        """
        process = self._processes[endpoint]
        if adopted == process.adopted:
            process.ready = process.ended = True
            process.finished = finished
            process.commits = process.commits or commits
            self._check_ready()
            self._check_ended()

    def adopts(self, endpoint: int, *, is_new: bool) -> None:
        """Take that a process is given a tasklet of another; what stops already stops it as well.

        Args:
            endpoint: of the process that gets it.
            is_new: whether it has not taken part so far.
        """
        if is_new:
            self._processes[endpoint] = Progress(ready=True)
        process = self._processes[endpoint]
        process.ended = False
        process.adopted += 1
        if self.is_stopping:  # this process has not been told, or has ended its part
            self.commands.append((endpoint, Cancel(self._attempt)))

    def committed(self, endpoint: int) -> None:
        """Take that a process has committed what it had to."""
        self._processes[endpoint].commits = False
        self._check_committed()

    def finished(self, endpoint: int) -> None:
        """Take that a process has let go of everything."""
        self._processes[endpoint].finished = True
        self._check_over()

    def needs(self, endpoint: int) -> bool:
        """Say whether the death of a process would be an error."""
        process = self._processes[endpoint]
        return (not process.ended or process.commits) and self.phase not in _LAST

    def lost(self, endpoint: int, failure: Failure | None) -> None:
        """Take the death of a process.

        Args:
            endpoint: of the process.
            failure: describes it, where the process was needed.
        """
        self._processes[endpoint].is_out()
        if failure is not None:
            self._fail(failure)
        self._check_ended()
        self._check_over()

    def break_off(self, failure: Failure) -> None:
        """Stop, for something that happened outside of the processes."""
        if self.phase not in _DONE:
            self._fail(failure)
            self._check_ended()

    # -- orders of the coordinator ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start: all members are ready."""
        if self.phase is Phase.PREPARING and not self.is_stopping:
            self.phase = Phase.RUNNING
            self.started = True
            self.entered.append(Phase.RUNNING)
            self.commands += [(endpoint, Start(self._attempt)) for endpoint in self.unended()]

    def cancel(self, *, is_lossy: bool = False) -> None:
        """Stop.

        Args:
            is_lossy: because a process is lost.
        """
        if self.phase not in _DONE:
            self.cancelled = True
            self._stop(is_lossy)
            self._check_ended()

    def commit(self) -> None:
        """Commit: all have ended well everywhere."""
        if self.phase is Phase.ENDED:
            self.phase = Phase.COMMITTING
            self.commands += [(e, Commit(self._attempt)) for e, process in self._processes.items() if process.commits]
            self._check_committed()

    def finish(self, error: str | None, *, is_followed: bool = False) -> None:
        """Let go: no tasklet is left anywhere.

        Args:
            error: what suppliers are told, None when all is well.
            is_followed: by another attempt, for which services stay open.
        """
        if self.phase in _LAST:
            return
        self.phase = Phase.FINISHING
        self._error = error
        self.entered.append(Phase.FINISHING)
        self.commands += [(endpoint, Finish(self._attempt, error, is_followed)) for endpoint in self.unfinished()]
        self._check_over()

    def orphan(self, why: str) -> None:
        """Stop and let go: no coordinator leads this part any more."""
        if self._orphaned is not None:
            return
        self._orphaned = why
        if self.phase in _DONE:
            self.finish(why)
        else:
            self.cancel()

    # -- transitions --------------------------------------------------------------------------------------------

    def _check_ready(self) -> None:
        if (
            self.awaits_ready
            and not self.is_stopping
            and self._is_linked
            and all(process.ready for process in self._processes.values())
        ):
            self._said_ready = True
            self.reports.append(PartReady(self._attempt, self._processors))

    def _fail(self, failure: Failure) -> None:
        if not self.is_stopping:
            self.failure = failure
        self._stop(is_loss(failure))
        self.reports.append(PartFailed(self._attempt, failure))

    def _stop(self, is_lossy: bool) -> None:
        if self.phase.is_early:
            self.phase = Phase.STOPPING
            self.entered.append(Phase.STOPPING)
            self.commands += [(endpoint, Cancel(self._attempt, is_lossy)) for endpoint in self.unended()]

    def _check_ended(self) -> None:
        if self.phase in _DONE or not all(process.ended for process in self._processes.values()):
            return
        if self.phase is Phase.PROBING or (self.phase is Phase.PREPARING and not self._said_ready):
            return
        self.phase = Phase.ENDED
        self.entered.append(Phase.ENDED)
        if self._orphaned is not None:
            self.finish(self._orphaned)
        else:
            commits = not self.is_stopping and any(process.commits for process in self._processes.values())
            self.reports.append(PartEnded(self._attempt, commits))

    def _check_committed(self) -> None:
        if self.phase is not Phase.COMMITTING or self.failure is not None:
            return
        if not any(process.commits for process in self._processes.values()):
            self.reports.append(PartCommitted(self._attempt))

    def _check_over(self) -> None:
        if self.phase is Phase.FINISHING and all(process.finished for process in self._processes.values()):
            self.phase = Phase.OVER
            self.entered.append(Phase.OVER)
