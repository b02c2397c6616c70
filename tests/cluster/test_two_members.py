"""Two members on one host as their users and monitors see them: traffic between them, and logs from both."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from typing import Any

import pytest

import shmjet
from shmjet import (
    DAG,
    AbstractProcessor,
    ClientConfig,
    JetConfig,
    JetInstance,
    JobConfig,
    JobStatus,
    Processor,
    ProcessorContext,
    between,
    new_client,
    processors,
)
from shmjet.cli.app import run_application
from shmjet.cluster.client.remote import endpoint_of
from shmjet.cluster.monitor.remote import RemoteMonitor
from shmjet.core import Outbox

SECRET = "a secret of these tests"
ITEMS = 2000

pytestmark = pytest.mark.slow


class Talkative(AbstractProcessor):
    """Says that it begins and ends."""

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        super().init(outbox, context)
        context.logger.info("begins %d", context.global_index)

    def try_process_any(self, ordinal: int, item: Any) -> bool:
        return self.try_emit(item)

    def close(self) -> None:
        self.context.logger.warning("ends %d", self.context.global_index, extra={"index": self.context.global_index})
        logging.getLogger("users.own").info("not worth sending")


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[JetInstance, JetInstance]]:
    """Two members with a worker each; the first coordinates."""
    with shmjet.new_instance(JetConfig(cores=1, bind="127.0.0.1:0", secret=SECRET)) as first:
        address = first.cluster.members[0].address
        config = JetConfig(cores=1, bind="127.0.0.1:0", secret=SECRET, members=[address])
        with shmjet.new_instance(config) as second:
            yield first, second


@pytest.fixture
def client(pair: tuple[JetInstance, JetInstance]) -> Iterator[JetInstance]:
    """A client of the second member, which passes on what it is asked."""
    address = pair[0].cluster.members[1].address
    with new_client([address], ClientConfig(secret=SECRET)) as jet:
        yield jet


def talkative() -> DAG:
    dag = DAG()
    source = dag.new_vertex("source", processors.read_items(range(ITEMS)))
    talk = dag.new_vertex("talk", Talkative, 1)
    sink = dag.new_vertex("sink", processors.noop())
    return dag.edge(between(source, talk).partitioned(lambda item: item).distributed()).edge(between(talk, sink))


def heard(jet: JetInstance, caplog: pytest.LogCaptureFixture, name: str) -> list[logging.LogRecord]:
    """Run a job and return what its processors had said when it had ended, as far as it came over the network."""
    with caplog.at_level(logging.INFO):
        caplog.clear()
        jet.new_job(talkative(), JobConfig(name=name)).run(60)
    return [record for record in caplog.records if getattr(record, "member", "") and record.name != "shmjet.member"]


def test_a_client_hears_the_processors_of_all_members(client: JetInstance, caplog: pytest.LogCaptureFixture) -> None:
    records = heard(client, caplog, "heard by a client")
    said = sorted(record.getMessage() for record in records)
    assert said == ["begins 0", "begins 1", "ends 0", "ends 1"]
    addresses = [member.address for member in client.cluster.members]
    pids = {member.address: member.workers for member in client.cluster.members}
    for record in records:
        text, seen = record.getMessage(), vars(record)
        assert (seen["job"], seen["vertex"], seen["worker"]) == ("heard by a client", "talk", 0)
        assert len(seen["job_id"]) == 16
        assert seen["member"] == addresses[int(text.split()[1])]
        assert record.process in pids[seen["member"]]
        assert record.name == "shmjet.job.talk"
    assert {vars(record)["index"] for record in records if record.levelno == logging.WARNING} == {0, 1}


def test_a_member_of_ones_own_hears_the_other_one_by_network(
    pair: tuple[JetInstance, JetInstance], caplog: pytest.LogCaptureFixture
) -> None:
    addresses = [member.address for member in pair[0].cluster.members]
    for own, jet in enumerate(pair):
        records = heard(jet, caplog, f"heard by member {own}")
        other = 1 - own
        assert sorted(record.getMessage() for record in records) == [f"begins {other}", f"ends {other}"]
        assert {vars(record)["member"] for record in records} == {addresses[other]}


def test_what_goes_from_member_to_member_is_counted(pair: tuple[JetInstance, JetInstance]) -> None:
    job = pair[1].new_job(talkative())
    job.run(60)
    metrics = job.metrics()
    crossing, local = metrics.edges
    first, second = (member.address for member in pair[0].cluster.members)
    assert [(traffic.member, traffic.peer) for traffic in crossing.traffic] == [(first, second), (second, first)]
    there, back = crossing.traffic
    assert (there.items_out, there.bytes_out) == (back.items_in, back.bytes_in)
    assert (back.items_out, back.bytes_out) == (there.items_in, there.bytes_in)
    assert crossing.distributed_items_in == crossing.distributed_items_out == there.items_out + back.items_out
    assert crossing.distributed_bytes_in == crossing.distributed_bytes_out > 0
    assert 0 < crossing.distributed_items_in < crossing.received_count == ITEMS
    assert local.traffic == []
    assert local.distributed_items_out == 0


class Endless(Processor):
    """Emits numbers until it is cancelled."""

    def complete(self) -> bool:
        self.outbox.offer_all(list(range(64)))
        self.next_call = 0.02  # without a pause it would take both cores from other tests
        return False


@pytest.fixture
def busy(pair: tuple[JetInstance, JetInstance], eventually: Callable[..., None]) -> Iterator[str]:
    """The name of a job that runs on both members."""
    dag = DAG()
    source, sink = dag.new_vertex("endless", Endless), dag.new_vertex("sink", processors.noop())
    dag.edge(between(source, sink).partitioned(lambda item: item).distributed())
    execution = pair[0].new_job(dag, JobConfig(name="busy on both")).execute()
    eventually(lambda: all(edge.distributed_items_in for edge in execution.metrics().edges))
    yield "busy on both"
    execution.cancel()
    eventually(execution.done)


@pytest.fixture
def said(
    pair: tuple[JetInstance, JetInstance], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """`said("jobs")` asks the second member by its address and returns what was printed as JSON."""
    monkeypatch.setenv("SHMJET_SECRET", SECRET)
    address = pair[1].cluster.members[1].address

    def ask(*words: str) -> Any:
        capsys.readouterr()
        assert run_application([*words, "--json", "--address", address]) == 0
        return json.loads(capsys.readouterr().out)

    return ask


Until = Callable[[Callable[[], object]], None]


def test_any_member_tells_of_all_members_and_workers(
    pair: tuple[JetInstance, JetInstance], busy: str, said: Callable[..., Any], eventually: Until
) -> None:
    members = pair[0].cluster.members
    workers = [member.workers for member in members]

    def all_answer() -> bool:  # on a busy machine one may be late
        rows = said("cluster")
        return [tuple(row.get("workers", ())) for row in rows] == workers and all(row["running_jobs"] for row in rows)

    eventually(all_answer)
    cluster = said("cluster")
    assert [row["address"] for row in cluster] == [member.address for member in members]
    assert [row.get("is_coordinator") for row in cluster][:1] == [True]
    (job,) = said("jobs")
    assert (job["name"], job["status"], job["member"]) == (busy, "running", members[0].address)
    seen: list[Any] = []

    def the_whole_job_is_shown() -> bool:
        seen[:] = said("top")
        jobs = [job for row in seen for job in row["jobs"]]
        return len(seen) == 2 and len(jobs) == 1 and [v["processors"] for v in jobs[0]["vertices"]] == [2, 2]

    eventually(the_whole_job_is_shown)
    assert [tuple(worker["pid"] for worker in row["workers"]) for row in seen] == workers
    assert all(worker["rss"] > 1 << 20 for row in seen for worker in row["workers"])
    ((shown,), ()) = [row["jobs"] for row in seen]
    assert shown["name"] == busy
    assert shown["edges"][0]["network_items"] > 0
    assert {(worker["member"], worker["pid"]) for worker in shown["workers"]} == {
        (member.address, pid) for member in members for pid in member.workers
    }


def test_a_dump_has_the_stacks_of_all_members(
    pair: tuple[JetInstance, JetInstance], busy: str, said: Callable[..., Any]
) -> None:
    report = said("dump")
    for member, dump in zip(pair[0].cluster.members, report["members"], strict=True):
        assert (dump["address"], dump["pid"]) == (member.address, member.pid), dump
        stacks = {process["pid"]: process["stacks"] for process in dump["processes"]}
        assert all("worker.py" in stacks[pid] for pid in member.workers)
        assert [
            process["stacks_by"] != "none" for process in dump["processes"] if process["name"] == "shmjet-link"
        ] == [True]
        assert dump["executions"][-1]["job_name"] == busy
        assert dump["executions"][-1]["rings"]
    assert SECRET not in json.dumps(report)


def test_members_of_one_host_show_a_job_of_both_once(
    pair: tuple[JetInstance, JetInstance], busy: str, capsys: pytest.CaptureFixture[str], eventually: Until
) -> None:
    pids = [member.pid for member in pair[0].cluster.members]
    capsys.readouterr()
    assert run_application(["jobs", "--json"]) == 0
    rows = [row for row in json.loads(capsys.readouterr().out) if row["member_pid"] in pids]
    assert [(row["name"], row["member_pid"]) for row in rows] == [(busy, pids[0])]

    def the_whole_job_is_shown_once() -> bool:
        capsys.readouterr()
        assert run_application(["top", "--json"]) == 0
        jobs = {row["pid"]: row["jobs"] for row in json.loads(capsys.readouterr().out)}
        shown = [[job["vertices"][0]["processors"] for job in jobs.get(pid, ())] for pid in pids]
        return shown == [[2], []]

    eventually(the_whole_job_is_shown_once)


@pytest.mark.parametrize("way", ["on this host", "by an address"])
def test_each_member_has_its_own_part_in_the_metrics_for_prometheus(
    pair: tuple[JetInstance, JetInstance], busy: str, way: str, eventually: Until
) -> None:
    pytest.importorskip("prometheus_client", reason="the extra `console` is not installed")
    from prometheus_client.parser import text_string_to_metric_families

    from shmjet.console.exposition import exposition
    from shmjet.console.member_finder import local_members, remote_members
    from shmjet.console.membership import WatchedMember

    members = pair[0].cluster.members
    uuids = [member.uuid for member in members]

    async def scrape(found: Any) -> bytes:
        watched = [WatchedMember(key, connect) for key, connect in found.items()]
        try:
            return exposition([(member, await member.readings()) for member in watched])
        finally:
            for member in watched:
                await member.close()

    def all_is_there(found: Any) -> bool:
        samples = [
            sample
            for family in text_string_to_metric_families(asyncio.run(scrape(found)).decode())
            for sample in family.samples
            if sample.labels.get("job") == busy
        ]
        who = {
            (sample.labels["processor"], sample.labels["member"])
            for sample in samples
            if sample.name == "shmjet_emitted_count_total"
        }
        crossing = {
            (sample.labels["member"], sample.labels["source_address"]): sample.value
            for sample in samples
            if sample.name == "shmjet_distributed_items_in_total"
        }
        wanted = {(uuids[0], members[1].address), (uuids[1], members[0].address)}
        return (
            who == {("0", uuids[0]), ("1", uuids[1])}
            and set(crossing) == wanted
            and all(v > 0 for v in crossing.values())
        )

    if way == "on this host":
        eventually(lambda: all_is_there(local_members([jet.folder for jet in pair])))
        return
    cluster = RemoteMonitor(endpoint_of([members[1].address], ClientConfig(secret=SECRET)))
    try:
        eventually(lambda: all_is_there(remote_members(cluster)))
    finally:
        cluster.close()


class Silent(Processor):
    """Emits nothing, and never ends."""

    next_call = 0.01

    def complete(self) -> bool:
        return False


def test_a_job_of_two_members_is_steered_by_way_of_the_one_that_does_not_coordinate(
    pair: tuple[JetInstance, JetInstance],
    client: JetInstance,
    eventually: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    dag = DAG()
    dag.new_vertex("silent", Silent, 1)
    job = client.new_job_if_absent(dag, JobConfig(name="steered"))
    execution = job.execute()
    assert pair[1].new_job_if_absent(dag, JobConfig(name="steered")).id == job.id
    job.suspend()
    eventually(lambda: job.status is JobStatus.SUSPENDED)
    assert job.suspension_cause is not None
    assert job.suspension_cause.requested_by_user
    seen = pair[0].job(name="steered")
    assert seen is not None
    assert seen.status is JobStatus.SUSPENDED
    monkeypatch.setenv("SHMJET_SECRET", SECRET)
    address = pair[0].cluster.members[1].address

    def told(*command: str) -> str:
        capsys.readouterr()
        assert run_application([*command, "--address", address]) == 0
        return capsys.readouterr().out

    eventually(lambda: "suspended by a user" in told("jobs"))  # a busy member may be late with its answer
    assert told("resume", "steered") == "job steered resumed\n"
    assert told("restart", "steered") == "job steered restarted\n"
    assert execution.metrics().attempts == 3
    assert client.snapshots() == []
    job.export_snapshot("spread", 60)  # without a guarantee
    assert [(found.name, found.job_name) for found in client.snapshots()] == [("spread", "steered")]
    client.snapshots()[0].destroy()
    job.cancel()
    with pytest.raises(CancelledError):
        execution.result(60)
