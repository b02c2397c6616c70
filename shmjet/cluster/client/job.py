"""A job as a client sees it: what to run, and its latest execution."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, Protocol

from shmjet.cluster.client.execution import Execution
from shmjet.cluster.client.execution_control import ExecutionControl
from shmjet.cluster.client.job_description import JobDescription, job_again, pickled
from shmjet.cluster.client.job_record import JobRecord
from shmjet.cluster.client.snapshot import Snapshot
from shmjet.cluster.lifecycle_messages import SuspensionCause
from shmjet.core import JobConfig, JobStateError, JobStatus, ShmjetError
from shmjet.core.checks import check_snapshot_name
from shmjet.execution.metrics import NO_METRICS, Metrics
from shmjet.host.bounded_call import NoAnswerError, call_within

if TYPE_CHECKING:
    from shmjet.observe.event_time import JobTime

PROGRESS_VARIABLE = "SHMJET_PROGRESS"
"""The environment variable that makes every `Job.run` show its progress."""


class JobRunner(Protocol):
    """What a job needs of its instance."""

    @property
    def key(self) -> str: ...

    @property
    def control(self) -> ExecutionControl: ...

    def execute(self, record: JobRecord, *, patient: bool, timeout: float | None = None) -> Execution: ...


class Job:
    """What to run and how: made by `new_job`; runs when it is executed, as often as wanted.

    Attributes speak of the latest execution. A pickle of it holds what to run and how, and none of its executions:
    where its instance is open it becomes another job of that one, elsewhere a `JobDescription` for `new_job`.

    Example:
        >>> with shmjet.new_instance() as jet:               # doctest: +SKIP
        ...     jet.new_job(dag, JobConfig(name="primes")).run()
    """

    def __init__(self, record: JobRecord, runner: JobRunner) -> None:
        self._record = record
        self._runner = runner

    @property
    def id(self) -> str:
        """The job's id, 16 hexadecimal digits."""
        return self._record.id

    @property
    def name(self) -> str | None:
        """The name from its config."""
        return self._record.config.name

    @property
    def config(self) -> JobConfig:
        """A copy of its config; changing it does not change the job."""
        return copy.copy(self._record.config)

    def __reduce__(self) -> tuple[Any, ...]:
        record = self._record
        if record.code is None:
            raise TypeError(f"{self!r} was not made from a DAG or pipeline by this client, which cannot pickle it")
        return job_again, (pickled(JobDescription(record.code.graph, record.config)), self._runner.key, record.joins)

    @property
    def status(self) -> JobStatus:
        """The status of the latest execution; NOT_RUNNING before the first."""
        run = self._record.run
        return JobStatus.NOT_RUNNING if run is None else run.status

    @property
    def execution(self) -> Execution | None:
        """The latest execution, None before the first."""
        return self._record.execution

    @property
    def suspension_cause(self) -> SuspensionCause | None:
        """Why the job is suspended; None while it is not.

        `requested_by_user` says whether a user called `suspend`. If not, `error` is the text of what went wrong, with
        the vertex, the item and the traceback of the user's code (`JobConfig.suspend_on_failure`).
        """
        run = self._record.run
        return None if run is None else run.cause

    def execute(self) -> Execution:
        """Start the job and return at once.

        Raises:
            JobAlreadyExistsError: another job of the same name is running.
            MemberLostError: the member is gone.
        """
        return self._runner.execute(self._record, patient=False)

    def run(self, timeout: float | None = None, progress: bool = False) -> None:
        """Execute the job and wait for its end.

        Args:
            timeout: seconds; the job is cancelled when they are over.
            progress: show on standard error, if that is a terminal, or in a notebook's cell, what each vertex does,
                which edge is full, and how far sources are. `shmjet run --progress` asks for it too.

        Raises:
            JobFailedError: a processor or supplier raised; the text ends with the user's own traceback.
            WorkerLostError: a worker died.
            TimeoutError: `timeout` is over.
            concurrent.futures.CancelledError: it was cancelled.
        """
        __tracebackhide__ = True
        progress = progress or _always_shows()
        deadline = None if timeout is None else time.monotonic() + timeout
        execution = self._runner.execute(self._record, patient=not progress, timeout=timeout)
        try:
            if progress:
                from shmjet.observe.live import follow

                def note() -> str:
                    return " (suspended)" if execution.suspension_cause is not None else ""

                follow(execution, execution.metrics, self.name or f"job {self.id}", timeout, note)
            execution.result(None if deadline is None else max(0.0, deadline - time.monotonic()))
        except (TimeoutError, KeyboardInterrupt) as stopped:
            if not execution.done():
                execution.cancel()
            if isinstance(stopped, TimeoutError):
                raise TimeoutError(f"the job has not ended within {timeout:g} s, and is cancelled") from None
            raise stopped.with_traceback(None) from None  # the user's call, not how it waits
        except (ShmjetError, CancelledError) as failed:
            raise failed.with_traceback(None) from failed.__cause__

    def cancel(self) -> bool:
        """Cancel the latest execution; False when there is none or it has ended."""
        execution = self._record.execution
        return execution is not None and execution.cancel()

    def suspend(self) -> None:
        """Ask that the job stops until `resume`, and return at once; the status becomes SUSPENDED.

        A job with a guarantee saves its state before, and goes on from it; without one it begins anew. While the job is
        starting this waits until it runs.

        Raises:
            JobStateError: it does not run, or is suspended already.
            MemberLostError: the member is gone.
        """
        self._runner.control.suspend(self._active("suspend it"))

    def resume(self) -> None:
        """Ask that a suspended job goes on, and return at once.

        Raises:
            JobStateError: it is not suspended.
            MemberLostError: the member is gone.
        """
        self._runner.control.resume(self._active("resume it"))

    def restart(self, graceful: bool = True) -> None:
        """Ask that the job stops and starts again, for example on more members, and return at once.

        Args:
            graceful: save the state before; False: go on from the last snapshot. A job without a guarantee begins anew.

        Raises:
            JobStateError: it does not run, or is being suspended.
            MemberLostError: the member is gone.
        """
        self._runner.control.restart(self._active("restart it"), graceful=graceful)

    def export_snapshot(self, name: str, timeout: float | None = None) -> Snapshot:
        """Save the state of the job under a name, and wait for that; the job goes on, or stays suspended.

        While the job starts, or is being restarted or suspended, this waits for what comes of that, for a minute. A job
        without a guarantee can be exported while it runs: another job goes on from there, its own attempts do not.

        Args:
            name: of the snapshot; an older one of that name is replaced. It has at most 200 bytes, no slash, and does
                not begin with a dot.
            timeout: seconds; when they are over the export goes on.

        Raises:
            JobStateError: the job has ended, was not started, does not run within a minute, or is suspended and has no
                guarantee.
            ConfigError: it cannot be a name.
            ShmjetError: the state cannot be saved.
            MemberLostError: the member is gone.
            TimeoutError: `timeout` is over.
        """
        return self._export(name, timeout, cancel=False)

    def cancel_and_export_snapshot(self, name: str, timeout: float | None = None) -> Snapshot:
        """Save the state of the job under a name and end the job with that: for the next version of it.

        Sinks make visible what belongs to the snapshot, and nothing after it; without a guarantee file sinks that do
        not roll leave no files, because the job is cancelled. The job's name may be used again.

        Args:
            name: as for `export_snapshot`.
            timeout: seconds; when they are over the export goes on.

        Raises:
            JobStateError, ConfigError, ShmjetError, MemberLostError, TimeoutError: as `export_snapshot`; if the state
                cannot be saved the job goes on.
        """
        return self._export(name, timeout, cancel=True)

    def _export(self, name: str, timeout: float | None, *, cancel: bool) -> Snapshot:
        check_snapshot_name("the name of a snapshot", name)
        verb = "export a snapshot of it"
        return self._runner.control.export_snapshot(self._active(verb), name, timeout, cancel=cancel)

    def _active(self, verb: str) -> int:
        """Return the number of the latest execution, which has not ended.

        Raises:
            JobStateError: it has, or there is none.
        """
        run = self._record.run
        if run is None or run.execution.done():
            raise JobStateError(f"job {self.name or self.id!r} is {self.status.name}; cannot {verb}")
        return run.wait_for_id()

    def on_status(self, fn: Callable[[JobStatus, JobStatus], object]) -> Callable[[], None]:
        """Have a function called at each change of the job's status, through restarts and suspensions.

        It is called in a thread of its own, with one change after the other, and may use the instance. What it raises
        is logged, and ends nothing.

        Args:
            fn: called with the old status and the new one.

        Returns:
            what removes it.

        Example:
            >>> remove = job.on_status(lambda old, new: print(old.name, "->", new.name))     # doctest: +SKIP
        """
        if not callable(fn):
            raise TypeError(f"on_status() takes a function of the old status and the new one, got {fn!r}")
        return self._record.status_listeners.add(fn)

    def metrics(self) -> Metrics:
        """Return the metrics of the latest execution; empty before the first."""
        run = self._record.run
        return NO_METRICS if run is None else run.metrics()

    def explain_time(self) -> JobTime:
        """Return how far the event time of each vertex of the latest execution is, and what holds it there.

        For "my job prints nothing": a window waits for the watermark of its slowest input, and that for a source, or a
        single source partition, that is silent. It costs the job nothing. `print` shows a line for each vertex.

        Returns:
            for each vertex its watermark, since when it is there, and which input, source and source partition holds
            it; and which vertices a postponed snapshot waits for.

        Example:
            >>> print(job.explain_time())                       # doctest: +SKIP
            job 'clicks' is running
            ticks: at 2026-11-23 04:46:00.000 for 42 s; source partition 1 of 'ticks' #0 (no event yet; 2 in all)
        """
        from shmjet.observe.event_time import explain_time  # few programs ask, and all load this module

        name = self._record.text
        cause = self.suspension_cause
        return explain_time(
            self.metrics(),
            job=name,
            status=self.status.value.replace("_", " "),
            cause=None if cause is None else cause.error or "a client has asked for it",
        )

    def _repr_svg_(self) -> str | None:
        """Show the DAG with what has gone through it so far, in a notebook."""
        try:
            return self._picture(call_within(self.metrics))
        except NoAnswerError:  # the member is gone, or the instance has been shut down
            return self._picture(NO_METRICS)

    def _repr_html_(self) -> str:
        """Show how the latest execution is doing, and the DAG, in a notebook."""
        from shmjet.cluster.client.notebook import job_html

        return job_html(self)

    def _picture(self, metrics: Metrics) -> str | None:
        """Return the DAG as an SVG document with the counts of some metrics; None where the DAG is not known."""
        code = self._record.code
        if code is None:
            return None
        from shmjet.observe.picture import job_svg

        return job_svg(*code.graph, metrics)

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        return f"<Job {self.id}{name} {self.status.name}>"


def _always_shows() -> bool:
    """Whether progress is shown although the code does not ask for it (`shmjet run --progress`)."""
    return os.environ.get(PROGRESS_VARIABLE, "") not in ("", "0")
