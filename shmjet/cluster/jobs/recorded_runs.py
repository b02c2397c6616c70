"""The records that this member keeps of its own runs, so that it goes on with them when it is started again."""

from __future__ import annotations

import logging
from collections.abc import Container

import msgspec

from shmjet.cluster.jobs.lineage import Lineage
from shmjet.cluster.jobs.run import JobRun
from shmjet.cluster.jobs.run_records import RunRecord, RunRecords
from shmjet.core import JobStatus, ShmjetError
from shmjet.execution.failure import without_exception

logger = logging.getLogger("shmjet.member")


class RecordedRuns:
    """See the module.

    Args:
        records: on disk; None where runs end with the member.
    """

    def __init__(self, records: RunRecords | None) -> None:
        self._records = records
        self._restarted: set[int] = set()
        """The runs with which this member goes on because it was started again;"""
        self._unable: set[int] = set()
        """and those of them that are suspended because they have failed before their first snapshot here."""

    def all(self) -> list[RunRecord] | None:
        """Return the records of all runs; None where there are none."""
        return None if self._records is None else self._records.all()

    def keeps(self, lineage: Lineage | None) -> bool:
        """Say whether there is a record of a run with this lineage: as long as it has no outcome."""
        return self._records is not None and lineage is not None and lineage.takes_snapshots

    def add(self, run: JobRun) -> None:
        """Write the record of a run, now and whenever it is suspended or resumed.

        Raises:
            ShmjetError: there is no room for it.
        """
        records, lineage = self._records, run.lineage
        assert records is not None
        assert lineage is not None
        job = msgspec.structs.replace(run.job, code=bytes(run.code.view()), code_size=0)
        record = RunRecord(run.id, lineage.name, job)

        def note(old: JobStatus, new: JobStatus) -> None:
            if run.id in self._unable:
                if new is JobStatus.STARTING:
                    self._unable.discard(run.id)
                return  # the record stays as it was: the member tries again when it is started again
            if JobStatus.SUSPENDED in (old, new) and not new.is_terminal:
                cause = None if run.suspension is None else run.suspension.failure
                is_suspended = new is not JobStatus.STARTING
                cause = None if cause is None else without_exception(cause)
                try:
                    records.write(msgspec.structs.replace(record, is_suspended=is_suspended, cause=cause))
                except OSError as error:
                    logger.error("the record of %s cannot be written: %s", job.label, error)

        try:
            records.write(record)
        except OSError as error:
            lineage.remove()
            raise ShmjetError(f"there is no room for the record of a job: {error}") from error
        run.add_status_listener(note)

    def note_restarted(self, run: int) -> None:
        """Take that this member goes on with a run because it was started again."""
        self._restarted.add(run)

    def is_restarted(self, run: JobRun) -> bool:
        """Say whether this member goes on with a run because it was started again."""
        return run.id in self._restarted

    def note_unable(self, run: int) -> None:
        """Take that a run is suspended which has failed before its first snapshot here: its record stays as it was."""
        self._unable.add(run)

    def ended(self, run: JobRun) -> None:
        """Remove the record of a run that has its outcome."""
        if self._records is not None:
            self._records.remove(run.id)

    def keep_only(self, runs: Container[int]) -> None:
        """Remove the records of all other runs: they have ended while another member coordinated."""
        if self._records is not None:
            self._records.keep_only(runs)

    def forget(self, run: JobRun) -> None:
        """Take that nothing is left of a run."""
        self._restarted.discard(run.id)
        self._unable.discard(run.id)
