"""The records of runs that every member of a cluster has, so that any of them can go on with all runs.

A record is what never changes of a run, its origin, and its state, which has a version. The newest state wins,
wherever it comes from, and an outcome is a state like any other. Of runs that have ended the last `KEPT_RESULTS` are
kept, without what only another attempt would need. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from shmjet.cluster.membership.run_messages import EndedRun, RunEnd, RunOrigin, RunRecordCopy, RunState, Version
from shmjet.cluster.protocol import Submission
from shmjet.cluster.settings import KEPT_RESULTS

MOST_AT_ONCE: Final = 50
"""Ended runs in one message: each may have an exception of 64 KiB."""


class RunCopies:
    """The records of one member."""

    def __init__(self) -> None:
        self._origins: dict[int, RunOrigin] = {}
        self._states: dict[int, RunState] = {}
        self._ends: dict[int, EndedRun] = {}
        self._ended_jobs: dict[str, Submission] = {}
        """By their ids the jobs of ended runs: many runs may be of one."""

    def keep(self, run: int, state: RunState, origin: RunOrigin | None = None) -> bool:
        """Take a state, unless a newer one is known, or nothing is known of the run and it has not ended.

        Args:
            run: the number of the run.
            state: of it.
            origin: of it, if it may be unknown here.

        Returns:
            whether it was news.
        """
        ended = self._ends.get(run)
        known = self._states.get(run) if ended is None else ended.state
        if known is not None and known.version >= state.version:
            return False
        if state.end is not None:
            origin = self._origins.pop(run, origin)
            if origin is None and ended is not None:
                origin = ended.origin
            self._states.pop(run, None)
            self._ends[run] = EndedRun(run, state, None if origin is None else self._without_code(origin))
            while len(self._ends) > KEPT_RESULTS:
                del self._ends[next(iter(self._ends))]
            return True
        if origin is not None:
            self._origins[run] = origin
        if run not in self._origins:
            return False
        self._states[run] = state
        return True

    def _without_code(self, origin: RunOrigin) -> RunOrigin:
        """Return an origin as it is kept after the end of its run."""
        job = msgspec.structs.replace(origin.job, code=b"", code_size=0, attachments={}, import_paths=[])
        known = self._ended_jobs.pop(job.job_id, None)
        if known == job:
            job = known
        self._ended_jobs[job.job_id] = job
        while len(self._ended_jobs) > KEPT_RESULTS:
            del self._ended_jobs[next(iter(self._ended_jobs))]
        return msgspec.structs.replace(origin, job=job, logs=None)

    def keep_ended(self, runs: Sequence[EndedRun]) -> None:
        """Take runs that have ended, unless newer states of them are known."""
        for ended in runs:
            self.keep(ended.run, ended.state, ended.origin)

    def live(self) -> list[RunRecordCopy]:
        """Return the records of runs without an outcome, by their numbers."""
        return [RunRecordCopy(self._origins[run], self._states[run]) for run in sorted(self._states)]

    def copy_of(self, run: int) -> RunRecordCopy | None:
        """Return the record of a run that has not ended; None when there is none."""
        state = self._states.get(run)
        return None if state is None else RunRecordCopy(self._origins[run], state)

    def state_of(self, run: int) -> RunState | None:
        """Return the newest state of a run that has not ended; None when there is none."""
        return self._states.get(run)

    def end_of(self, run: int) -> RunEnd | None:
        """Return the outcome of a run; None when it has none, or it is not known here."""
        ended = self._ends.get(run)
        return None if ended is None else ended.state.end

    def ended(self) -> list[EndedRun]:
        """Return all that have ended, as they became known here."""
        return list(self._ends.values())

    def ended_run(self, run: int) -> EndedRun | None:
        """Return what is kept of a run that has ended; None when it has not, or is not known here."""
        return self._ends.get(run)

    def has_job(self, job_id: str) -> bool:
        """Say whether a live run is of a job."""
        return any(origin.job.job_id == job_id for origin in self._origins.values())

    # -- for a new coordinator ----------------------------------------------------------------------------------

    def versions(self) -> dict[int, Version]:
        """Return the versions of all that is known here."""
        live = {run: state.version for run, state in self._states.items()}
        return live | {run: ended.state.version for run, ended in self._ends.items()}

    def newer_than(self, known: Mapping[int, Version]) -> tuple[list[RunRecordCopy], list[EndedRun]]:
        """Return what is newer here than what another member knows.

        Args:
            known: versions by the numbers of runs.

        Returns:
            the records of live runs, and those of ended ones.
        """
        live = [copy for copy in self.live() if copy.state.version > known.get(copy.origin.run, (-1, -1))]
        return live, [end for run, end in self._ends.items() if end.state.version > known.get(run, (-1, -1))]

    def forget(self) -> None:
        """Forget all: this member is not what it was."""
        self._origins.clear()
        self._states.clear()
        self._ends.clear()
        self._ended_jobs.clear()


def in_messages(runs: Sequence[EndedRun]) -> list[Sequence[EndedRun]]:
    """Return ended runs in pieces of which each fits into a message.

    Example:
        >>> [len(piece) for piece in in_messages([EndedRun(run, RunState((1, run))) for run in range(60)])]
        [50, 10]
    """
    return [runs[at : at + MOST_AT_ONCE] for at in range(0, len(runs), MOST_AT_ONCE)]
