"""The answers to requests about jobs and runs that are known: list, describe, watch, measure and cancel them."""

from __future__ import annotations

from collections.abc import Awaitable

import msgspec

from shmjet.cluster.jobs.run_watchers import RunWatchers
from shmjet.cluster.jobs.table import JobTable
from shmjet.cluster.merged_metrics import with_life
from shmjet.cluster.protocol import (
    CancelExecution,
    Done,
    GetJob,
    GetMetrics,
    JobReply,
    JobRow,
    JobsReply,
    ListJobs,
    MetricsReply,
    Refused,
    Watch,
)
from shmjet.cluster.requests.client_connections import Client
from shmjet.core import JobStatus
from shmjet.execution.metrics import NO_METRICS, Metrics
from shmjet.ipc.background_tasks import BackgroundTasks


class JobRequests:
    """See the module.

    Args:
        table: the jobs and runs that are remembered.
        watchers: the clients that are told of runs.
    """

    def __init__(self, table: JobTable, watchers: RunWatchers) -> None:
        self._table = table
        self._watchers = watchers
        self._tasks = BackgroundTasks()

    def cancel(self, client: Client, request: CancelExecution) -> None:
        """Cancel an execution."""
        execution = self._table.run(request.execution_id)
        if execution is not None:
            execution.cancel()
        client.send(Done(request.request))

    def watch(self, client: Client, request: Watch) -> None:
        """Tell a client how executions stand, and from now on each change."""
        for number in request.executions:
            client.queue(self._table.news(number))
            if self._table.run(number) is not None:
                self._watchers.watch(client, number, logs=request.logs)
        client.send(Done(request.request))

    def list_jobs(self, client: Client, request: ListJobs) -> None:
        """Answer with all jobs, the oldest first."""
        newest = {run.job.job_id: run for run in self._table.executions}
        rows = [
            JobRow(job_id, run.job.name, run.status.value, run.id, run.job.config) for job_id, run in newest.items()
        ]
        for job_id, record in self._table.jobs:
            if job_id not in newest:
                job = record.submission
                rows.append(JobRow(job_id, job.name, JobStatus.NOT_RUNNING.value, None, job.config))
        client.send(JobsReply(request.request, rows))

    def describe_job(self, client: Client, request: GetJob) -> None:
        """Answer with a job's DAG and its newest failure."""
        record = self._table.record_of(request.job_id)
        newest = next((run for run in reversed(self._table.executions) if run.job.job_id == request.job_id), None)
        job = newest.job if newest is not None else None if record is None else record.submission
        if job is None:
            client.send(Refused(request.request, "JobNotFoundError", f"there is no job {request.job_id!r}"))
            return
        failure = None if newest is None or newest.cancelled else newest.failure
        if failure is not None:
            failure = msgspec.structs.replace(failure, exception=None)
        client.send(JobReply(request.request, job.shape, failure))

    def report_metrics(self, client: Client, request: GetMetrics) -> None:
        """Answer with an execution's metrics."""
        execution = self._table.run(request.execution_id)
        if execution is None:
            past = next((run for run in self._table.past() if run.id == request.execution_id), None)
            metrics = NO_METRICS if past is None else with_life(NO_METRICS, past.attempt_count, None)
            client.send(MetricsReply(request.request, metrics))
            return

        async def tell(metrics: Awaitable[Metrics]) -> None:
            waits_for = execution.snapshot_waits_for
            found = with_life(
                await metrics,
                execution.attempt_count,
                execution.last_snapshot,
                waits_for,
                attempt_waits_for=execution.waits_for,
                restart=execution.last_restart,
            )
            client.send(MetricsReply(request.request, found))

        self._tasks.start(tell(execution.own_metrics() if request.part else execution.metrics()))
