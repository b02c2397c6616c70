"""Jobs with a guarantee on several hosts: workers and members are lost anywhere, and the counts are exact."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shmjet import JetInstance, JobConfig, JobStatus, ProcessingGuarantee
from tests.cluster.counting import SHARDS, Shards, counting, exact
from tests.cluster.hosts import Hosts, why_not

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(why_not() is not None, reason=f"no hosts: {why_not()}"),
]

SOON_S = 60.0
CONFIG = JobConfig(processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE, snapshot_interval=0.05)
Eventually = Callable[..., None]


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with Hosts(3, memory="300m") as three:
        three.start()
        yield three


@pytest.fixture
def jet(hosts: Hosts) -> Iterator[JetInstance]:
    dead = [host for host in hosts.hosts if host.process is None]
    if dead:
        hosts.start(dead)
    hosts.await_members(3)
    with hosts.client() as client:
        yield client


def test_a_job_goes_on_without_a_lost_worker_of_any_host(
    hosts: Hosts, jet: JetInstance, tmp_path: Path, eventually: Eventually
) -> None:
    file, gate = tmp_path / "result.json", tmp_path / "gate"
    dag = counting(file, 1000, gate=gate, sources=1, counts=1, spreads=True, source=Shards)
    job = jet.new_job(dag, CONFIG)
    execution = job.execute()
    for attempts, member in enumerate(reversed(jet.cluster.members), 2):
        before = job.metrics().last_snapshot_id
        eventually(lambda before=before: job.metrics().last_snapshot_id > before)
        os.kill(member.workers[0], signal.SIGKILL)
        eventually(lambda attempts=attempts: job.metrics().attempts >= attempts)
    gate.touch()
    execution.result(SOON_S)
    assert json.loads(file.read_text()) == exact(1000, SHARDS)
    eventually(lambda: not any(chunk for host in hosts.hosts for chunk in host.shm.rglob("*.chunk")))


def test_a_job_goes_on_without_a_lost_member(
    hosts: Hosts, jet: JetInstance, tmp_path: Path, eventually: Eventually
) -> None:
    file, gate = tmp_path / "result.json", tmp_path / "gate"
    dag = counting(file, 1000, gate=gate, sources=1, counts=1, spreads=True, source=Shards)
    job = jet.new_job(dag, CONFIG)
    execution = job.execute()
    eventually(lambda: job.metrics().last_snapshot_id > 1)
    last = jet.cluster.members[-1].address
    hosts.kill(next(host for host in hosts.hosts if host.address == last))
    eventually(lambda: job.metrics().attempts >= 2 and job.status is JobStatus.RUNNING)
    gate.touch()
    execution.result(SOON_S)
    assert json.loads(file.read_text()) == exact(1000, SHARDS)


def test_an_exported_snapshot_and_a_suspended_job_outlive_members_one_after_the_other(
    hosts: Hosts, jet: JetInstance, tmp_path: Path, eventually: Eventually
) -> None:
    gate = tmp_path / "gate"
    suspended = jet.new_job(
        counting(tmp_path / "a.json", 400, gate=gate, sources=1, counts=1, spreads=True, source=Shards), CONFIG
    )
    execution = suspended.execute()
    eventually(lambda: suspended.metrics().last_snapshot_id > 0)
    suspended.export_snapshot("kept")
    suspended.suspend()
    eventually(lambda: suspended.status is JobStatus.SUSPENDED)
    victims = [next(h for h in hosts.hosts if h.address == m.address) for m in jet.cluster.members[:0:-1]]
    hosts.kill(victims[0])
    hosts.await_members(2)
    hosts.start([victims[0]])
    hosts.await_members(3)
    assert [snapshot.name for snapshot in jet.snapshots()] == ["kept"]
    gate.touch()
    begun = counting(tmp_path / "b.json", 400, gate=gate, sources=1, counts=1, spreads=True, source=Shards)
    jet.new_job(begun, replace(CONFIG, initial_snapshot_name="kept")).run(SOON_S)
    suspended.resume()
    execution.result(SOON_S)
    assert json.loads((tmp_path / "a.json").read_text()) == exact(400, SHARDS)
    assert json.loads((tmp_path / "b.json").read_text()) == exact(400, SHARDS)


def test_a_host_without_room_fails_snapshots_and_not_the_job(
    hosts: Hosts, jet: JetInstance, tmp_path: Path, eventually: Eventually
) -> None:
    file, gate = tmp_path / "result.json", tmp_path / "gate"
    job = jet.new_job(counting(file, 400, gate=gate, sources=1, counts=1, spreads=True, source=Shards), CONFIG)
    execution = job.execute()
    eventually(lambda: job.metrics().last_snapshot_id > 0)
    full = next(host for host in hosts.hosts if host.address == jet.cluster.members[-1].address)
    filler = full.shm / "filler"
    with filler.open("wb", buffering=0) as stream, contextlib.suppress(OSError):
        while stream.write(bytes(1 << 16)):
            pass
    eventually(lambda: "No space left" in hosts.logs())
    before = job.metrics().last_snapshot_id
    filler.unlink()
    eventually(lambda: job.metrics().last_snapshot_id > before)
    gate.touch()
    execution.result(SOON_S)
    assert json.loads(file.read_text()) == exact(400, SHARDS)
