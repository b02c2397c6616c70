"""Jobs with a guarantee on two members of one host: one is lost, and the counts are exact."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import shmjet
from shmjet import JetConfig, JetInstance, JobConfig, ProcessingGuarantee
from tests.cluster.counting import counting, exact

SOON_S = 60.0
pytestmark = pytest.mark.slow
CONFIG = JobConfig(processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE, snapshot_interval=0.03)


@pytest.fixture
def members(eventually: Callable[..., None]) -> Iterator[list[JetInstance]]:
    settings = {"cores": 1, "bind": "127.0.0.1:0", "secret": "hush"}
    with shmjet.new_instance(JetConfig(**settings)) as first:  # type: ignore[arg-type]
        seeds = (first.cluster.members[0].address,)
        with shmjet.new_instance(JetConfig(**settings, members=seeds)) as second:  # type: ignore[arg-type]
            eventually(lambda: len(first.cluster.members) == 2)
            yield [first, second]


def test_members_of_one_host_save_together(members: list[JetInstance], tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    job = members[0].new_job(counting(file, 1000, sources=1, counts=1, spreads=True), CONFIG)
    job.run(SOON_S)
    assert json.loads(file.read_text()) == exact(1000)


def test_a_job_goes_on_without_a_lost_worker_of_either_member(
    members: list[JetInstance], tmp_path: Path, eventually: Callable[..., None]
) -> None:
    file, gate = tmp_path / "result.json", tmp_path / "gate"
    job = members[0].new_job(counting(file, 2000, gate=gate, sources=1, counts=1, spreads=True), CONFIG)
    execution = job.execute()
    for attempts, member in enumerate(members, 2):
        before = job.metrics().last_snapshot_id
        eventually(lambda before=before: job.metrics().last_snapshot_id > before)
        own = next(found for found in member.cluster.members if found.is_local)
        os.kill(own.workers[0], signal.SIGKILL)
        eventually(lambda attempts=attempts: job.metrics().attempts == attempts)
    gate.touch()
    execution.result(SOON_S)
    assert json.loads(file.read_text()) == exact(2000)
