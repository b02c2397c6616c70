"""The records of live runs that every member of a cluster has, so that any of them can go on with all runs.

A record is what never changes of a run, its origin, and its state, which has a version. The newest state wins,
wherever it comes from, and an outcome is a state like any other. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from shmjet.cluster.membership.run_messages import RunEnd, RunOrigin, RunRecordCopy, RunState, Version
from shmjet.cluster.settings import KEPT_RESULTS


class RunCopies:
    """The records of one member."""

    def __init__(self) -> None:
        self._origins: dict[int, RunOrigin] = {}
        self._states: dict[int, RunState] = {}
        self._ends: dict[int, RunState] = {}

    def keep(self, run: int, state: RunState, origin: RunOrigin | None = None) -> bool:
        """Take a state, unless a newer one is known, or nothing is known of the run and it has not ended.

        Args:
            run: the number of the run.
            state: of it.
            origin: of it, if it may be unknown here.

        Returns:
            whether it was news.
        """
        known = self._ends.get(run) or self._states.get(run)
        if known is not None and known.version >= state.version:
            return False
        if state.end is not None:
            self._origins.pop(run, None)
            self._states.pop(run, None)
            self._ends[run] = state
            while len(self._ends) > KEPT_RESULTS:
                del self._ends[next(iter(self._ends))]
            return True
        if origin is not None:
            self._origins[run] = origin
        if run not in self._origins:
            return False
        self._states[run] = state
        return True

    def live(self) -> list[RunRecordCopy]:
        """Return the records of runs without an outcome, by their numbers."""
        return [RunRecordCopy(self._origins[run], self._states[run]) for run in sorted(self._states)]

    def state_of(self, run: int) -> RunState | None:
        """Return the newest state of a run that has not ended; None when there is none."""
        return self._states.get(run)

    def end_of(self, run: int) -> RunEnd | None:
        """Return the outcome of a run; None when it has none, or it is not known here."""
        state = self._ends.get(run)
        return None if state is None else state.end

    def has_job(self, job_id: str) -> bool:
        """Say whether a live run is of a job."""
        return any(origin.job.job_id == job_id for origin in self._origins.values())

    # -- for a new coordinator ----------------------------------------------------------------------------------

    def versions(self) -> dict[int, Version]:
        """Return the versions of all that is known here."""
        return {run: state.version for run, state in (*self._states.items(), *self._ends.items())}

    def newer_than(self, known: Mapping[int, Version]) -> tuple[list[RunRecordCopy], dict[int, RunState]]:
        """Return what is newer here than what another member knows.

        Args:
            known: versions by the numbers of runs.

        Returns:
            the records of live runs, and the last states of ended ones.
        """
        live = [copy for copy in self.live() if copy.state.version > known.get(copy.origin.run, (-1, -1))]
        return live, {run: end for run, end in self._ends.items() if end.version > known.get(run, (-1, -1))}

    def forget(self) -> None:
        """Forget all: this member is not what it was."""
        self._origins.clear()
        self._states.clear()
        self._ends.clear()
