"""The table of partitions: promotion, copies, hand-overs, and losses, by hand and at random."""

from __future__ import annotations

import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from shmjet.cluster.partitions.table import Change, Event, Holder, PartitionTable, Replica

ONE, TWO, THREE, FOUR = (Holder(name, f"host of {name}") for name in ("one", "two", "three", "four"))
PRIMARIES = {"one": [1, 4, 7, 10], "two": [2, 5, 8, 11], "three": [3, 6, 9, 12]}
BACKUPS = {"one": [2, 3, 5, 6], "two": [1, 4, 9, 12], "three": [7, 8, 10, 11]}
NUMBERS = range(1, 13)
"""The partitions of the picture, which begin at 1."""


def picture() -> PartitionTable:
    """Return twelve partitions on three hosts, with one backup of each."""
    members = tuple(PRIMARIES)
    rows = tuple(
        tuple(place for rows in (PRIMARIES, BACKUPS) for place, name in enumerate(members) if number in rows[name])
        for number in NUMBERS
    )
    return PartitionTable(1, 0, members, rows, ((),) * len(rows), rows)


def finished(table: PartitionTable) -> PartitionTable:
    """Return a table after all copies and hand-overs."""
    copied = table.changed(
        Change(Event.SYNCED, partition, replica.uuid)
        for partition in range(table.count)
        for replica in table.replicas(partition)
        if not replica.is_synced
    )
    return copied.changed(Change(Event.HANDED_OVER, *hand_over) for hand_over in copied.hand_overs())


def primaries_of(table: PartitionTable, uuid: str) -> set[int]:
    return {number for number in NUMBERS if table.owners()[number - 1][0] == uuid}


def backups_of(table: PartitionTable, uuid: str) -> set[int]:
    return {number for number in NUMBERS if uuid in table.owners()[number - 1][1:]}


def even(counts: list[int]) -> bool:
    return max(counts) - min(counts) <= 1


def test_a_fourth_host_takes_one_primary_and_one_backup_from_each() -> None:
    before = picture()
    joined, lost = before.after(2, [ONE, TWO, THREE, FOUR], 1)
    assert not lost
    assert joined.owners() == before.owners()  # nothing has moved yet
    assert not joined.is_safe
    after = finished(joined)
    assert after.is_safe
    assert after.is_settled
    assert len(primaries_of(after, "four")) == len(backups_of(after, "four")) == 3
    for name in PRIMARIES:
        given_up = primaries_of(before, name) - primaries_of(after, name)
        assert len(given_up) == 1
        assert given_up <= primaries_of(after, "four")
        assert primaries_of(after, name) < primaries_of(before, name)
        assert len(backups_of(before, name) - backups_of(after, name)) == 1
        assert backups_of(after, name) < backups_of(before, name)


def test_the_primaries_of_a_lost_host_are_promoted_where_their_backups_lie() -> None:
    after, lost = picture().after(2, [TWO, THREE], 1)
    assert not lost
    assert primaries_of(after, "two") == {2, 5, 8, 11} | {1, 4}
    assert primaries_of(after, "three") == {3, 6, 9, 12} | {7, 10}
    assert not after.is_safe
    made_for_each_other = {
        number: replica.uuid for number in NUMBERS for replica in after.replicas(number - 1) if not replica.is_synced
    }
    assert made_for_each_other == {
        1: "three",
        4: "three",
        7: "two",
        10: "two",
        2: "three",
        5: "three",
        3: "two",
        6: "two",
    }
    assert finished(after).is_settled
    assert all(len(owners) == 2 for owners in finished(after).owners())


def test_one_of_four_hosts_is_lost() -> None:
    four = finished(picture().after(2, [ONE, TWO, THREE, FOUR], 1)[0])
    three, lost = four.after(3, [TWO, THREE, FOUR], 1)
    assert not lost
    for number in primaries_of(four, "one"):
        assert three.primary(number - 1) == four.owners()[number - 1][1]
    after = finished(three)
    assert [len(primaries_of(after, name)) for name in ("two", "three", "four")] == [4, 4, 4]
    assert [len(backups_of(after, name)) for name in ("two", "three", "four")] == [4, 4, 4]


def test_a_backup_that_is_still_being_made_is_not_promoted() -> None:
    table = PartitionTable(1, 0, ("one", "two"), ((0,),), ((1,),), ((0, 1),))
    after, lost = table.after(2, [TWO], 1)
    assert lost == [0]
    assert after.replicas(0) == (Replica("two", True),)  # empty, and so complete


def test_a_primary_stays_until_it_has_handed_over() -> None:
    table = PartitionTable(1, 0, ("one", "two"), ((0,),), ((1,),), ((1,),))
    copied = table.changed([Change(Event.SYNCED, 0, "two")])
    assert copied.owners() == (("one", "two"),)
    assert copied.hand_overs() == [(0, "two")]
    over = copied.changed([Change(Event.HANDED_OVER, 0, "two")])
    assert over.owners() == (("two",),)
    assert over.version == (1, 2)
    assert not over.hand_overs()


def test_a_backup_that_lacks_a_write_is_copied_anew_or_let_go() -> None:
    table = picture()
    stale = table.changed([Change(Event.STALE, 0, "two")])
    assert stale.replicas(0) == (Replica("one", True), Replica("two", False))
    assert not stale.is_safe
    assert stale.changed([Change(Event.SYNCED, 0, "two")]).owners() == table.owners()


def test_changes_that_do_not_fit_change_nothing() -> None:
    table = picture()
    wrong = [
        Change(Event.SYNCED, 0, "two"),  # is already
        Change(Event.SYNCED, 0, "four"),  # no member
        Change(Event.STALE, 0, "one"),  # the primary
        Change(Event.HANDED_OVER, 0, "two"),  # is not wanted there
        Change(Event.SYNCED, 12, "two"),  # no partition
        Change(Event.STALE, -1, "two"),
    ]
    assert table.changed(wrong) is table


def test_without_data_all_is_in_place_at_once() -> None:
    table, _ = PartitionTable.first(1, 7, [ONE], 0).after(2, [ONE, TWO], 0)
    settled = table.settled()
    assert settled.is_settled
    assert settled.is_safe
    assert sorted(settled.primaries()) in ([0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1, 1])


def test_a_table_is_small_in_a_message() -> None:
    table = PartitionTable.first(1, 271, [ONE, TWO, THREE], 1)
    packed = msgspec.msgpack.encode(table)
    assert msgspec.msgpack.decode(packed, type=PartitionTable) == table
    assert len(packed) < 3000


@given(st.integers(0, 1 << 30))
def test_whatever_happens_data_survives_as_long_as_one_member_has_it(seed: int) -> None:
    """Play a story of joins, losses and copies, and follow the data: a set of writes on each member and partition."""
    random_ = random.Random(seed)
    count, backups = random_.randint(1, 9), random_.randint(0, 2)
    hosts = random_.choice(["abcdefgh", "abab" * 2, "aaaaaaaa"])
    members = [Holder("m0", hosts[0])]
    table = PartitionTable.first(1, count, members, backups)
    data = {(partition, "m0"): 0 for partition in range(count)}
    """The last write that a replica has."""
    writes = [0] * count
    for step in range(1, random_.randint(2, 25)):
        if random_.random() < 0.4:
            joined = [Holder(f"m{step}", hosts[step % 8])] if random_.random() < 0.6 else []
            staying = [m for m in members if random_.random() < 0.75] or members
            members = [*staying, *joined]
            before, (table, lost) = table, table.after(table.epoch + 1, members, backups)
            alive = {member.uuid for member in members}
            assert lost == [p for p in range(count) if alive.isdisjoint(before.owners()[p])]
            for partition in range(count):
                if partition in lost:
                    writes[partition] = data[partition, table.primary(partition)] = 0
                else:  # no other one may be promoted, and not before the ones in front of it
                    assert table.primary(partition) == next(u for u in before.owners()[partition] if u in alive)
        else:
            partition = random_.randrange(count)
            primary = table.primary(partition)
            replica = random_.choice(table.replicas(partition))
            event = random_.choice(list(Event))
            if event is Event.SYNCED:
                data[partition, replica.uuid] = data[partition, primary]
            elif event is Event.STALE and replica.is_synced and replica.uuid != primary:
                data[partition, replica.uuid] = -1
            after = table.changed([Change(event, partition, replica.uuid)])
            assert after is table or after.version == (table.epoch, table.stamp + 1)
            table = after.vacated(members, backups) if after.leaving != table.leaving else after
        for partition, owners in enumerate(table.owners()):
            writes[partition] += 1
            for owner in owners:
                assert data.get((partition, owner), -1) == writes[partition] - 1, "a replica lacks a write"
                data[partition, owner] = writes[partition]
    staying = [place for place in range(len(members)) if place not in table.leaving]
    done = finished(table)
    assert done.is_settled
    if len(staying) < len(members):
        if staying:
            assert all(done.is_free(members[place].uuid) for place in table.leaving)
            assert all(len(owners) == min(1 + backups, len(staying)) for owners in done.owners())
        return
    assert even([done.primaries().count(place) for place in range(len(members))])
    assert all(len(owners) == min(1 + backups, len(members)) for owners in done.owners())
