"""Members that have all been away, and have on disk which partitions they had: who is waited for, and what counts."""

from __future__ import annotations

import random

import msgspec
import pytest

from shmjet.cluster.membership.events import JoinFailed
from shmjet.cluster.membership.state_machine import Membership
from shmjet.cluster.membership.views import JoinRequest, Peer
from shmjet.cluster.partitions.recovery import StoredTable, lost_partitions, recovered, waiting
from shmjet.cluster.partitions.table import Change, Event, Holder, PartitionTable
from tests.cluster.simulation import Node, Simulation
from tests.cluster.test_membership import together
from tests.examples import drawn

OLD = tuple(Holder(name, f"host of {name}") for name in ("a", "b", "c"))
NEW = tuple(Holder(name, f"host of {name}") for name in ("x", "y", "z"))
ADDRESSES = ("a:1", "b:1", "c:1")
COUNT = 12


def stored(uuid: str, table: PartitionTable) -> StoredTable:
    return StoredTable(uuid, table, tuple(f"{member}:1" for member in table.members))


def before() -> PartitionTable:
    return PartitionTable.first(7, COUNT, OLD, 1)


# -- the table --------------------------------------------------------------------------------------------------------


def test_it_waits_for_all_that_the_newest_table_names() -> None:
    table = waiting(1, stored("a", before()), NEW[:1], 1)
    assert table.is_waiting
    assert table.awaited == ("b:1", "c:1")
    assert table.origin == before().origin == "a"
    assert recovered(table, {}, NEW[:1], 1, all_came=False) is table
    assert recovered(table, {"x": stored("a", before())}, NEW[:1], 1, all_came=False) is table
    joined, lost = table.after(2, NEW[:2], 1)
    assert (joined.awaited, joined.origin, lost) == (table.awaited, "a", [])
    fewer = recovered(joined, {"x": stored("a", before()), "y": stored("b", before())}, NEW[:2], 1, all_came=False)
    assert (fewer.awaited, fewer.version) == (("c:1",), (2, 1))


def test_each_primary_is_who_had_the_partition_and_backups_are_made_anew() -> None:
    table, _ = waiting(1, stored("a", before()), NEW[:1], 1).after(2, NEW, 1)
    names = dict(zip("xyz", "bca", strict=True))
    found = {uuid: stored(old, before()) for uuid, old in names.items()}
    again = recovered(table, found, NEW, 1, all_came=False)
    assert not again.is_waiting
    assert [names[again.primary(partition)] for partition in range(COUNT)] == [row[0] for row in before().owners()]
    assert all(len(row) == 1 for row in again.synced)
    assert again.former == ("b", "c", "a")
    assert again.led_by == "z"
    assert {len(row) for row in again.copying} == {1}
    later, _ = again.after(3, [NEW[2], Holder("new", "there"), NEW[0]], 1)
    assert (later.former, later.led_by) == (("a", "", "b"), "z")
    assert later.origin == "a"


def test_the_runs_of_the_last_coordinator_count_until_the_present_one_goes_on_with_them() -> None:
    found = {uuid: stored(old, before()) for uuid, old in zip("xyz", "bca", strict=True)}
    table, _ = waiting(1, found["x"], NEW[:1], 1).after(2, NEW, 1)
    opened = recovered(table, found, NEW, 1, all_came=False)
    assert opened.led_by == "z"
    later, _ = opened.after(3, NEW[:2], 1)
    assert later.led_by == "z", "others have its records"
    assert later.changed([Change(Event.RESTORED, 0, "y")]) is later
    restored = later.changed([Change(Event.RESTORED, 0, "z")])
    assert (restored.led_by, restored.stamp) == ("", later.stamp + 1)
    for last, led_by in ((opened, "2"), (restored, "0")):  # all are away once more
        again = {str(place): stored(uuid, last) for place, uuid in enumerate(last.members)}
        members = [Holder(uuid, "there") for uuid in again]
        table, _ = waiting(9, again["0"], members[:1], 1).after(10, members, 1)
        assert recovered(table, again, members, 1, all_came=False).led_by == led_by


def test_an_older_table_counts_no_more() -> None:
    newer, lost = before().after(8, OLD[1:], 1)
    assert not lost
    found = {"x": stored("a", before()), "y": stored("b", newer)}
    table, _ = waiting(1, found["x"], NEW[:1], 1).after(2, NEW[:2], 1)
    assert recovered(table, found, NEW[:2], 1, all_came=False).awaited == ("c:1",)
    again = recovered(table, found | {"z": stored("c", newer)}, NEW, 1, all_came=False)
    assert again.former == ("", "b", "c")
    assert all(again.primary(partition) != "x" for partition in range(COUNT))


def test_a_member_that_has_handed_all_over_is_not_waited_for() -> None:
    leaving = before().changed([Change(Event.LEAVING, 0, "c")]).vacated(OLD, 1)
    found = {"x": stored("a", leaving), "y": stored("b", leaving)}
    table, _ = waiting(1, found["x"], NEW[:1], 1).after(2, NEW[:2], 1)
    assert recovered(table, found, NEW[:2], 1, all_came=False).awaited == ("c:1",)
    copied = leaving.changed(
        Change(Event.SYNCED, partition, leaving.members[place])
        for partition, row in enumerate(leaving.copying)
        for place in row
    )
    free = copied.changed(Change(Event.HANDED_OVER, *moved) for moved in copied.hand_overs())
    assert free.is_free("c")
    found = {"x": stored("a", free), "y": stored("b", free)}
    again = recovered(table, found, NEW[:2], 1, all_came=False)
    assert not again.is_waiting
    assert lost_partitions(again, found) == []


def test_a_member_without_a_disk_is_not_waited_for() -> None:
    mine, yours = (StoredTable(uuid, before(), ("a:1", "b:1", "")) for uuid in "ab")
    table, _ = waiting(1, mine, NEW[:1], 1).after(2, NEW[:2], 1)
    assert table.awaited == ("b:1",)
    again = recovered(table, {"x": mine, "y": yours}, NEW[:2], 1, all_came=False)
    assert not again.is_waiting
    assert again.former == ("a", "b")


def test_going_on_without_a_member_takes_copies_and_names_what_is_lost() -> None:
    table, _ = waiting(1, stored("a", before()), NEW[:1], 1).after(2, NEW[:2], 1)
    found = {"x": stored("a", before()), "y": stored("b", before())}
    again = recovered(table, found, NEW[:2], 1, all_came=True)
    assert not again.is_waiting
    assert lost_partitions(again, found) == []
    names = {"x": "a", "y": "b"}
    for partition, row in enumerate(before().owners()):
        assert names[again.primary(partition)] == next(uuid for uuid in row if uuid != "c")
    alone = recovered(table, {"x": found["x"]}, NEW[:2], 1, all_came=True)
    lost = lost_partitions(alone, {"x": found["x"]})
    assert lost == [partition for partition, row in enumerate(before().owners()) if "a" not in row]


# -- members ----------------------------------------------------------------------------------------------------------


def tables(simulation: Simulation) -> list[PartitionTable]:
    """Return the tables that are in force at members."""
    found = [node.member.table for node in simulation.members() if node.member is not None]
    return [table for table in found if table is not None]


def keep(node: Node) -> None:
    """Kill a member, which has on disk what it has followed last."""
    assert node.member is not None
    table, view = node.member.table, node.member.view
    if table is not None and view is not None and not table.is_waiting:
        peers = {peer.uuid: peer.address for peer in view.members}
        addresses = tuple(peers.get(uuid, uuid) for uuid in table.members)
        node.stored = StoredTable(node.member.me.uuid, table, addresses)
    node.kill()


@pytest.mark.parametrize("first", range(0, drawn(400), 50))
def test_what_all_had_is_there_when_all_have_come(first: int) -> None:
    for seed in range(first, first + 50):
        _tell(seed)


def _tell(seed: int) -> None:
    chance = random.Random(seed)
    simulation = together(chance.choice([1, 2, 3, 4]))
    for _ in range(2):
        _end_and_come_back(simulation, chance, seed)


def _end_and_come_back(simulation: Simulation, chance: random.Random, seed: int) -> None:
    nodes = list(simulation.nodes.values())
    chance.shuffle(nodes)
    for node in nodes:  # one after the other: the cluster goes on, or not before the next one is gone
        simulation.up_to(simulation.now + chance.choice([0.0, 0.01, 0.3, 4.0]))
        keep(node)
    newest = max((node.stored for node in nodes if node.stored is not None), key=lambda found: found.table.version)
    needed = {node.address for node in nodes if node.stored and node.stored.uuid in newest.table.members}
    chance.shuffle(nodes)
    come: set[str] = set()
    is_open = False
    while come != {node.address for node in nodes}:
        node = chance.choice(nodes)
        if node.alive and chance.random() < 0.3 and not needed <= come:
            node.kill()
            come.discard(node.address)
        elif not node.alive:
            node.start()
            come.add(node.address)
        for _ in range(chance.choice([1, 10, 80])):
            simulation.up_to(simulation.now + 0.05)
            for table in tables(simulation):
                assert table.is_waiting or needed <= come, f"seed {seed}"
                assert table.is_waiting or table.version > newest.table.version, f"seed {seed}"
                if not table.is_waiting and not is_open:
                    is_open = True
                    _check(simulation, table, newest, seed)
    simulation.is_healed = True
    simulation.up_to(simulation.now + 15)
    simulation.check_together()
    simulation.is_healed = False
    assert {table.origin for table in tables(simulation)} == {newest.table.origin}, f"seed {seed}"
    assert not any(table.is_waiting for table in tables(simulation)), f"seed {seed}"
    assert all(table.is_safe for table in tables(simulation)), f"seed {seed}"


def _check(simulation: Simulation, table: PartitionTable, newest: StoredTable, seed: int) -> None:
    """Check the first table under which partitions are open."""
    before = dict(zip(table.members, table.former, strict=True))
    last = newest.table.led_by or newest.table.members[0]
    assert before.get(table.led_by, "") == (last if last in newest.table.members else ""), f"seed {seed}"
    for node in simulation.members():  # the next coordinator can go on with the runs
        is_open = node.member is not None and node.member.table is table
        assert not is_open or table.led_by in ("", node.runs_of), f"seed {seed}"
    for partition, (primary, *_) in enumerate(table.owners()):
        assert before[primary] == newest.table.primary(partition), f"seed {seed}"


def test_a_member_with_other_data_is_refused_and_changes_nothing() -> None:
    simulation = together(1)
    (node,) = simulation.nodes.values()
    assert node.member is not None
    mine = node.member.table
    other = Membership(
        Peer("other", "other:1", 1),
        [node.address],
        mine.count,
        str,
        simulation.now,  # type: ignore[union-attr, arg-type]
        backups=simulation.backups,
        holds_data=True,
        stored=stored("a", before()),
    )
    other.tick(simulation.now)
    (request,) = [message for _, message in other.take_messages() if isinstance(message, JoinRequest)]
    node.member.receive(request, simulation.now)
    answers = [message for address, message in node.member.take_messages() if address == "other:1"]
    other.receive(answers[-1], simulation.now)
    (failed,) = other.take_events()
    assert isinstance(failed, JoinFailed)
    assert "other maps and lists than those in the storage of other:1" in failed.text
    assert node.member.table is mine
    same = msgspec.structs.replace(request, origin=mine.origin)  # type: ignore[union-attr]
    node.member.receive(same, simulation.now)
    assert not any("storage" in str(message) for _, message in node.member.take_messages())
