"""The agreement on the table of partitions, message by message; `simulated_data.py` has the long stories."""

from __future__ import annotations

import pytest

from shmjet.cluster.membership.table_agreement import Outgoing, TableAgreement, TableMessage
from shmjet.cluster.membership.views import (
    Accept,
    AcceptTable,
    InstallTable,
    Peer,
    ProposeTable,
    Reject,
    ReplicaReport,
    View,
)
from shmjet.cluster.partitions.table import Change, Event, PartitionTable

OLD, ME, YOUNG = (Peer(name, f"10.0.0.{number}:1", number) for number, name in enumerate(("old", "me", "young"), 1))
VIEW = View(8, (OLD, ME, YOUNG), (1, 1, 1))
TABLE = PartitionTable(8, 0, VIEW.uuids, ((0, 1, 2),), ((),), ((0, 1, 2),))
"""One partition: the oldest has the primary, the others have backups."""
STALE = TABLE.changed([Change(Event.STALE, 0, "young")])


def of(me: Peer) -> TableAgreement:
    agreement = TableAgreement(1, 2, holds_data=True)
    agreement.install(TABLE)
    assert agreement.take_installed() is TABLE
    return agreement


def said(agreement: TableAgreement, message: TableMessage, me: Peer, promised: int = 8) -> list[Outgoing]:
    return list(agreement.take(message, VIEW, me.uuid, promised))


def report(number: int, *changes: Change) -> ReplicaReport:
    return ReplicaReport("old", 8, number, changes)


def test_a_table_is_in_force_when_all_have_accepted_it() -> None:
    coordinator = of(OLD)
    asked = said(coordinator, report(1, Change(Event.STALE, 0, "young")), OLD)
    assert asked == [(peer.address, ProposeTable("old", STALE)) for peer in (ME, YOUNG)]
    assert not said(coordinator, AcceptTable("me", 8, 1), OLD)
    assert coordinator.table is TABLE
    told = said(coordinator, AcceptTable("young", 8, 1), OLD)
    assert told == [(peer.address, InstallTable("old", STALE)) for peer in (ME, YOUNG)]
    assert coordinator.take_installed() == coordinator.table == STALE


def test_no_table_comes_into_force_once_the_coordinator_has_accepted_another_view() -> None:
    """It has told the proposer, itself perhaps, that the table is not in force."""
    coordinator = of(OLD)
    said(coordinator, report(1, Change(Event.STALE, 0, "young")), OLD)
    said(coordinator, AcceptTable("me", 8, 1), OLD)
    assert coordinator.vote("old") == (8, 0)
    assert not said(coordinator, AcceptTable("young", 8, 1), OLD, promised=9)
    assert coordinator.table is TABLE
    list(coordinator.repeat(VIEW, "old", 9))
    assert coordinator.wants_view


def test_a_member_that_has_accepted_another_view_refuses_tables() -> None:
    member = of(ME)
    assert said(member, ProposeTable("old", STALE), ME, promised=9) == [(OLD.address, Reject("me", 9))]
    assert member.newest == (8, 0)


def test_a_table_that_is_proposed_says_that_the_one_before_is_in_force() -> None:
    member = of(ME)
    assert said(member, ProposeTable("old", STALE), ME) == [(OLD.address, AcceptTable("me", 8, 1))]
    again = STALE.changed([Change(Event.SYNCED, 0, "young")])
    said(member, ProposeTable("old", again), ME)
    assert member.take_installed() == member.table == STALE


def test_only_the_coordinator_proposes_and_only_the_primary_reports() -> None:
    member, coordinator = of(ME), of(OLD)
    assert not said(member, ProposeTable("young", STALE), ME)
    assert not said(member, report(1, Change(Event.STALE, 0, "young")), ME)
    other = ReplicaReport("young", 8, 1, (Change(Event.STALE, 0, "me"),))
    assert not said(coordinator, other, OLD)
    assert not said(coordinator, ReplicaReport("old", 7, 1, (Change(Event.STALE, 0, "me"),)), OLD)


def test_a_report_that_comes_late_is_dropped() -> None:
    """It may be about a copy that was made before the replica became stale."""
    coordinator = of(OLD)
    said(coordinator, report(5, Change(Event.STALE, 0, "young")), OLD)
    for accepting in ("me", "young"):
        said(coordinator, AcceptTable(accepting, 8, 1), OLD)
    assert coordinator.table == STALE
    assert not said(coordinator, report(4, Change(Event.SYNCED, 0, "young")), OLD)
    assert said(coordinator, report(6, Change(Event.SYNCED, 0, "young")), OLD)


def test_a_report_is_repeated_until_the_table_shows_it() -> None:
    member = of(ME)
    handed = TABLE.changed([Change(Event.STALE, 0, "young")])
    member.report([Change(Event.STALE, 0, "young")])
    first, second = (list(member.repeat(VIEW, "me", 8)) for _ in range(2))
    numbers = [message.number for _, message in (*first, *second) if isinstance(message, ReplicaReport)]
    assert numbers == [1, 2]
    said(member, InstallTable("old", handed), ME)
    assert not list(member.repeat(VIEW, "me", 8))


@pytest.mark.parametrize(("vote", "is_followed"), [((8, 1), True), ((8, 0), False)])
def test_a_view_follows_a_table_that_all_that_are_left_have_accepted(vote: tuple[int, int], is_followed: bool) -> None:
    """The coordinator, which is gone, may have put it in force; not so if one of the others has not accepted it."""
    member = of(ME)
    said(member, ProposeTable("old", STALE), ME)
    member.learn(Accept("young", 9, vote))
    table, lost = member.following(View(9, (ME, YOUNG), (1, 1)), "me")
    assert not lost
    assert table.owners() == ((("me",) if is_followed else ("me", "young")),)


def test_a_view_follows_the_table_of_a_view_that_its_proposer_has_missed() -> None:
    member = of(ME)
    later = PartitionTable(9, 0, ("me", "young"), ((1, 0),), ((),), ((1, 0),))
    member.learn(Accept("young", 10, (9, 0), later))
    assert member.following(View(10, (ME, YOUNG), (1, 1)), "me")[0].owners() == (("young", "me"),)
