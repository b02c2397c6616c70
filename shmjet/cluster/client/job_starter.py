"""How a client has a job started: its attached files, its code, and the request, which may come again."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from shmjet.cluster.client.job_record import JobRecord
from shmjet.cluster.client.log_levels import levels
from shmjet.cluster.client.submission import pieces_of
from shmjet.cluster.protocol import Execute, Executing, Submission, Upload
from shmjet.core import JobConfig, JobNotFoundError
from shmjet.execution.messages import LogSubscription
from shmjet.ipc.inline_or_memfd import InlineOrMemfd

if TYPE_CHECKING:
    from shmjet.cluster.client.backend import Backend


_MOST_TRIES = 5


class JobStarter:
    """Starts the jobs of one instance.

    Args:
        ask: sends a request and returns its reply (`Connection.ask`).
        backend: of the instance.
    """

    def __init__(self, ask: Callable[..., Any], backend: Backend) -> None:
        self._ask = ask
        self._backend = backend

    def upload(self, job_id: str, config: JobConfig) -> None:
        """Send the files that are attached to a job, all of them to one coordinator."""
        for is_last in (False,) * (_MOST_TRIES - 1) + (True,):
            try:
                for path, offset, piece in pieces_of(config):
                    self._upload(job_id, path, offset, piece)
                return
            except JobNotFoundError:  # the coordinator that had the first pieces has been lost
                if is_last:
                    raise

    def _upload(self, job_id: str, path: str, offset: int, piece: bytes) -> None:
        self._ask(lambda request: Upload(request, job_id, path, offset, piece))

    def start(
        self,
        job: JobRecord,
        submission: Submission | None,
        patient: bool,
        timeout: float | None,
        on_late: Callable[[Any], None],
        tries: int = _MOST_TRIES,
    ) -> Executing:
        """Have a job executed.

        Args:
            job: which.
            submission: what the member has to be told; None when it knows the job.
            patient: whether the caller waits for the end anyway.
            timeout: seconds that the member may take to answer.
            on_late: called with an answer that comes later.
            tries: how often coordinators may be lost that know the job, or have its files.
        """
        token = os.urandom(8).hex()
        logs = LogSubscription(*levels()) if self._backend.is_networked else None
        code = (
            InlineOrMemfd(b"") if submission is None else InlineOrMemfd.of(submission.code, self._backend.most_inline)
        )
        try:
            if submission is not None and code.fds:
                submission = msgspec.structs.replace(submission, code=code.inline, code_size=code.size)
            reply = self._ask(
                lambda number: Execute(number, job.id, submission, patient, logs, job.named, token, joins=job.joins),
                timeout,
                code.fds,
                on_late,
            )
            assert isinstance(reply, Executing)
            return reply
        except JobNotFoundError:  # the coordinator that knew it, or had its files, has been lost
            told = submission
            submission = job.kept_submission if told is None else told
            if submission is None or tries <= 1 or (told is not None and not told.attachments):
                raise
        finally:
            code.close()
        self.upload(job.id, job.config)
        return self.start(job, submission, patient, timeout, on_late, tries - 1)
