"""Where partitions lie, as users and monitors see it: on one member, on two, and where jobs bring their items."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import shmjet
from shmjet import DAG, AbstractProcessor, ClientConfig, JetConfig, JetInstance, between, new_client, processors
from shmjet.cli.app import run_application
from shmjet.cluster.member.partitions import Partitions
from shmjet.cluster.membership.views import Peer, View
from shmjet.cluster.partitions.table import Change, Event, Holder, PartitionTable
from shmjet.cluster.protocol import DescribePartitions, PartitionCounts, PartitionsReply, Refused
from shmjet.core.keys import partition_id

SECRET = "a secret of these tests"
COUNT = 31


class Network:
    """A member's network, as far as partitions are concerned."""

    trouble = "this member has lost touch with others"
    is_cut_off = True

    def __init__(self, table: PartitionTable | None) -> None:
        self.table = table


class Client:
    def __init__(self) -> None:
        self.answers: list[Any] = []

    def send(self, message: object) -> None:
        self.answers.append(message)


def partitions(table: PartitionTable | None, backups: int = 1) -> Partitions:
    return Partitions(Network(table), COUNT, backups, lambda: "me")


def answer(of: Partitions) -> Any:
    client = Client()
    of.describe(client, DescribePartitions(7))
    (found,) = client.answers
    return found


def test_a_member_alone_has_all_partitions() -> None:
    alone = Partitions(None, COUNT, 1, lambda: "me")
    assert answer(alone) == PartitionsReply(7, ["me"], [(0,)] * COUNT, is_safe=True, me="me")
    assert alone.counts() == PartitionCounts(COUNT, 0, 0)


def test_a_member_without_a_view_says_why_it_cannot_tell() -> None:
    assert answer(partitions(None)) == Refused(7, "ShmjetError", Network.trouble)
    assert partitions(None).counts() == PartitionCounts()


def test_a_missing_backup_and_one_that_is_being_made_are_not_safe() -> None:
    members = [Holder("me", "one"), Holder("you", "two")]
    without = PartitionTable.first(1, COUNT, members, 0)
    assert not answer(partitions(without)).is_safe
    assert answer(partitions(without, backups=0)).is_safe
    table = PartitionTable.first(1, COUNT, members, 1)
    assert answer(partitions(table)).is_safe
    stale = table.changed([Change(Event.STALE, 0, table.owners()[0][1])])
    assert not answer(partitions(stale)).is_safe
    counts = partitions(stale).counts()
    assert counts.primaries + counts.backups + counts.copying == COUNT


def test_a_job_on_other_members_than_those_of_the_table_deals_partitions_out() -> None:
    """A member that is cut off runs its jobs alone."""
    table = PartitionTable.first(1, COUNT, [Holder("me", "one"), Holder("you", "two")], 0)
    me, you = Peer("me", "one:1", 1), Peer("you", "two:1", 2)
    of = partitions(table)
    assert of.owners(View(1, (me, you), (1, 1))).places == table.primaries()
    assert of.owners(View(0, (me,), (0,))).places == []


def test_a_job_that_begins_while_partitions_move_has_them_where_they_go() -> None:
    alone = PartitionTable.first(1, COUNT, [Holder("me", "one")], 0)
    table, _ = alone.after(2, [Holder("me", "one"), Holder("you", "two")], 0)
    assert set(table.primaries()) == {0}
    places = partitions(table).owners(View(2, (Peer("me", "one:1", 1), Peer("you", "two:1", 2)), (1, 2))).places
    assert sorted(Counter(places).values()) == [COUNT // 2, COUNT - COUNT // 2]


@pytest.fixture(scope="module")
def jet() -> Iterator[JetInstance]:
    with shmjet.new_instance(JetConfig(cores=1, partition_count=COUNT)) as instance:
        yield instance


def test_on_one_member_all_partitions_lie_there(jet: JetInstance) -> None:
    (member,) = jet.cluster.members
    assert jet.cluster.partition_table() == ((member.uuid,),) * COUNT
    assert jet.cluster.is_safe


class PlacedItems(AbstractProcessor):
    """Emits each item with the place of the member that it has come to."""

    def try_process_any(self, ordinal: int, item: Any) -> bool:
        return self.try_emit((item, self.context.member_index))


def config(*members: str) -> JetConfig:
    return JetConfig(cores=1, bind="127.0.0.1:0", secret=SECRET, members=members, partition_count=COUNT)


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[JetInstance, JetInstance]]:
    """Two members with a worker each; the first coordinates."""
    with shmjet.new_instance(config()) as first:
        (alone,) = first.cluster.members
        assert first.cluster.partition_table() == ((alone.uuid,),) * COUNT
        assert first.cluster.is_safe
        with shmjet.new_instance(config(alone.address)) as second:
            deadline = time.monotonic() + 60  # a new member waits for its share, but not for long
            while max(Counter(row[0] for row in first.cluster.partition_table()).values()) > COUNT - COUNT // 2:
                assert time.monotonic() < deadline
            while not first.cluster.is_safe:
                assert time.monotonic() < deadline
            yield first, second


@pytest.mark.slow
def test_two_members_share_the_partitions(
    pair: tuple[JetInstance, JetInstance], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = pair
    members = first.cluster.members
    table = first.cluster.partition_table()
    assert second.cluster.partition_table() == table
    counts = Counter(owners[0] for owners in table)
    assert sorted(counts.values()) == [COUNT // 2, COUNT - COUNT // 2]
    assert set(counts) == {member.uuid for member in members}
    assert all(set(owners) == set(counts) for owners in table), "the other one has a backup"
    assert first.cluster.is_safe
    assert second.cluster.is_safe
    with new_client([members[1].address], ClientConfig(secret=SECRET)) as client:
        assert client.cluster.partition_table() == table
    monkeypatch.setenv("SHMJET_SECRET", SECRET)
    assert run_application(["cluster", "--json", "--address", members[0].address]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["uuid"]: row["partitions"]["primaries"] for row in rows} == counts
    for row in rows:
        assert row["partitions"]["primaries"] + row["partitions"]["backups"] == COUNT
        assert row["partitions"]["copying"] == 0


@pytest.mark.slow
def test_edges_between_members_follow_the_table(pair: tuple[JetInstance, JetInstance]) -> None:
    first, _ = pair
    dag = DAG()
    source = dag.new_vertex("source", processors.read_items(range(200)))
    placed = dag.new_vertex("placed", PlacedItems, 1)
    sink = dag.new_vertex("sink", processors.write_list("placed"))
    dag.edge(between(source, placed).partitioned(lambda item: item).distributed()).edge(between(placed, sink))
    first.new_job(dag).run(60)
    table = first.cluster.partition_table()
    uuids = [member.uuid for member in first.cluster.members]
    found = dict(first.get_list("placed"))
    assert found == {item: uuids.index(table[partition_id(item, COUNT)][0]) for item in range(200)}
