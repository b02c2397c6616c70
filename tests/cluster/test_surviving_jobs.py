"""Jobs on members of one host, some of which are killed: what goes on, from where, and what does not."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import shmjet
from shmjet import (
    Execution,
    JetConfig,
    JetInstance,
    Job,
    JobConfig,
    JobStatus,
    MemberLostError,
    ProcessingGuarantee,
)
from tests.cluster.counting import exact, sharing

SOON_S = 60.0
SECRET = "hush"
COUNT = 200
SHARES = 6
pytestmark = pytest.mark.slow
Eventually = Callable[[Callable[[], object]], None]


@pytest.fixture
def members(eventually: Eventually) -> Iterator[list[JetInstance]]:
    """Three members with a worker each, the oldest first."""
    with ExitStack() as stack:
        found: list[JetInstance] = []
        for _ in range(3):
            seeds = tuple(member.cluster.members[0].address for member in found[:1])
            config = JetConfig(cores=1, bind="127.0.0.1:0", secret=SECRET, members=seeds)
            found.append(stack.enter_context(shmjet.new_instance(config)))
        eventually(lambda: all(len(member.cluster.members) == 3 for member in found))
        yield found


def kill(member: JetInstance) -> None:
    (own,) = [found for found in member.cluster.members if found.is_local]
    os.kill(own.pid, signal.SIGKILL)


class Counting:
    """A job that counts, and ends when it is let go."""

    def __init__(self, folder: Path, jet: JetInstance, name: str, config: JobConfig) -> None:
        self.file, self.gate = folder / f"{name}.json", folder / f"{name}.gate"
        config.name = name
        self.job: Job = jet.new_job(sharing(self.file, COUNT, gate=self.gate, shares=SHARES), config)
        self.execution: Execution = self.job.execute()

    def has_snapshot(self, after: int | None = 0) -> bool:
        return (self.job.metrics().last_snapshot_id or 0) > (after or 0)

    def ends_well(self) -> None:
        self.gate.touch()
        self.execution.result(SOON_S)
        assert json.loads(self.file.read_text()) == exact(COUNT, SHARES)


def guaranteed(**settings: object) -> JobConfig:
    chosen = {"processing_guarantee": ProcessingGuarantee.EXACTLY_ONCE, "snapshot_interval": 0.05, **settings}
    return JobConfig(**chosen)  # type: ignore[arg-type]


def test_a_lost_member_restarts_suspends_or_fails_jobs_as_they_ask(
    members: list[JetInstance], tmp_path: Path, eventually: Eventually
) -> None:
    jet = members[0]
    goes_on = Counting(tmp_path, jet, "goes on", guaranteed())
    begins_anew = Counting(tmp_path, jet, "begins anew", JobConfig())
    is_suspended = Counting(tmp_path, jet, "is suspended", guaranteed(auto_scaling=False))
    fails = Counting(tmp_path, jet, "fails", JobConfig(auto_scaling=False))
    stays = Counting(tmp_path, jet, "stays suspended", guaranteed())
    stays.job.suspend()
    eventually(lambda: goes_on.has_snapshot() and is_suspended.has_snapshot())
    eventually(lambda: stays.job.status is JobStatus.SUSPENDED)
    eventually(lambda: begins_anew.job.status is fails.job.status is JobStatus.RUNNING)
    (lost,) = [found.address for found in members[2].cluster.members if found.is_local]
    kill(members[2])
    with pytest.raises(MemberLostError, match=lost):
        fails.execution.result(SOON_S)
    eventually(lambda: is_suspended.job.status is JobStatus.SUSPENDED)
    cause = is_suspended.job.suspension_cause
    assert cause is not None
    assert lost in (cause.error or "")
    is_suspended.job.resume()
    for one in (goes_on, begins_anew, is_suspended):
        one.ends_well()
        assert one.job.metrics().attempts > 1
    assert stays.job.status is JobStatus.SUSPENDED
    stays.job.resume()
    stays.ends_well()
