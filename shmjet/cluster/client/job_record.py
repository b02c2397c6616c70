"""A job as its instance keeps it: what a member has to be told to run it, and its latest run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from shmjet.cluster.client.execution import Execution
from shmjet.cluster.client.known_run import KnownRun
from shmjet.cluster.client.status_listeners import StatusListeners
from shmjet.cluster.protocol import Submission
from shmjet.core import Edge, JobConfig, JobStatus, Vertex

if TYPE_CHECKING:
    from shmjet.cluster.client.client_ties import ClientTies


BeginsRun = Callable[[Execution, "ClientTies"], object]
"""The method `on_client` of a supplier, which is told of each run before it starts."""


class JobCode(NamedTuple):
    """What a client's own job consists of."""

    graph: tuple[list[Vertex], list[Edge]]
    """Vertices in the order of the flow, and edges; for pictures and pickles."""
    listeners: tuple[BeginsRun, ...]
    is_endless: bool
    is_kept: bool
    """Whether the member that knows the submission may be lost, so that another one has to be told."""


def _nothing() -> None:
    return None


class JobRecord:
    """One job of an instance. What it says is about the latest run. May be used from any thread.

    Args:
        job_id: 16 hexadecimal digits.
        config: how to run it.
        call_back: calls a function soon, in a thread that may block.
        submission: what a member has to be told before the first run; None where it knows.
        code: None for a job that another client has made, and for a job of the members' configuration.
        named: how the members' own configuration calls it; None for a job of a client.
        joins: whether executing it joins the job of its name which runs or is suspended, if there is one.
    """

    def __init__(
        self,
        job_id: str,
        config: JobConfig,
        call_back: Callable[[Callable[[], None]], None],
        submission: Submission | None = None,
        code: JobCode | None = None,
        named: str | None = None,
        *,
        joins: bool = False,
    ) -> None:
        self.id = job_id
        self.config = config
        self.code = code
        self.named = named
        self.joins = joins
        self.run: KnownRun | None = None
        """The latest run, None before the first."""
        self.execution: Execution | None = None
        """Of that run, kept here: a run that has ended keeps its execution no longer."""
        self.status_listeners = StatusListeners(call_back)
        self.kept_submission: Submission | None = None
        """For another member, once the member is lost which knew it."""
        self.executing = threading.Lock()
        """Held by the thread that executes it, and will have that run as the latest."""
        self.seen: Callable[[], object] = _nothing
        """Returns what the program has of it, as long as the program holds that."""
        self._submission = submission

    @property
    def text(self) -> str:
        """How messages call it."""
        return repr(self.config.name) if self.config.name else self.id

    def take_submission(self) -> Submission | None:
        """Return what the member has to be told before the first run, None when it knows."""
        submission, self._submission = self._submission, None
        if submission is not None and self.code is not None and self.code.is_kept:
            self.kept_submission = submission
        return submission

    def give_back(self, submission: Submission | None) -> None:
        """Take that the member has refused the first run, and remembers nothing of it."""
        if submission is not None:
            self._submission = submission

    def joined(self, job_id: str) -> None:
        """Take that executing it has joined another job, which it is from now on."""
        self.id, self._submission, self.kept_submission = job_id, None, None

    def attach(self, run: KnownRun) -> Execution:
        """Take a run, perhaps of another client, as the latest; returns its execution."""
        execution = run.execution
        if run is not self.run:
            self.run, self.execution = run, execution
            run.observe(self._observe)
        return execution

    def _observe(self, run: KnownRun, status: JobStatus) -> None:
        if run is self.run:
            self.status_listeners.take(status)
