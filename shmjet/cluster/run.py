"""What anybody may ask of one run of a job, whoever leads it."""

from __future__ import annotations

from typing import Protocol

from shmjet.cluster.protocol import Submission
from shmjet.core import JobStatus
from shmjet.execution.messages import Failure


class Run(Protocol):
    """One run of a job."""

    @property
    def id(self) -> int:
        """Its number, unique in the cluster."""

    @property
    def job(self) -> Submission:
        """What is run."""

    @property
    def status(self) -> JobStatus:
        """How far it is."""

    @property
    def failure(self) -> Failure | None:
        """The first error, if there was one."""

    @property
    def cancelled(self) -> bool:
        """Whether it was asked to end."""
