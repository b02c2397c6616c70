"""Jobs on members of one host, some of which are killed: what goes on, from where, and what does not."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

import shmjet
from shmjet import (
    DAG,
    ClientConfig,
    Execution,
    JetConfig,
    JetInstance,
    Job,
    JobConfig,
    JobStatus,
    Member,
    MemberLostError,
    ProcessingGuarantee,
    Processor,
    ShmjetError,
    between,
    from_,
    sinks,
)
from shmjet.cluster.jobs.cluster import SKEW_S
from shmjet.core import Inbox, Outbox, ProcessorContext
from shmjet.core.processor import ProcessorMetaSupplier, ProcessorSupplier
from tests.cluster.counting import SHARDS, Shards, counting, exact
from tests.stopping import stop
from tests.waiting import until, until_there

SOON_S = 60.0
SECRET = "hush"
DELAY_S = 0.1
"""After a join; no member joins while jobs run that are not to be restarted."""
COUNT = 200
pytestmark = pytest.mark.slow
Eventually = Callable[[Callable[[], object]], None]


class Cluster:
    """Three members with a worker each; the lost ones are replaced for the next test."""

    def __init__(self) -> None:
        self._members: list[JetInstance] = []
        self._lost: list[JetInstance] = []

    def fill(self, count: int = 3) -> list[JetInstance]:
        """Return members, the oldest first: so many, or as many as there are, if these are more."""
        while len(self._members) < count:
            seeds = tuple(own(member).address for member in self._members)
            config = JetConfig(cores=1, bind="127.0.0.1:0", secret=SECRET, members=seeds, scale_up_delay=DELAY_S)
            self._members.append(shmjet.new_instance(config))
        all_found = partial(self._see, len(self._members))
        until(all_found, seen=self.seen)
        order = [found.uuid for found in self._members[0].cluster.members]
        return sorted(self._members, key=lambda member: order.index(own(member).uuid))

    def _see(self, count: int) -> bool:
        """Whether each member sees so many."""
        return all(len(member.cluster.members) == count for member in self._members)

    def seen(self) -> str:
        """Say what members and jobs there are, for a test whose patience ends."""
        found = []
        for member in self._members:
            try:
                address, *jobs = own(member).address, *member.jobs()
                found.append(f"{address} sees {[other.address for other in member.cluster.members]}")
                found += [f"{job.name}: {job.status.name}, {job.explain_time()}" for job in jobs]
            except (ShmjetError, StopIteration) as error:
                found.append(f"a member says {error!r}")
        return "; ".join(found)

    def kill(self, member: JetInstance) -> None:
        """Kill a member's process."""
        os.kill(own(member).pid, signal.SIGKILL)
        self.leaves(member)

    def leaves(self, member: JetInstance) -> None:
        """Take that a member is not to be used any more."""
        self._members.remove(member)
        self._lost.append(member)

    def close(self) -> None:
        for member in (*self._lost, *self._members):
            member.shutdown()


def own(member: JetInstance) -> Member:
    return next(found for found in member.cluster.members if found.is_local)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    found = Cluster()
    try:
        yield found
    finally:
        found.close()


@pytest.fixture
def eventually(cluster: Cluster) -> Eventually:
    """Wait as everywhere, and say what there is instead."""
    return partial(until, seen=cluster.seen)


class Restorable(Shards):
    """Says when it goes on from a snapshot."""

    def restore_from_snapshot(self, inbox: Inbox) -> None:
        assert self._gate is not None
        self._gate.with_suffix(".restored").touch()
        super().restore_from_snapshot(inbox)


class Hesitant(Restorable):
    """Saves its state when it is let."""

    def save_to_snapshot(self) -> bool:
        assert self._gate is not None
        self._gate.with_suffix(".saving").touch()
        return self._gate.with_suffix(".saves").exists() and super().save_to_snapshot()


class Blocked(Shards):
    """Says that it is being made, and waits until it is let."""

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        super().init(outbox, context)
        assert self._gate is not None
        self._gate.with_suffix(f".{os.getpid()}").touch()
        until_there(self._gate.with_suffix(".go"))


class Counting:
    """A job that counts, and ends when it is let go."""

    def __init__(
        self, folder: Path, jet: JetInstance, name: str, config: JobConfig, source: type[Shards] = Restorable
    ) -> None:
        self.file, self.gate = folder / f"{name}.json", folder / f"{name}.gate"
        config.name = name
        dag = counting(self.file, COUNT, gate=self.gate, sources=1, counts=1, spreads=True, source=source)
        self.job: Job = jet.new_job(dag, config)
        self.execution: Execution = self.job.execute()

    @property
    def is_restored(self) -> bool:
        """Whether it has gone on from a snapshot."""
        return self.gate.with_suffix(".restored").exists()

    def has_snapshot(self, after: int | None = 0) -> bool:
        return (self.job.metrics().last_snapshot_id or 0) > (after or 0)

    def ends_well(self) -> None:
        self.gate.touch()
        self.execution.result(SOON_S)
        assert json.loads(self.file.read_text()) == exact(COUNT, SHARDS)


def guaranteed(**settings: object) -> JobConfig:
    chosen = {"processing_guarantee": ProcessingGuarantee.EXACTLY_ONCE, "snapshot_interval": 0.05, **settings}
    return JobConfig(**chosen)  # type: ignore[arg-type]


def test_a_lost_member_restarts_suspends_or_fails_jobs_as_they_ask(
    cluster: Cluster, tmp_path: Path, eventually: Eventually
) -> None:
    members = cluster.fill()
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
    lost = own(members[2]).address
    cluster.kill(members[2])
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
    assert [one.is_restored for one in (goes_on, begins_anew, is_suspended)] == [True, False, True]
    assert stays.job.status is JobStatus.SUSPENDED
    stays.job.resume()
    stays.ends_well()


class Gated:
    """A job that writes numbers to an observable and to a list, and ends when it is let go."""

    def __init__(self, folder: Path, jet: JetInstance) -> None:
        self.gate = gate = folder / "written.gate"
        self.items = jet.get_observable("written").to_future(list)
        self.collected = sinks.collect()
        dag = DAG()
        numbers = dag.new_vertex("numbers", lambda: Shards(COUNT, gate), 1)
        dag.edge(between(numbers, dag.new_vertex("observable", sinks.observable("written").supplier, 1)))
        dag.edge(from_(numbers, 1).to(dag.new_vertex("collect", self.collected.supplier, 1)))
        self.execution = jet.new_job(dag, JobConfig(name="written")).execute()

    def ends_well(self) -> None:
        self.gate.touch()
        self.execution.result(SOON_S)
        assert set(self.collected) == set(range(COUNT))
        assert set(self.items.result(SOON_S)) <= set(range(COUNT))


class Committing(ProcessorMetaSupplier):
    """Its processors end at once; its results are being made visible until a file is there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, addresses: Sequence[str]) -> Mapping[str, ProcessorSupplier]:
        return dict.fromkeys(addresses, ProcessorSupplier.of(Nothing))

    def commit(self) -> None:
        with (self._folder / "commits").open("a") as file:
            file.write("begun\n")
        until_there(self._folder / "commit")


class Nothing(Processor):
    def complete(self) -> bool:
        return True


class Faulty(Processor):
    def complete(self) -> bool:
        raise ValueError("it is faulty")


def ended_job(jet: JetInstance, name: str, processor: type[Processor]) -> Job:
    """Return a job that has ended."""
    dag = DAG()
    dag.new_vertex(name, processor, 1)
    job = jet.new_job(dag, JobConfig(name=name))
    job.execute().exception(SOON_S)
    return job


def test_a_lost_coordinator_is_followed_by_another_one_that_goes_on_with_all_runs(
    cluster: Cluster, tmp_path: Path, eventually: Eventually
) -> None:
    members = cluster.fill()
    addresses = [found.address for found in members[0].cluster.members]
    lost = addresses[0]
    with shmjet.new_client(addresses[1:], ClientConfig(secret=SECRET)) as jet:
        ended = [ended_job(jet, "has ended", Nothing), ended_job(jet, "has failed", Faulty)]
        goes_on = Counting(tmp_path, jet, "goes on", guaranteed())
        begins_anew = Counting(tmp_path, jet, "begins anew", JobConfig())
        fails = Counting(tmp_path, jet, "fails", JobConfig(auto_scaling=False))
        is_suspended = Counting(tmp_path, jet, "is suspended", guaranteed(auto_scaling=False))
        stays = Counting(tmp_path, jet, "stays suspended", JobConfig())
        written = Gated(tmp_path, jet)
        told: list[str] = []
        begins_anew.execution.add_done_callback(lambda _: told.append("called back"))
        eventually(lambda: stays.job.status is JobStatus.RUNNING)
        stays.job.suspend()
        eventually(lambda: stays.job.status is JobStatus.SUSPENDED)
        eventually(lambda: {each.job.status for each in (begins_anew, fails, is_suspended)} == {JobStatus.RUNNING})
        eventually(lambda: goes_on.has_snapshot() and is_suspended.has_snapshot())
        dag = DAG()
        dag.new_vertex("committing", Committing(tmp_path))
        outcome = jet.new_job(dag).execute()  # from now on it has a worker for itself
        eventually(lambda: (tmp_path / "commits").exists())
        number = begins_anew.execution.id
        cluster.kill(members[0])
        with pytest.raises(MemberLostError, match=lost):
            fails.execution.result(SOON_S)
        with pytest.raises(MemberLostError, match="outcome of the job is unknown"):
            outcome.result(SOON_S)
        eventually(lambda: is_suspended.job.status is JobStatus.SUSPENDED)
        assert stays.job.status is JobStatus.SUSPENDED
        with shmjet.new_client(addresses[2:], ClientConfig(secret=SECRET)) as another:
            listed = [job for job in another.jobs() if job.id in {job.id for job in ended}]
            assert [job.id for job in listed] == [job.id for job in ended]
            assert [job.name for job in another.jobs()][-7:-2] == [
                *("goes on", "begins anew", "fails", "is suspended", "stays suspended")
            ]
            eventually(lambda: all(job.status.is_terminal for job in listed))
            assert [job.status for job in listed] == [JobStatus.COMPLETED, JobStatus.FAILED]
            assert [job.metrics().attempts for job in listed] == [1, 1]
            failed = listed[1].execution
            assert failed is not None
            assert "it is faulty" in str(failed.exception())
        begins_anew.ends_well()
        assert (begins_anew.execution.id, begins_anew.job.metrics().attempts) == (number, 2)
        eventually(lambda: told)
        written.ends_well()
        goes_on.ends_well()
        for one in (is_suspended, stays):
            one.job.resume()
            one.ends_well()
        each = (goes_on, is_suspended, begins_anew, stays)
        assert [one.is_restored for one in each] == [True, True, False, False]
        assert (tmp_path / "commits").read_text() == "begun\n"
        (tmp_path / "commit").touch()


def test_what_a_coordinator_is_asked_for_when_it_is_lost_is_asked_of_the_next_one(
    cluster: Cluster, tmp_path: Path, eventually: Eventually
) -> None:
    members = cluster.fill()
    addresses, pid = [found.address for found in members[0].cluster.members], own(members[0]).pid
    with shmjet.new_client(addresses[1:], ClientConfig(secret=SECRET)) as jet, ThreadPoolExecutor(3) as askers:
        seldom = partial(guaranteed, snapshot_interval=600)
        exported, ends = [Counting(tmp_path, jet, name, seldom(), Hesitant) for name in ("exported", "ends")]
        restarted = Counting(tmp_path, jet, "restarted", seldom())
        each = exported, ends, restarted
        eventually(lambda: {one.job.status for one in each} == {JobStatus.RUNNING})
        export = askers.submit(exported.job.export_snapshot, "exported")
        end = askers.submit(ends.job.cancel_and_export_snapshot, "ended")
        eventually(lambda: all(one.gate.with_suffix(".saving").exists() for one in (exported, ends)))
        os.kill(pid, signal.SIGSTOP)  # it answers no more, and is not missed yet
        restart = askers.submit(restarted.job.restart)
        os.kill(pid, signal.SIGKILL)
        cluster.leaves(members[0])
        for one in (exported, ends):
            one.gate.with_suffix(".saves").touch()
        restart.result(SOON_S)
        assert (export.result(SOON_S).name, end.result(SOON_S).name) == ("exported", "ended")
        assert {snapshot.name for snapshot in jet.snapshots()} == {"exported", "ended"}
        assert ends.job.status is JobStatus.FAILED
        assert ends.execution.cancelled()
        assert restarted.job.metrics().attempts > 1
        for one in (exported, restarted):
            one.ends_well()
        for snapshot in jet.snapshots():
            snapshot.destroy()


def test_what_a_coordinator_that_leaves_has_not_done_yet_is_asked_of_the_next_one(
    cluster: Cluster, tmp_path: Path, eventually: Eventually
) -> None:
    members = cluster.fill()
    leaver, addresses = members[0], [found.address for found in members[0].cluster.members]
    cluster.leaves(leaver)
    seldom = partial(guaranteed, snapshot_interval=600)
    with shmjet.new_client(addresses, ClientConfig(secret=SECRET)) as jet, ThreadPoolExecutor(3) as askers:
        held = Counting(tmp_path, jet, "held", seldom(), Hesitant)
        exported, ends = [Counting(tmp_path, jet, name, seldom()) for name in ("exported", "ends")]
        eventually(lambda: {one.job.status for one in (held, exported, ends)} == {JobStatus.RUNNING})
        left = askers.submit(leaver.shutdown)  # it waits for the state of one job, while the others wait for it
        eventually(lambda: exported.job.status is not JobStatus.RUNNING is not ends.job.status)
        export = askers.submit(exported.job.export_snapshot, "exported")
        end = askers.submit(ends.job.cancel_and_export_snapshot, "ended")
        held.gate.with_suffix(".saves").touch()
        assert (export.result(SOON_S).name, end.result(SOON_S).name) == ("exported", "ended")
        left.result(SOON_S)
        assert ends.execution.cancelled()
        for one in (held, exported):
            one.ends_well()
        for snapshot in jet.snapshots():
            snapshot.destroy()


def test_a_member_that_leaves_is_waited_for_until_jobs_have_saved_their_state(
    cluster: Cluster, tmp_path: Path, eventually: Eventually
) -> None:
    members = cluster.fill()
    jet, leaver = members[0], members[2]
    address = own(leaver).address
    cluster.leaves(leaver)
    goes_on = Counting(tmp_path, jet, "goes on", guaranteed(snapshot_interval=600))
    is_suspended = Counting(tmp_path, jet, "is suspended", guaranteed(snapshot_interval=600, auto_scaling=False))
    begins_anew = Counting(tmp_path, jet, "begins anew", JobConfig())
    all_of_them = (goes_on, is_suspended, begins_anew)
    eventually(lambda: {each.job.status for each in all_of_them} == {JobStatus.RUNNING})
    leaver.shutdown()
    eventually(lambda: goes_on.job.status is begins_anew.job.status is JobStatus.RUNNING)
    assert is_suspended.job.status is JobStatus.SUSPENDED
    cause = is_suspended.job.suspension_cause
    assert cause is not None
    assert address in (cause.error or "")
    assert [each.has_snapshot() for each in all_of_them] == [True, True, False]
    assert (goes_on.job.metrics().attempts, begins_anew.job.metrics().attempts) == (2, 2)
    is_suspended.job.resume()
    for each in all_of_them:
        each.ends_well()


def test_members_that_join_restart_what_scales_and_give_a_quorum(
    cluster: Cluster, tmp_path: Path, eventually: Eventually
) -> None:
    jet = cluster.fill(2)[0]
    scales = Counting(tmp_path, jet, "scales", guaranteed(snapshot_interval=600))
    fixed = Counting(tmp_path, jet, "fixed", JobConfig(auto_scaling=False))
    protected = Counting(tmp_path, jet, "protected", JobConfig(split_brain_protection=True))
    eventually(lambda: scales.job.status is fixed.job.status is protected.job.status is JobStatus.RUNNING)
    members = cluster.fill()
    eventually(lambda: scales.job.metrics().attempts == 2 and scales.job.status is JobStatus.RUNNING)
    eventually(lambda: protected.job.metrics().attempts == 2 and protected.job.status is JobStatus.RUNNING)
    assert scales.job.metrics().last_restart_cause == "members have joined the cluster"
    assert scales.is_restored
    assert fixed.job.metrics().attempts == 1
    for each in (scales, fixed):
        each.ends_well()
    for member in members[1:]:
        cluster.kill(member)
    eventually(lambda: protected.job.status is JobStatus.NOT_RUNNING)
    eventually(lambda: "it waits for 2 members" in str(protected.job.explain_time()))
    cluster.fill(2)
    protected.ends_well()


def test_a_coordinator_that_is_lost_while_the_first_attempt_starts_is_followed(
    cluster: Cluster, eventually: Eventually, tmp_path: Path
) -> None:
    first, second, _ = cluster.fill()
    counted = Counting(tmp_path, second, "blocked", guaranteed(snapshot_interval=600), source=Blocked)
    eventually(lambda: len(list(tmp_path.glob("blocked.[0-9]*"))) == 3)
    (worker,) = own(second).workers
    stop(worker)  # so the part of the first attempt is still here when the next one begins
    cluster.kill(first)
    eventually(lambda: len(second.cluster.members) == 2)
    with contextlib.suppress(ProcessLookupError):  # killed because it does not stop, which restarts the job
        os.kill(worker, signal.SIGCONT)
    assert [job.name for job in second.jobs() if not job.status.is_terminal] == ["blocked"]
    counted.gate.with_suffix(".go").touch()
    counted.ends_well()


@pytest.mark.parametrize("asks", ["a client of the coordinator", "another member"])
def test_a_job_that_is_submitted_to_a_coordinator_that_is_lost_runs_once(
    cluster: Cluster, tmp_path: Path, asks: str
) -> None:
    first, second, _ = cluster.fill()
    addresses = [own(first).address, own(second).address]
    time.sleep(SKEW_S)  # who has been a member for less cannot know that the request was not carried out
    with ThreadPoolExecutor(1) as threads, shmjet.new_client(addresses, ClientConfig(secret=SECRET)) as client:
        jet = second if asks == "another member" else client
        pid = own(first).pid
        stop(pid)
        submitted = threads.submit(Counting, tmp_path, jet, "once", JobConfig(split_brain_protection=True))
        os.kill(pid, signal.SIGKILL)
        cluster.leaves(first)
        counted = submitted.result(SOON_S)
        counted.ends_well()
        assert [job.status for job in jet.jobs() if job.id == counted.job.id] == [JobStatus.COMPLETED]
