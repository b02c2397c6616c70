"""The jobs of a coordinator whose runs the test makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from shmjet.cluster.jobs.job_requests import JobRequests
from shmjet.cluster.jobs.run_parts import MakeRun
from shmjet.cluster.jobs.run_watchers import RunWatchers
from shmjet.cluster.jobs.submissions import Submissions
from shmjet.cluster.jobs.table import JobTable
from shmjet.cluster.membership.run_messages import EndedRun, RunEnd
from shmjet.cluster.requests.named_jobs import NamedJobs


class JobsHere:
    """The table of jobs, and what answers requests about them.

    Args:
        make: makes runs.
        outcome_of: see `JobTable`.
        ended: see `JobTable`.
        named: the jobs of the configuration.
        settings: further ones of `Submissions`.
    """

    def __init__(
        self,
        make: MakeRun,
        outcome_of: Callable[[int], RunEnd | None] = lambda _: None,
        ended: Callable[[], Iterable[EndedRun]] = tuple,
        named: NamedJobs | None = None,
        **settings: Any,
    ) -> None:
        watchers = RunWatchers()
        self.table = JobTable(watchers, outcome_of, ended)
        self.submissions = Submissions(self.table, watchers, make, named or NamedJobs({}), **settings)
        self.requests = JobRequests(self.table, watchers)
