"""A run of a job: what clients see of it, from its start to its one outcome, through however many attempts."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Iterator

import msgspec

from shmjet.cluster.jobs.attempt_history import LASTING_S, FailedAttempts, RestartHistory
from shmjet.cluster.jobs.attempt_snapshots import STOPPED
from shmjet.cluster.jobs.ended_attempt import unbegun
from shmjet.cluster.jobs.lineage import Lineage
from shmjet.cluster.jobs.run_news import RunNews, StatusListener
from shmjet.cluster.jobs.run_parts import (
    BEFORE_RUNNING,
    Coordinator,
    Next,
    RunPolicy,
    RunRequest,
    RunSuspension,
    Told,
    Wish,
)
from shmjet.cluster.jobs.snapshot import SnapshotRequest
from shmjet.cluster.jobs.snapshot_export import EXPORT_WAIT_S, SnapshotExport, settle
from shmjet.cluster.jobs.unexpected import unexpected
from shmjet.cluster.lifecycle_messages import LastRestart, LastSnapshot, SnapshotRow
from shmjet.core import JobStateError, JobStatus
from shmjet.execution.messages import Failure
from shmjet.execution.metrics import Metrics

Attempts = Callable[["JobRun", Told, Told], Coordinator]
"""Makes the next attempt of a run, from what is to be called at each change of its status, and from what is to be
called, with what is kept of it, when nothing is left of it. The number of the first is that of the run."""


class JobRun:
    """One run of a job.

    Args:
        id: unique in the cluster; the first attempt has it, too.
        request: what is run.
        attempts: makes attempts.
        on_status: called with the run at every change of its status.
        on_over: called with the run when nothing of it is left anywhere.
        policy: says what follows a failed attempt, and when.
        attempts_before: that another coordinator has begun.
        started_at: when it was asked for, in seconds since 1970; None: now.
        lineage: its snapshots; None for a job without a guarantee that begins from none.
        make_lineage: makes one of its exports, when there is none. Raises ShmjetError when there is no room.
    """

    def __init__(
        self,
        id: int,  # noqa: A002
        request: RunRequest,
        *,
        attempts: Attempts,
        on_status: Told,
        on_over: Told,
        policy: RunPolicy,
        attempts_before: int = 0,
        started_at: float | None = None,
        lineage: Lineage | None = None,
        make_lineage: Callable[[], Lineage] | None = None,
    ) -> None:
        self.id = id
        self.job = request.job
        self.code = request.code
        self.logs = request.logs
        self.started_at = time.time() if started_at is None else started_at
        self.completed_at: float | None = None
        self.attempt_count = attempts_before
        self.suspension: RunSuspension | None = None
        """Why it is suspended; None while it is not."""
        self.waits_for = ""
        """What its next attempt waits for; empty while there is one, or none is to begin."""
        self.awaits_record = False
        """Whether this is a new run whose record other members do not have yet, as files go before it."""
        self.lineage = lineage
        self._make_lineage = make_lineage
        self._attempts = attempts
        self._on_over = on_over
        self._policy = policy
        self._news = RunNews(lambda: on_status(self))
        self.on_asked: Callable[[], None] = _unasked
        """Called when it was asked to end, or for a suspension or a restart, which may take a while."""
        self._failed = FailedAttempts()
        self._restarts = RestartHistory()
        self._attempt: Coordinator = unbegun(id)
        self._began_at = -math.inf
        self._wish: Wish | None = None
        self._stopping_for_wish = False
        self._exporting = 0
        self._has_cancelled = False
        """Whether the newest attempt was told to end for good; a failed attempt does not take note of it."""
        self._cancelled_between = False
        """Whether it was cancelled while there was no attempt to stop."""
        self._pause_s = 0.0
        """How long the next attempt waits when nothing is left of this one;"""
        self._pause: asyncio.TimerHandle | None = None
        """and what begins it then, while it waits."""
        self._next = Next.END
        self._cause: Failure | None = None

    def _begin(self) -> None:
        self.attempt_count += 1
        self._next = Next.END
        self._pause_s = 0.0
        self._stopping_for_wish = False
        self._began_at = asyncio.get_running_loop().time()
        try:
            self._attempt = self._attempts(self, self._changed, self._ended)
        except Exception as error:
            self._give_up(error)
        else:
            self._attempt.start()

    def _give_up(self, error: Exception) -> None:
        """End for an unexpected error where nothing is left of an attempt, and none can begin."""
        failure = unexpected(error, f"between two attempts of {self.name}")
        self._end_waiting()
        self._next, self._cancelled_between, self.suspension = Next.END, False, None
        self._attempt = msgspec.structs.replace(unbegun(self.id), status=JobStatus.FAILED, failure=failure)
        self._tell()
        self._be_over()

    # -- what clients see ---------------------------------------------------------------------------------------

    @property
    def attempt(self) -> int:
        """The number of the newest attempt."""
        return self._attempt.id

    @property
    def status(self) -> JobStatus:
        """How far it is."""
        if self._cancelled_between:
            return JobStatus.FAILED
        if self.suspension is not None:
            return JobStatus.SUSPENDED_EXPORTING_SNAPSHOT if self._exporting else JobStatus.SUSPENDED
        if self._pause is not None or self.waits_for:
            return JobStatus.NOT_RUNNING
        match self._next:
            case Next.AGAIN:
                return JobStatus.STARTING
            case Next.SUSPEND:
                return JobStatus.RUNNING
        return self._attempt.status

    @property
    def last_snapshot(self) -> LastSnapshot | None:
        """The last valid snapshot that it has taken; None if there is none."""
        return None if self.lineage is None else self.lineage.last

    @property
    def snapshot_waits_for(self) -> list[str]:
        """The vertices for whose end a snapshot of the newest attempt waits."""
        return self._attempt.snapshot_waits_for

    @property
    def failure(self) -> Failure | None:
        """The first error of the newest attempt, unless another attempt follows it."""
        if self._next is not Next.END or self._cancelled_between or self._attempt.failure is None:
            return None
        return self._failed.counted_in(self._attempt.failure)

    @property
    def failed_attempts(self) -> int:
        """How many attempts have failed since the last new snapshot, or since it was resumed."""
        return self._failed.count

    @property
    def last_restart(self) -> LastRestart | None:
        """Why another attempt has begun last, and how long that took."""
        return self._restarts.last

    @property
    def cancelled(self) -> bool:
        """Whether it was asked to end."""
        if self._next is not Next.END:
            return self._cancelled_between
        if self._stopping_for_wish:
            return self._wish is not None and self._wish.then is Next.END and self._attempt.left_off
        return self._attempt.cancelled

    @property
    def is_going_on(self) -> bool:
        """Whether its attempt has ended, or fails, and another follows at once or after a pause."""
        return self._next is Next.AGAIN and not self._cancelled_between

    @property
    def is_to_be_suspended(self) -> bool:
        """Whether it is suspended, or was asked for that and is being stopped."""
        return self.suspension is not None or (self._wish is not None and self._wish.then is Next.SUSPEND)

    @property
    def member_addresses(self) -> list[str]:
        """Where the members are that take part in the newest attempt, the coordinator first."""
        return [peer.address for peer in self._attempt.members]

    @property
    def has_attempt(self) -> bool:
        """Whether something is left of its newest attempt."""
        return not self._attempt.is_over

    def has_begun_within(self, seconds: float) -> bool:
        """Say whether its newest attempt has begun less than so many seconds ago."""
        return asyncio.get_running_loop().time() - self._began_at < seconds

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left anywhere."""
        return self._attempt.is_over and (self._next is Next.END or self._cancelled_between)

    def metrics(self) -> Awaitable[Metrics]:
        """Return the metrics of the newest attempt, on all members."""
        return self._attempt.metrics()

    def own_metrics(self) -> Awaitable[Metrics]:
        """Return those of this member's part alone."""
        return self._attempt.own_metrics()

    def forget_exception(self) -> None:
        """Keep the text of its failure only."""
        self._attempt.forget_exception()

    def add_status_listener(self, listener: StatusListener) -> Callable[[], None]:
        """Have a function called at every change of the status.

        Args:
            listener: called with the old status and the new one.

        Returns:
            what removes it.
        """
        return self._news.add_listener(listener)

    # -- its life -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin with the first attempt."""
        self._news.start()
        self._begin()

    def recorded(self) -> None:
        """Take that the other members have its record, as far as there are any."""
        if self.awaits_record:
            self.awaits_record = False
            self._news.tell_client()

    def go_on(self, why: str) -> None:
        """Begin with a further attempt, as soon as it may begin: the coordinator that has begun the run is lost.

        Args:
            why: this happens, in a line.
        """
        self._news.client_waits()
        self._next = Next.AGAIN
        self._restarts.begins(why, asyncio.get_running_loop().time())
        self._go_on()

    def reconsider(self) -> None:
        """Begin the attempt that waits for something, if it need not wait any more."""
        if self.waits_for:
            self._go_on()

    def start_suspended(self, failure: Failure | None) -> None:
        """Begin with waiting for `resume`: the run is suspended, and its coordinator was started again, or is lost.

        Args:
            failure: the error that suspended it; None when a client asked for it.
        """
        self._news.client_waits()
        self._next, self.suspension = Next.SUSPEND, RunSuspension(failure=failure)
        self._tell()

    def cancel(self) -> None:
        """Ask for the end; `on_status` tells when it has come."""
        self._export_comes_too_late()
        if self._next is Next.END:
            self._wish, self._stopping_for_wish = None, False
            self._has_cancelled = True
            self._attempt.cancel()
            self.on_asked()
        elif not self._cancelled_between:  # the attempt has come to its end, and no other begins
            self._cancelled_between, self._wish = True, None
            nothing_is_left = self._end_waiting() or self.suspension is not None
            self.suspension = None
            self._tell()
            if nothing_is_left:
                self._be_over()

    def suspend(self, cause: Failure | None = None) -> None:
        """Ask that the run stops until `resume`; while it is starting, this waits until it runs.

        A job with a guarantee takes a terminal snapshot first. If that fails, it goes on from the one before it. In
        a pause between two attempts it is suspended at once.

        Args:
            cause: why; None when a client asks for it.

        Raises:
            JobStateError: it neither runs nor starts.
        """
        self._ask_for(Wish(then=Next.SUSPEND, graceful=True, cause=cause), "suspend")

    def restart(self, *, graceful: bool = True, reason: str = "a client has asked for it") -> None:
        """Ask that the attempt ends and another one begins; while it is starting, this waits until it runs.

        It ends a pause between two attempts.

        Args:
            graceful: take a terminal snapshot first, if the job has a guarantee.
            reason: why, in a line.

        Raises:
            JobStateError: it neither runs nor starts, or is being suspended.
        """
        self._ask_for(Wish(then=Next.AGAIN, graceful=graceful, reason=reason), "restart")

    def resume(self) -> None:
        """Begin another attempt of a suspended run.

        Raises:
            JobStateError: it is not suspended.
        """
        if self.status is not JobStatus.SUSPENDED:
            raise JobStateError(f"{self.name} is {self.status.name}; only a suspended job can be resumed")
        self.suspension = None
        self._failed.forget()
        self._next = Next.AGAIN
        self._tell()
        self._go_on()

    # -- exports ------------------------------------------------------------------------------------------------

    async def export_snapshot(self, name: str, *, cancel: bool = False, token: str = "") -> SnapshotRow:
        """Give a snapshot of the state a name; see `SnapshotExport`, which also has the errors.

        Args:
            name: a checked name; an older snapshot of that name is replaced.
            cancel: end the run with this snapshot, and wait for that.
            token: of the request, by which it is recognised when it comes again.

        Returns:
            what the snapshot holds.
        """
        if self.lineage is None and self._make_lineage is not None and not self.status.is_terminal:
            self.lineage = self._make_lineage()
            self.on_asked()
        if self.lineage is None:
            raise JobStateError(f"{self.name} is {self.state}; cannot export a snapshot of it")
        return await SnapshotExport(self, self.lineage, name, token).make(cancel=cancel)

    async def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait for changes until a condition holds, at most so many seconds; return whether it holds."""
        return await self._news.until(condition, seconds)

    async def until_ended(self) -> bool:
        """Wait for the end of the run, for `EXPORT_WAIT_S`; say whether it has come."""
        return await self._news.until(lambda: self.status.is_terminal, EXPORT_WAIT_S)

    def take_snapshot(self, request: SnapshotRequest, done: Callable[[str | None], None]) -> None:
        """Have a snapshot of the attempt taken, which runs.

        Args:
            request: what is asked for.
            done: called with what went wrong, None when it is valid.
        """
        assert self.lineage is not None
        self._attempt.take_snapshot(request, self.lineage, done)

    def end_with_snapshot(self, name: str, token: str) -> Awaitable[str | None]:
        """Ask that the run ends with an exported snapshot, as soon as it runs.

        Args:
            name: under which it is exported.
            token: of the request.

        Returns:
            what becomes what went wrong, None when it is exported.

        Raises:
            JobStateError: it neither runs nor starts, or is being cancelled.
        """
        outcome: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        wish = Wish(then=Next.END, graceful=True, name=name, token=token, exported=outcome)
        self._ask_for(wish, "export a snapshot of")
        return outcome

    @contextlib.contextmanager
    def exporting(self) -> Iterator[None]:
        """Show, as long as this lasts, that the last snapshot of the suspended run is being given a name."""
        self._exporting += 1
        self._tell()
        try:
            yield
        finally:
            self._exporting -= 1
            self._tell()

    @property
    def is_being_stopped(self) -> bool:
        """Whether its attempt is being stopped for what a client has asked, or has come to its end."""
        return self._stopping_for_wish or self._next is not Next.END

    @property
    def is_stopped_for_restart(self) -> bool:
        """Whether its attempt is being stopped so that another one begins."""
        is_stopping = self._stopping_for_wish and self._next is Next.END and not self.is_ending
        return is_stopping and self._wish is not None and self._wish.then is Next.AGAIN

    @property
    def will_run(self) -> bool:
        """Whether an attempt starts, or another one or a suspension follows this one, without anyone doing more."""
        if self.suspension is not None or self.status.is_terminal or self.is_ending:
            return False
        follows = self._stopping_for_wish and self._wish is not None and self._wish.then is not Next.END
        fails = self._attempt.failure is not None
        return self.status in BEFORE_RUNNING or self._next is not Next.END or follows or fails

    def _ask_for(self, wish: Wish, verb: str) -> None:
        if self.status not in (*BEFORE_RUNNING, JobStatus.RUNNING) or self.is_ending:
            raise JobStateError(f"{self.name} is {self.state}; cannot {verb} it")
        if self._wish is not None and self._wish.exported is not None:
            raise JobStateError(f"{self.name} is being cancelled; cannot {verb} it")
        is_to_be_suspended = self.is_to_be_suspended or self._next is Next.SUSPEND
        if wish.then is Next.AGAIN and is_to_be_suspended:
            raise JobStateError(f"{self.name} is being suspended; cannot {verb} it")
        if not (wish.then is Next.SUSPEND and is_to_be_suspended):
            self._wish = wish
        self.on_asked()
        self._grant()

    @property
    def state(self) -> str:
        """How far it is, in the words of an error."""
        if self.status.is_terminal or not self.cancelled:
            return self.status.name
        return "being cancelled"

    @property
    def is_ending(self) -> bool:
        """Whether it was cancelled, or has failed and its attempt is being stopped."""
        if self._next is not Next.END:
            return False
        return self.cancelled or (self._attempt.failure is not None and not self._attempt.may_be_followed)

    @property
    def name(self) -> str:
        """How its job is called in messages."""
        return f"job {self.job.name or self.job.job_id!r}"

    def _grant(self) -> None:
        """Stop a running attempt, or end a pause, for what a client has asked for."""
        wish, attempt = self._wish, self._attempt
        if wish is not None and wish.exported is None and self._end_waiting():
            self._follow()
            return
        if wish is None or attempt.status is not JobStatus.RUNNING:
            return
        lineage = self.lineage
        saves = wish.graceful and lineage is not None and (lineage.takes_snapshots or wish.exported is not None)
        if wish.then is Next.AGAIN and not self._stopping_for_wish:
            self._restarts.begins(wish.reason, asyncio.get_running_loop().time())
        if lineage is None or not saves:
            self._stopping_for_wish = True
            attempt.cancel()
        elif not self._stopping_for_wish:
            self._stopping_for_wish = True
            request = SnapshotRequest(terminal=True, name=wish.name, token=wish.token)
            attempt.take_snapshot(request, lineage, lambda error: self._left_off(attempt, wish, error))

    def _left_off(self, attempt: Coordinator, wish: Wish, error: str | None) -> None:
        """Take how the terminal snapshot has ended; without it the next attempt goes on from the one before."""
        if wish.exported is not None:  # also when the run was cancelled meanwhile: a client waits for it
            settle(wish.exported, error)
        if attempt is not self._attempt or self._wish is None or not self._stopping_for_wish:
            return
        if wish.exported is not None:
            if error is not None:
                self._wish, self._stopping_for_wish = None, False
                self._news.wake()
        elif error is not None and attempt.status is JobStatus.RUNNING:
            attempt.cancel()

    def _changed(self, attempt: Coordinator) -> None:
        if attempt.status is JobStatus.FAILED:
            try:
                self._next = self._what_follows(attempt)
            except Exception as error:
                unexpected(error, f"before another attempt of {self.name}, which fails")
            if self._next is Next.AGAIN and attempt.failure is not None:
                self._restarts.begins(
                    f"{attempt.failure.type_name}: {attempt.failure.text}".split("\n", 1)[0],
                    asyncio.get_running_loop().time(),
                )
        elif attempt.status is JobStatus.RUNNING and self._restarts.is_under_way and not self._stopping_for_wish:
            self._restarts.ends(asyncio.get_running_loop().time())
        self._tell()
        if attempt is self._attempt and attempt.status is JobStatus.RUNNING:
            self._grant()

    def _what_follows(self, attempt: Coordinator) -> Next:
        failure, wish = attempt.failure, self._wish
        if wish is not None and self._stopping_for_wish and (attempt.left_off or failure is None):
            return wish.then
        if failure is None or self._has_cancelled or not attempt.may_be_followed:
            return Next.END
        self._failed.add(self.last_snapshot, has_lasted=self._has_lasted)
        self._pause_s = self._policy.pause_before_next(self.failed_attempts)
        follows = self._policy.after_failure(self, failure)
        if follows is not Next.AGAIN:
            self._failed.give_up()
        self._cause = self._failed.counted_in(failure) if follows is Next.SUSPEND else None
        return follows

    @property
    def _has_lasted(self) -> bool:
        """Whether the attempt of a job that takes no snapshots has lasted for `LASTING_S`."""
        takes_snapshots = self.lineage is not None and self.lineage.takes_snapshots
        return not takes_snapshots and asyncio.get_running_loop().time() - self._began_at >= LASTING_S

    def _tell(self) -> None:
        status = self.status
        is_over = status.is_terminal
        self._news.tell_listeners(status)
        if is_over:
            self.completed_at = time.time()
        self._news.tell(is_over=is_over)
        if is_over:
            self._export_comes_too_late()

    def _export_comes_too_late(self) -> None:
        """Tell a client that waits for its export, for which no attempt is being stopped yet, that none will come."""
        waits = not self._stopping_for_wish or self._next is not Next.END
        if self._wish is not None and self._wish.exported is not None and waits:
            settle(self._wish.exported, STOPPED)

    def _ended(self, kept: Coordinator) -> None:
        self._attempt = kept
        if self._cancelled_between or self._next is Next.END:
            self._be_over()
        else:
            try:
                self._follow()
            except Exception as error:
                self._give_up(error)

    def _follow(self) -> None:
        """Do what follows an attempt of which nothing is left."""
        is_asked_for = self._wish is not None and self._wish.exported is None
        if self._next is Next.SUSPEND or (self._wish is not None and self._wish.then is Next.SUSPEND):
            self._export_comes_too_late()
            cause = self._cause or (None if self._wish is None else self._wish.cause)
            self._next, self._wish, self._stopping_for_wish = Next.SUSPEND, None, False
            self.suspension, self._cause = RunSuspension(failure=cause), None
            self._tell()
        elif self._pause_s and not is_asked_for:
            self._pause = asyncio.get_running_loop().call_later(self._pause_s, self._pause_is_over)
            self._tell()
        else:
            self._go_on()

    def _end_waiting(self) -> bool:
        """End the pause between two attempts, or what the next one waits for; say whether there was such a thing."""
        has_waited = self._pause is not None or bool(self.waits_for)
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        self.waits_for = ""
        return has_waited

    def _pause_is_over(self) -> None:
        self._pause = None
        self._go_on()

    def _be_over(self) -> None:
        """Tell that nothing of it is left, and let go of all who were to hear of it: it is remembered for long."""
        if self.completed_at is None:  # an unexpected error has come before
            self._tell()
        on_over = self._on_over
        self._on_over = _nothing
        self._news.close()
        on_over(self)

    def _go_on(self) -> None:
        if self._wish is not None and (self._wish.exported is None or self._wish.exported.done()):
            self._wish = None  # another attempt was all that was asked for; an export waits until that runs
        try:
            self.waits_for = self._policy.waits_for(self)
        except Exception as error:
            self._give_up(error)
            return
        if self.status is not self._news.last:
            self._tell()
        if not self.waits_for:
            self._begin()


def _unasked() -> None:
    """Stand for what is called when something is asked of a run."""


def _nothing(_: JobRun) -> None:
    """Stand for what is called when the run changes: it does not change any more."""
