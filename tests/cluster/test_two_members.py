"""What two members on one host tell those who use or watch them: traffic between them, and logs from both."""

from __future__ import annotations

import logging
from collections.abc import Iterator
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
    ProcessorContext,
    between,
    new_client,
    processors,
)
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
