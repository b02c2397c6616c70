"""Members on hosts made of network namespaces: the same answers as on one, and an end to everything that goes wrong."""

from __future__ import annotations

import itertools
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from shmjet import (
    DAG,
    AuthenticationError,
    ClientConfig,
    Execution,
    JetInstance,
    JobConfig,
    JobStatus,
    MemberLostError,
    Pipeline,
    ProcessingGuarantee,
    Processor,
    WorkerLostError,
    aggregate_ops,
    between,
    new_client,
    processors,
    sinks,
    sources,
)
from shmjet.core.keys import partition_id
from tests.cluster.hosts import SECRET, Host, Hosts, wait_until, why_not
from tests.stopping import stop

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(why_not() is not None, reason=f"no hosts: {why_not()}"),
]

SOON_S = 60.0
"""Generous: on a quiet machine everything ends within five seconds, which stress/hosts.py measures."""
_names = itertools.count()


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with Hosts(3) as three:
        three.start()
        yield three


@pytest.fixture
def whole(hosts: Hosts) -> Hosts:
    """Three hosts, each with a member, all in one cluster."""
    hosts.heal()
    dead = [host for host in hosts.hosts if host.process is None]
    if dead:
        hosts.start(dead)
    hosts.await_members(3)
    return hosts


@pytest.fixture
def jet(whole: Hosts) -> Iterator[JetInstance]:
    with whole.client() as client:
        yield client


class Endless(Processor):
    def complete(self) -> bool:
        self.outbox.offer_all(list(range(64)))
        self.next_call = 0.02  # without a pause it would take both cores from other tests
        return False


def endless() -> DAG:
    dag = DAG()
    source, sink = dag.new_vertex("source", Endless), dag.new_vertex("sink", processors.noop())
    return dag.edge(between(source, sink).partitioned(lambda item: item).distributed())


def items(out: str) -> DAG:
    dag = DAG()
    source, sink = dag.new_vertex("items", processors.read_items(range(100))), processors.write_list(out)
    return dag.edge(between(source, dag.new_vertex("sink", sink)).distributed())


def running(jet: JetInstance, name: str | None = None, *, follows: bool = False) -> Execution:
    """Have a job run that fails when a member is lost, or that follows the cluster."""
    execution = jet.new_job(endless(), JobConfig(name=name, auto_scaling=follows)).execute()
    wait_until(lambda: execution.status is not JobStatus.STARTING, SOON_S, lambda: repr(execution))
    assert execution.status is JobStatus.RUNNING, execution.exception(0)
    return execution


def runs(execution: Execution) -> bool:
    return execution.status is JobStatus.RUNNING


def await_second_attempt(execution: Execution) -> None:
    """Wait until a job that follows the cluster runs again, and cancel it."""
    wait_until(
        lambda: execution.status is JobStatus.RUNNING and execution.metrics().attempts > 1,
        SOON_S,
        lambda: f"{execution!r}, attempts: {execution.metrics().attempts}",
    )
    execution.cancel()


def list_on(jet: JetInstance, host: Host) -> str:
    """Return the name of a list that lies on a member, and stays there: partitions of members that came have moved."""
    (uuid,) = [member.uuid for member in jet.cluster.members if member.address == host.address]

    def primaries() -> list[int]:
        return sorted(Counter(row[0] for row in jet.cluster.partition_table()).values())

    wait_until(
        lambda: len(primaries()) == len(jet.cluster.members) and primaries()[-1] - primaries()[0] <= 1,
        SOON_S,
        lambda: f"primaries by member: {primaries()}",
    )
    table = jet.cluster.partition_table()
    return next(name for name in map("list {}".format, itertools.count()) if table[partition_id(name)][0] == uuid)


def coordinator(hosts: Hosts, jet: JetInstance) -> Host:
    address = jet.cluster.members[0].address
    return next(host for host in hosts.hosts if host.address == address)


def others(hosts: Hosts, but: Host) -> list[Host]:
    return [host for host in hosts.hosts if host is not but]


WORDS = [f"word{number * number % 97}" for number in range(5000)]


def test_word_count_is_that_of_one_member(jet: JetInstance) -> None:
    pipeline = Pipeline()
    counted = (
        pipeline.read_from(sources.items(WORDS)).grouping_key(lambda word: word).aggregate(aggregate_ops.counting())
    )
    name = f"counts{next(_names)}"
    counted.write_to(sinks.map(name))
    jet.new_job(pipeline).run(60)
    assert dict(jet.get_map(name)) == Counter(WORDS)


@pytest.mark.parametrize("routing", ["unicast", "partitioned", "broadcast", "all_to_one", "fanout"])
def test_every_item_arrives_by_every_routing(jet: JetInstance, routing: str) -> None:
    dag, out = DAG(), f"out{next(_names)}"
    source = dag.new_vertex("items", processors.read_items(range(3000)))
    step = dag.new_vertex("step", processors.map(lambda item: item))
    sink = dag.new_vertex("sink", processors.write_list(out))
    edge = between(source, step)
    edge = edge.partitioned(lambda item: item) if routing == "partitioned" else getattr(edge, routing)()
    dag.edge(edge.distributed()).edge(between(step, sink))
    jet.new_job(dag).run(60)
    copies = {"broadcast": 3, "fanout": 3}.get(routing, 1)
    assert Counter(jet.get_list(out)) == dict.fromkeys(range(3000), copies)


def test_a_join_is_that_of_one_member(jet: JetInstance) -> None:
    pipeline, out = Pipeline(), f"joined{next(_names)}"
    from shmjet import join_map_entries

    orders = pipeline.read_from(sources.items([(number, number % 7) for number in range(1000)]))
    names = pipeline.read_from(sources.items([(key, f"name{key}") for key in range(5)]))
    joined = orders.hash_join(names, join_map_entries(lambda order: order[1]), lambda order, name: (order[0], name))
    joined.write_to(sinks.list(out))
    jet.new_job(pipeline).run(60)
    wanted = [(number, f"name{number % 7}" if number % 7 < 5 else None) for number in range(1000)]
    assert sorted(jet.get_list(out)) == sorted(wanted)


def test_processors_know_their_place_in_the_cluster(jet: JetInstance) -> None:
    class Told(Processor):
        def complete(self) -> bool:
            context: Any = self.context
            place = (context.member_index, context.local_index, context.global_index, context.total_parallelism)
            return bool(self.outbox.offer((*place, context.member_count)))

    dag, out = DAG(), f"places{next(_names)}"
    dag.edge(between(dag.new_vertex("told", Told, 2), dag.new_vertex("sink", processors.write_list(out))))
    jet.new_job(dag).run(60)
    assert sorted(jet.get_list(out)) == [(m, i, 2 * m + i, 6, 3) for m in range(3) for i in range(2)]


def test_metrics_are_those_of_all_members(jet: JetInstance, whole: Hosts) -> None:
    dag = DAG()
    source, sink = (
        dag.new_vertex("items", processors.read_items(range(1000))),
        dag.new_vertex("sink", processors.noop()),
    )
    job = jet.new_job(dag.edge(between(source, sink).distributed()))
    job.run(60)
    metrics = job.metrics()
    assert metrics.vertices["items"].emitted_count == metrics.vertices["sink"].received_count == 1000
    assert [processor.index for processor in metrics.vertices["sink"].processors] == [0, 1, 2]
    assert {worker.member for worker in metrics.workers} == {host.address for host in whole.hosts}


def test_attached_files_and_code_reach_all_members(jet: JetInstance, tmp_path: Any) -> None:
    class Reads(Processor):
        def complete(self) -> bool:
            context: Any = self.context
            return bool(self.outbox.offer((context.member_index, context.attached_file("data").read_bytes())))

    file = tmp_path / "data.bin"
    file.write_bytes(os.urandom(3 << 20))
    config = JobConfig().attach_file(file, "data")
    dag, out = DAG(), f"read{next(_names)}"
    dag.edge(between(dag.new_vertex("reads", Reads, 1), dag.new_vertex("sink", processors.write_list(out))))
    jet.new_job(dag, config).run(60)
    assert sorted(jet.get_list(out)) == [(member, file.read_bytes()) for member in range(3)]


def test_the_first_error_anywhere_ends_the_job_everywhere(jet: JetInstance, whole: Hosts) -> None:
    class Fails(Processor):
        def complete(self) -> bool:
            if self.context.member_index == 2:
                raise ValueError("on the third member")
            self.outbox.offer_all(list(range(64)))
            return False

    dag = DAG()
    dag.edge(between(dag.new_vertex("fails", Fails), dag.new_vertex("sink", processors.noop())).distributed())
    error = jet.new_job(dag).execute().exception(SOON_S)
    assert "on the third member" in str(error)
    assert getattr(error, "member", None) == jet.cluster.members[2].address
    assert getattr(error, "processor_index", None) == 2


def test_all_clients_see_all_jobs(jet: JetInstance, whole: Hosts) -> None:
    execution = running(jet, "seen by all")
    with whole.client(whole.hosts[::-1]) as other:
        job = other.job(name="seen by all")
        assert job is not None
        assert job.execution is not None
        wait_until(lambda: job.status is JobStatus.RUNNING, SOON_S, lambda: repr(job))
        assert job.cancel()
        with pytest.raises(CancelledError):
            job.execution.result(SOON_S)
    with pytest.raises(CancelledError):
        execution.result(SOON_S)


def test_a_wrong_secret_gets_nothing(whole: Hosts) -> None:
    with pytest.raises(AuthenticationError):
        new_client([whole.hosts[0].address], ClientConfig(secret="not the secret"))


def test_members_say_what_is_open_and_never_the_secret(whole: Hosts) -> None:
    with pytest.raises(AuthenticationError):
        new_client([whole.hosts[0].address], ClientConfig(secret="not the secret"))
    with whole.client() as jet:
        jet.new_job(items("logged")).run(60)
    logs = whole.logs()
    for host in whole.hosts:
        assert f"listens on tcp {host.address}" in logs
    assert "open only to members and clients that prove that they know the secret" in logs
    assert "clients may run any code here" in logs
    assert SECRET not in logs
    assert "not the secret" not in logs
    for host in whole.hosts:
        for pid in (host.pid, *host.children("")):
            assert SECRET.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_when_a_member_is_killed_its_jobs_fail_and_the_rest_goes_on(jet: JetInstance, whole: Hosts) -> None:
    victim = others(whole, coordinator(whole, jet))[0]
    execution, follower = running(jet), running(jet, follows=True)
    whole.kill(victim)
    error = execution.exception(SOON_S)
    assert isinstance(error, MemberLostError)
    assert victim.address in str(error)
    whole.await_members(2)
    await_second_attempt(follower)
    running(jet).cancel()


def test_when_the_coordinator_is_killed_another_one_takes_over(whole: Hosts) -> None:
    with whole.client() as jet:
        victim = coordinator(whole, jet)
    with whole.client(others(whole, victim)) as jet:
        execution, follower = running(jet), running(jet, follows=True)
        whole.kill(victim)
        error = execution.exception(SOON_S)
        assert isinstance(error, MemberLostError)
        assert victim.address in str(error)
        wait_until(lambda: len(jet.cluster.members) == 2, SOON_S, lambda: repr(jet.cluster.members))
        await_second_attempt(follower)
        running(jet).cancel()


def test_what_was_asked_while_the_coordinator_was_lost_is_asked_of_the_next_one(
    whole: Hosts, eventually: Callable[[Callable[[], object]], None]
) -> None:
    with whole.client() as jet:
        lost = coordinator(whole, jet)
    with whole.client(others(whole, lost)) as jet, ThreadPoolExecutor(2) as threads:
        name = list_on(jet, lost)
        job = jet.new_job(items(name))
        job.run(60)
        eventually(lambda: jet.cluster.is_safe)
        stop(lost.pid)
        try:
            jobs = threads.submit(jet.jobs)
            size = threads.submit(lambda: len(jet.get_list(name)))
            (found,) = [listed for listed in jobs.result(SOON_S) if listed.id == job.id]
            assert found.status is JobStatus.COMPLETED, "the next coordinator knows the lost coordinator's jobs"
            assert size.result(SOON_S) == 100, "what it had is on another one"
            job.run(60)  # though the member that knew it is gone
            assert sorted(jet.get_list(name)) == sorted([*range(100), *range(100)])
        finally:
            os.kill(lost.pid, signal.SIGCONT)
        whole.await_members(3)
        assert jet.cluster.members[0].address != lost.address


def test_a_future_survives_the_loss_of_the_member_that_a_client_is_connected_to(whole: Hosts) -> None:
    with whole.client() as jet:
        leader = coordinator(whole, jet)
    first, second = others(whole, leader)
    whole.kill(second)
    whole.await_members(2)
    with whole.client([first, leader]) as jet:
        execution = running(jet)  # on these two
        whole.start([second])
        whole.await_members(3)
        with whole.client([second, first]) as visitor:
            job = visitor.job(id=jet.jobs()[-1].id)
            assert job is not None
            watched = job.execution
            assert watched is not None
            whole.kill(second)  # the visitor's member, which has no part in the job
            execution.cancel()
            with pytest.raises(CancelledError):
                watched.result(SOON_S)


@pytest.mark.parametrize("what", ["worker", "link"])
def test_when_a_process_of_a_member_is_killed_its_jobs_end(jet: JetInstance, whole: Hosts, what: str) -> None:
    victim = others(whole, coordinator(whole, jet))[0]
    execution = running(jet)
    member = next(member for member in jet.cluster.members if member.address == victim.address)
    os.kill(member.workers[0] if what == "worker" else victim.children("shmjet-link")[0], signal.SIGKILL)
    error = execution.exception(SOON_S)
    assert isinstance(error, WorkerLostError if what == "worker" else MemberLostError)
    assert victim.address in str(error)
    whole.await_members(3)
    running(jet).cancel()


def test_a_member_that_stood_still_is_fenced_and_comes_back(jet: JetInstance, whole: Hosts) -> None:
    victim = others(whole, coordinator(whole, jet))[0]
    before = {member.uuid for member in jet.cluster.members if member.address == victim.address}
    execution = running(jet)
    stop(victim.pid)
    error = execution.exception(SOON_S)
    assert isinstance(error, MemberLostError)
    assert victim.address in str(error)
    after = running(jet)
    os.kill(victim.pid, signal.SIGCONT)
    whole.await_members(3)
    assert before.isdisjoint(member.uuid for member in jet.cluster.members)
    assert after.status is JobStatus.RUNNING
    after.cancel()


def test_of_a_network_that_is_cut_the_larger_part_goes_on(whole: Hosts) -> None:
    with whole.client() as jet:
        lonely = coordinator(whole, jet)
    rest = others(whole, lonely)
    with whole.client(rest) as jet:
        execution, follower = running(jet), running(jet, follows=True)
        whole.cut([lonely])
        error = execution.exception(SOON_S)
        assert isinstance(error, MemberLostError)
        assert lonely.address in str(error)
        wait_until(lambda: len(jet.cluster.members) == 2, SOON_S, lambda: repr(jet.cluster.members))
        await_second_attempt(follower)
        survivor = running(jet)
        whole.heal()
        whole.await_members(3)
        assert survivor.status is JobStatus.RUNNING, survivor.exception(0)
        survivor.cancel()
        assert jet.cluster.members[0].address != lonely.address


def test_a_protected_job_runs_in_neither_half_and_goes_on_when_they_have_met(whole: Hosts) -> None:
    with whole.client() as jet:
        first = coordinator(whole, jet)
    second, third = others(whole, first)
    with whole.client([first]) as jet:
        config = JobConfig(
            name="protected",
            split_brain_protection=True,
            processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE,
            snapshot_interval=0.1,
        )
        protected, plain = jet.new_job(endless(), config).execute(), running(jet, follows=True)
        wait_until(lambda: protected.status is JobStatus.RUNNING, SOON_S, lambda: repr(protected))
        whole.kill(third)
        whole.await_members(2)
        whole.cut([second])
        wait_until(lambda: protected.status is JobStatus.NOT_RUNNING, SOON_S, lambda: repr(protected))
        wait_until(lambda: "2 members" in protected.metrics().waits_for, SOON_S, lambda: protected.metrics().waits_for)
        wait_until(lambda: plain.status is JobStatus.RUNNING, SOON_S, lambda: repr(plain))
        whole.heal()
        whole.await_members(2)
        for execution in (protected, plain):
            wait_until(
                lambda execution=execution: execution.status is JobStatus.RUNNING,
                SOON_S,
                lambda execution=execution: repr(execution),
            )
            execution.cancel()


def test_one_that_leaves_is_no_loss(whole: Hosts) -> None:
    with whole.client() as jet:
        leaver = coordinator(whole, jet)
    with whole.client(others(whole, leaver)) as jet:
        whole.stop(leaver)
        wait_until(lambda: len(jet.cluster.members) == 2, SOON_S, lambda: repr(jet.cluster.members))
        assert leaver.address not in [member.address for member in jet.cluster.members]
        running(jet).cancel()
