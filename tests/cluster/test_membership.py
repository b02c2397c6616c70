"""Membership by hand: who joins, who goes, who coordinates; the long stories are in test_simulation.py."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from types import FunctionType, ModuleType

import pytest

from shmjet.cluster.membership.events import JoinFailed, State, ViewInstalled, WasFenced, WasIsolated
from shmjet.cluster.membership.state_machine import Membership
from shmjet.cluster.membership.views import (
    Accept,
    AcceptTable,
    Fenced,
    Heartbeat,
    Install,
    InstallTable,
    JoinRequest,
    Peer,
    Probe,
    Propose,
    ProposeTable,
    Reject,
    ReplicaReport,
    View,
)
from shmjet.cluster.partitions.table import Change, Event, Holder, PartitionTable
from shmjet.core.map_config import MapConfig, settings_of
from tests.cluster.simulation import Simulation


def together(size: int) -> Simulation:
    """Return a quiet cluster that has found together."""
    for seed in range(100):
        simulation = Simulation(seed, size=size, faults=0)
        if all(len(node.seeds) == size for node in simulation.nodes.values()):
            simulation.up_to(4.0)
            simulation.check_together()
            return simulation
    raise AssertionError("no seed lists all members")


def members(simulation: Simulation) -> list[Membership]:
    """Return the state machines, the oldest first."""
    found = [node.member for node in simulation.members() if node.member is not None]
    view = found[0].view
    assert view is not None
    return sorted(found, key=lambda member: view.uuids.index(member.me.uuid))


def until(simulation: Simulation, predicate: Callable[[], object], limit: float) -> float:
    """Let time pass until the predicate is true, and return how long it took."""
    start = simulation.now
    while simulation.now < start + limit:
        simulation.up_to(simulation.now + 0.05)
        if predicate():
            return simulation.now - start
    raise AssertionError(f"not within {limit} s")


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_members_find_together_and_the_oldest_coordinates(size: int) -> None:
    simulation = together(size)
    found = members(simulation)
    assert [member.is_coordinator for member in found] == [True, *[False] * (size - 1)]
    assert len({member.view for member in found}) == 1


def test_one_that_comes_later_is_last_and_the_rest_lose_nobody() -> None:
    simulation = together(3)
    node = simulation.members()[-1]
    node.kill()
    simulation.up_to(simulation.now + 3)
    node.start()
    simulation.up_to(simulation.now + 2)
    simulation.check_together()
    assert members(simulation)[-1] is node.member


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_silent_member_is_gone_within_three_seconds(place: int) -> None:
    simulation = together(3)
    victim = members(simulation)[place]
    node = simulation.nodes[victim.me.address]
    simulation.cut({node.address})
    node.kill()
    rest = [node.member for node in simulation.members() if node.member is not None]
    took = until(simulation, lambda: all(m.view and m.view.find(victim.me.uuid) is None for m in rest), 5)
    assert took <= 2.7  # the link may speak for a member for another 0.3 s
    assert all(m.state is State.MEMBER for m in rest)


def test_a_member_whose_address_refuses_is_gone_at_once() -> None:
    simulation = together(3)
    victim = members(simulation)[0]
    simulation.nodes[victim.me.address].kill()
    rest = [node.member for node in simulation.members() if node.member is not None]
    took = until(simulation, lambda: all(m.view and m.view.find(victim.me.uuid) is None for m in rest), 5)
    assert took <= 0.6


def test_the_last_one_goes_on_when_it_knows_the_others_to_be_dead() -> None:
    simulation = together(5)
    survivor = members(simulation)[3]
    for node in simulation.members():
        if node.member is not survivor:
            node.kill()
    until(simulation, lambda: survivor.view is not None and len(survivor.view.members) == 1, 2)
    assert survivor.is_coordinator


@pytest.mark.parametrize("seconds", [0.5, 1.0])
def test_nobody_is_lost_through_a_short_pause(seconds: float) -> None:
    simulation = together(3)
    for _ in range(10):
        for node in simulation.members():
            node.pause(seconds)
            simulation.up_to(simulation.now + 1.5)
    assert simulation.removals == 0
    assert simulation.fencings == 0


def test_of_a_cluster_cut_in_two_the_larger_part_goes_on_and_the_smaller_waits() -> None:
    simulation = together(5)
    found = members(simulation)
    small = [found[0], found[3]]
    simulation.cut({member.me.address for member in small})
    simulation.up_to(simulation.now + 4)
    large = [member for member in found if member not in small]
    assert all(member.state is State.ISOLATED for member in small)
    assert {member.view.uuids for member in large if member.view} == {tuple(member.me.uuid for member in large)}
    before = {member.me.uuid for member in small}
    simulation.repair()
    simulation.up_to(simulation.now + 4)
    simulation.check_together()
    assert before.isdisjoint({member.me.uuid for member in small})
    assert members(simulation)[0] is large[0]


def test_two_halves_both_go_on_and_join_when_they_meet() -> None:
    simulation = together(2)
    one, other = members(simulation)
    simulation.cut({one.me.address})
    simulation.up_to(simulation.now + 4)
    assert one.is_coordinator
    assert other.is_coordinator
    simulation.repair()
    simulation.up_to(simulation.now + 4)
    simulation.check_together()
    assert simulation.fencings == 1


def test_one_that_was_away_is_fenced_and_comes_back_under_a_new_identity() -> None:
    simulation = together(3)
    sleeper = members(simulation)[0]
    before = sleeper.me.uuid
    simulation.nodes[sleeper.me.address].pause(6.0)
    simulation.up_to(simulation.now + 5.0)
    rest = [m for m in members(simulation) if m is not sleeper]
    epochs = {member.view.epoch for member in rest if member.view}
    simulation.up_to(simulation.now + 4.0)
    simulation.check_together()
    assert sleeper.me.uuid != before
    assert not sleeper.is_coordinator
    assert all(member.view and member.view.epoch > max(epochs) for member in rest)


def test_a_graceful_leave_is_no_loss() -> None:
    for place in (0, 2):
        simulation = together(3)
        leaver = members(simulation)[place]
        leaver.leave(simulation.now)
        simulation.nodes[leaver.me.address].settle()
        simulation.up_to(simulation.now + 2)
        assert leaver.state is State.LEFT
        assert simulation.removals == 0
        simulation.check_together()


def view_of(epoch: int, *members: Peer, new: Peer | None = None) -> View:
    """Return a view that "me" may be in since the first epoch, others since the second, and one since this."""
    return View(epoch, members, tuple(epoch if peer == new else 1 if peer.uuid == "me" else 2 for peer in members))


def member_of(*others: Peer) -> Membership:
    me = Peer("me", "10.0.0.1:1", 1)
    member = Membership(me, [], 271, lambda: "new-identity", 0.0)
    member.tick(0.0)
    view = view_of(7, *others, me)
    member.receive(Propose(others[0].uuid, view), 0.0) if others else None
    member.receive(Install(others[0].uuid if others else "me", view), 0.0)
    member.take_events(), member.take_messages()
    return member


OLD, YOUNG = Peer("old", "10.0.0.2:1", 2), Peer("young", "10.0.0.3:1", 3)


def test_messages_of_an_older_epoch_change_nothing() -> None:
    member = member_of(OLD, YOUNG)
    before = member.view
    member.receive(Install("old", view_of(6, OLD, member.me)), 0.1)
    member.receive(Propose("old", view_of(7, OLD, member.me)), 0.1)
    member.receive(Fenced("young", "me", 6), 0.1)
    assert member.view == before
    assert [type(message).__name__ for _, message in member.take_messages()] == ["Reject"]


def test_a_stranger_is_told_that_it_is_fenced() -> None:
    member = member_of(OLD)
    member.receive(Heartbeat("gone", 5, ()), 0.1)
    assert member.take_messages() == [("10.0.0.2:1", Fenced("me", "gone", 7))]


def test_only_the_oldest_that_is_heard_may_propose() -> None:
    member = member_of(OLD, YOUNG)
    usurping = Propose("young", view_of(8, YOUNG, member.me))
    member.receive(usurping, 0.1)
    assert member.take_messages() == []
    member.unreachable(OLD.address, 0.2)
    member.take_messages()
    member.receive(usurping, 0.3)
    assert [type(message).__name__ for _, message in member.take_messages()] == ["Accept"]


def test_who_learns_later_that_the_oldest_is_gone_accepts_then_what_was_proposed_before() -> None:
    member = member_of(OLD, YOUNG)
    member.receive(Propose("young", view_of(8, YOUNG, member.me)), 0.1)
    assert member.take_messages() == []
    member.unreachable(OLD.address, 0.2)
    assert [(to, m.epoch) for to, m in member.take_messages() if isinstance(m, Accept)] == [(YOUNG.address, 8)]
    member.tick(0.3)
    assert not [m for _, m in member.take_messages() if isinstance(m, Accept)]


def test_a_proposal_that_comes_too_early_counts_no_more_when_another_has_come() -> None:
    member = member_of(OLD, YOUNG)
    member.receive(Propose("young", view_of(8, YOUNG, member.me)), 0.1)
    member.receive(Propose("old", view_of(9, OLD, member.me)), 0.1)
    member.take_messages()
    member.unreachable(OLD.address, 0.2)
    assert not [m for _, m in member.take_messages() if isinstance(m, Accept | Reject)]


def middle() -> Membership:
    """Return the second of three members; the first coordinates."""
    member = member_of(OLD)
    view = view_of(8, OLD, member.me, YOUNG, new=YOUNG)
    member.receive(Propose("old", view), 0.0)
    member.receive(Install("old", view), 0.0)
    member.take_events(), member.take_messages()
    return member


def proposed_by(member: Membership) -> list[tuple[str, ...]]:
    return [message.view.uuids for _, message in member.take_messages() if isinstance(message, Propose)]


def test_who_does_not_hear_a_member_that_is_gone_stays() -> None:
    member = middle()
    for beat in range(1, 8):  # "young" knows for longer than two members may not hear each other that "old" is dead
        member.receive(Heartbeat("old", 8, ()), beat / 4)
        member.receive(Heartbeat("young", 8, ("old",)), beat / 4)
        member.tick(beat / 4)
    member.unreachable(OLD.address, 2.0)
    assert proposed_by(member) == [("me", "young")]


@pytest.mark.parametrize("is_leader", [True, False])
def test_a_new_process_at_the_address_of_a_member_says_that_this_one_is_gone(is_leader: bool) -> None:
    member = middle() if is_leader else member_of(OLD, YOUNG)
    restarted = Peer("restarted", OLD.address, 5)
    if not is_leader:
        member.receive(Propose("young", view_of(8, YOUNG, member.me)), 0.1)
        assert member.take_messages() == []
    member.receive(JoinRequest(restarted, 271, 0, 0), 0.2)
    messages = member.take_messages()
    if is_leader:
        assert [m.view.uuids for _, m in messages if isinstance(m, Propose)] == [("me", "young", "restarted")] * 2
    else:
        assert [(to, m.epoch) for to, m in messages if isinstance(m, Accept)] == [(YOUNG.address, 8)]


def test_who_is_refused_says_nothing_of_the_member_whose_address_it_claims() -> None:
    member = middle()
    member.receive(JoinRequest(Peer("restarted", OLD.address, 5), 11, 0, 0), 0.2)
    assert [type(message).__name__ for _, message in member.take_messages()] == ["JoinRefused"]


@pytest.mark.parametrize("is_leader", [True, False])
def test_a_connection_to_another_process_at_the_address_of_a_member_says_so_too(is_leader: bool) -> None:
    member = middle() if is_leader else member_of(OLD, YOUNG)
    if not is_leader:
        member.receive(Propose("young", view_of(8, YOUNG, member.me)), 0.1)
        member.take_messages()
    member.connected("old", OLD.address, 0.2)
    assert not [m for _, m in member.take_messages() if isinstance(m, Propose | Accept)]
    member.connected("restarted", OLD.address, 0.3)
    messages = member.take_messages()
    if is_leader:
        assert {m.view.uuids for _, m in messages if isinstance(m, Propose)} == {("me", "young")}
    else:
        assert [(to, m.epoch) for to, m in messages if isinstance(m, Accept)] == [(YOUNG.address, 8)]


def test_a_promise_binds() -> None:
    member = member_of(OLD, YOUNG)
    member.receive(Propose("old", view_of(9, OLD, member.me)), 0.1)
    member.take_messages()
    member.unreachable(OLD.address, 0.2)
    member.take_messages()
    member.receive(Propose("young", view_of(8, YOUNG, member.me)), 0.3)
    assert [(type(m).__name__, m.epoch) for _, m in member.take_messages() if hasattr(m, "epoch")] == [("Reject", 9)]


def test_a_member_that_hears_less_than_half_of_the_others_waits() -> None:
    member = member_of(OLD, YOUNG)
    for at in range(30):
        member.tick(at / 10)
    events = member.take_events()
    assert [type(event) for event in events] == [WasIsolated]
    assert member.state is State.ISOLATED
    member.fenced_by(OLD.address, 3.0)
    assert [type(event) for event in member.take_events()] == [WasFenced]
    assert member.me.uuid == "new-identity"


def test_a_member_that_hears_the_others_again_before_they_have_removed_it_has_all_go_on_in_a_new_view() -> None:
    """The others may not have noticed that it has stopped its jobs."""
    me = Peer("me", "10.0.0.1:1", 1)
    view = view_of(7, me, OLD, YOUNG)
    member = Membership(me, [], 271, str, 0.0)
    member.receive(Install("old", view), 0.0)
    for at in range(30):
        member.tick(at / 10)
    member.take_messages()
    assert member.take_events()[-1] == WasIsolated((OLD, YOUNG), (OLD, YOUNG))
    assert member.state is State.ISOLATED
    for other in (OLD, YOUNG):
        member.receive(Heartbeat(other.uuid, view.epoch, ()), 3.0)
    member.tick(3.1)
    assert member.state is State.MEMBER
    proposed = [message.view for _, message in member.take_messages() if isinstance(message, Propose)]
    assert [(found.epoch > view.epoch, found.members) for found in proposed[:1]] == [(True, view.members)]


def test_other_settings_are_refused_with_a_reason() -> None:
    cluster = member_of()
    newcomer = Membership(Peer("new", "10.0.0.9:1", 9), [cluster.me.address], 17, str, 0.0)
    newcomer.tick(0.0)
    cluster.receive(newcomer.take_messages()[0][1], 0.1)
    newcomer.receive(cluster.take_messages()[0][1], 0.2)
    assert newcomer.state is State.REFUSED
    (event,) = newcomer.take_events()
    assert isinstance(event, JoinFailed)
    assert "partition_count 271" in event.text


def test_members_with_and_without_code_of_clients_do_not_mix() -> None:
    cluster = member_of()
    newcomer = Membership(Peer("new", "10.0.0.9:1", 9), [cluster.me.address], 271, str, 0.0, allow_code=False)
    newcomer.tick(0.0)
    cluster.receive(newcomer.take_messages()[0][1], 0.1)
    newcomer.receive(cluster.take_messages()[0][1], 0.2)
    assert newcomer.state is State.REFUSED
    (event,) = newcomer.take_events()
    assert isinstance(event, JoinFailed)
    assert "allow_code True" in event.text


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ({"orders": MapConfig(max_bytes=5)}, {"orders": MapConfig(max_bytes=6)}, "max_bytes 5 for maps 'orders'"),
        ({}, {"s-*": MapConfig(journal_capacity=7)}, "journal_capacity 0 for maps 's-\\*', and 10.0.0.9:1 has 7"),
        ({"a*": MapConfig(min_backups=1), "*": MapConfig()}, {"*": MapConfig(), "a*": MapConfig(min_backups=1)}, "'a"),
        ({"[ab]": MapConfig(min_backups=1)}, {"[ab]": MapConfig(min_backups=2)}, "min_backups 1 for maps '.ab.'"),
        ({"a": MapConfig(backup_count=1), "b": MapConfig()}, {"a": MapConfig()}, ""),
        ({"a": MapConfig(max_bytes=5), "*": MapConfig(max_bytes=5)}, {"*": MapConfig(max_bytes=5)}, ""),
    ],
)
def test_other_settings_of_maps_are_refused_with_both(
    ours: dict[str, MapConfig], theirs: dict[str, MapConfig], expected: str
) -> None:
    cluster = Membership(Peer("me", "10.0.0.1:1", 1), [], 271, str, 0.0, maps=settings_of(ours))
    cluster.tick(0.0)
    newcomer = Membership(Peer("new", "10.0.0.9:1", 9), ["10.0.0.1:1"], 271, str, 0.0, maps=settings_of(theirs))
    newcomer.tick(0.0)
    cluster.receive(newcomer.take_messages()[0][1], 0.1)
    newcomer.receive(cluster.take_messages()[0][1], 0.2)
    texts = [event.text for event in newcomer.take_events() if isinstance(event, JoinFailed)]
    assert re.search(expected, texts[0]) if expected else not texts
    assert (newcomer.state is State.REFUSED) == bool(expected)


def test_one_alone_founds_a_cluster_at_once() -> None:
    member = Membership(Peer("me", "10.0.0.1:1", 1), [], 271, str, 0.0)
    member.tick(0.0)
    event, _ = member.take_events()
    assert isinstance(event, ViewInstalled)
    assert event.view == view_of(1, member.me)


def test_one_that_is_isolated_asks_whoever_is_there_now_and_joins_them() -> None:
    a, b, c = (Peer(name, f"{name}:1", 1) for name in "abc")
    lonely = Membership(c, [a.address], 271, lambda: "c2", 0.0)
    lonely.receive(Install("a", view_of(1, a, b, c)), 0.0)
    for now in range(1, 31):
        lonely.tick(now / 10)
    assert lonely.state is State.ISOLATED
    asked = [(where, message) for where, message in lonely.take_messages() if isinstance(message, Probe)]
    assert asked == [(a.address, Probe(c, 1, 0)), (b.address, Probe(c, 1, 0))]
    lonely.receive(Probe(Peer("x", "x:1", 1), 7, 0), 3.1)
    assert lonely.state is State.ISOLATED, "another that is isolated has nothing to offer"

    new = Membership(Peer("a2", a.address, 2), [], 271, lambda: "", 0.0)  # a was started again, and knows no member
    new.tick(0.0)
    new.tick(3.1)
    assert new.is_coordinator
    new.take_messages()
    new.receive(asked[0][1], 3.1)
    ((where, answer),) = new.take_messages()
    assert where == c.address
    lonely.receive(answer, 3.1)
    assert (lonely.state, lonely.me.uuid) == (State.JOINING, "c2")


def test_an_identity_that_a_view_has_dropped_is_not_taken_in_again() -> None:
    member = member_of(OLD, YOUNG)
    member.receive(Propose("old", view_of(8, OLD, member.me)), 0.1)
    member.receive(Install("old", view_of(8, OLD, member.me)), 0.1)
    member.take_messages()
    fenced = [(YOUNG.address, Fenced("me", "young", 8))]
    member.receive(JoinRequest(YOUNG, 271, 7, 2), 0.2)
    assert member.take_messages() == fenced
    member.receive(Propose("old", view_of(9, OLD, member.me, YOUNG)), 0.2)
    assert member.take_messages() == fenced, "its proposer may not know, but we do"
    again = Peer("young again", YOUNG.address, 3)
    member.receive(Propose("old", view_of(9, OLD, member.me, again, new=again)), 0.3)
    assert member.take_messages() == [(OLD.address, Accept("me", 9))]


@pytest.mark.parametrize("by_link", [False, True])
def test_one_that_was_dropped_before_it_knew_that_it_was_in_joins_under_a_new_identity(by_link: bool) -> None:
    member = Membership(Peer("me", "10.0.0.1:1", 1), [OLD.address], 271, lambda: "new-identity", 0.0)
    member.tick(0.0)
    member.receive(Propose("old", view_of(8, OLD, member.me)), 0.1)  # the Install never comes
    member.receive(Fenced("old", "other-identity", 9), 2.9)
    assert member.me.uuid == "me"
    if by_link:
        member.fenced_by(OLD.address, 3.0)
    else:
        member.receive(Fenced("old", "me", 9), 3.0)
    member.take_messages()
    member.tick(3.0)
    assert member.take_messages() == [(OLD.address, JoinRequest(member.me, 271, 8, 0))]
    assert member.me.uuid == "new-identity"


def test_one_whom_two_sides_have_in_their_views_goes_on_with_neither_under_its_identity() -> None:
    other = Peer("other", "10.0.0.4:1", 4)
    member = member_of(OLD, YOUNG, other)
    theirs, ours = view_of(9, OLD, member.me), view_of(8, YOUNG, other, member.me)
    member.unreachable(OLD.address, 0.1)
    member.receive(Propose("young", ours), 0.1)
    member.heard("old", 0.2)
    member.receive(Propose("old", theirs), 0.2)
    sent = [message for _, message in member.take_messages()]
    assert [message for message in sent if isinstance(message, Accept)] == [Accept("me", 8), Accept("me", 9)]
    member.receive(Install("young", ours), 0.3)
    member.take_events()
    member.receive(Install("old", theirs), 0.3)
    assert [type(event) for event in member.take_events()] == [WasFenced]
    assert (member.state, member.me.uuid) == (State.JOINING, "new-identity")


def test_one_that_has_promised_before_accepts_no_view_that_does_not_know() -> None:
    """Others may have installed the first view with it, and lost it since; the epoch in the view tells them."""
    member = Membership(Peer("me", "10.0.0.1:1", 1), [OLD.address], 271, lambda: "new-identity", 0.0)
    member.receive(Propose("old", View(8, (OLD, member.me), (1, 8))), 0.1)
    member.receive(Propose("young", View(12, (YOUNG, member.me), (3, 12))), 0.2)
    assert member.take_messages() == [
        (OLD.address, Accept("me", 8)),
        (YOUNG.address, JoinRequest(member.me, 271, 8, 8)),
    ]
    member.receive(Propose("young", View(13, (YOUNG, member.me), (3, 8))), 0.3)
    assert member.take_messages() == [(YOUNG.address, Accept("me", 13))]


def test_a_coordinator_proposes_a_newcomer_since_when_it_first_promised() -> None:
    member, new = member_of(), Peer("new", "10.0.0.9:1", 9)
    member.receive(JoinRequest(new, 271, 0, 0), 0.1)
    first = next(message.view for _, message in member.take_messages() if isinstance(message, Propose))
    assert first.since_of("new") == first.epoch
    member.receive(Reject("new", first.epoch + 4), 0.2)
    again = next(message.view for _, message in member.take_messages() if isinstance(message, Propose))
    assert again.epoch == first.epoch + 5
    assert again.since_of("new") == first.epoch, "it may have promised to be in the first one"
    member.receive(JoinRequest(new, 271, first.epoch + 4, first.epoch + 2), 0.3)
    third = next(message.view for _, message in member.take_messages() if isinstance(message, Propose))
    assert third.since_of("new") == first.epoch + 2, "it knows best"


def test_nothing_is_remembered_of_those_who_were_lost() -> None:
    member = member_of()
    sizes = []
    for number in range(1, 41):
        new = Peer(f"new {number}", "10.0.0.9:1", 9)
        member.receive(JoinRequest(new, 271, 0, 0), float(number))
        proposal = next(message.view for _, message in member.take_messages() if isinstance(message, Propose))
        member.receive(Accept(new.uuid, proposal.epoch), float(number))
        assert member.view is not None
        assert new in member.view.members
        member.unreachable(new.address, number + 0.1)
        assert member.view.members == (member.me,)
        member.take_messages(), member.take_events()
        sizes.append(len(_reachable(member)))
    assert sizes[-1] == sizes[4]


def _reachable(root: object) -> set[int]:
    """Return the ids of all that an object holds, but for classes, modules and functions."""
    found: set[int] = set()
    waiting = [root]
    while waiting:
        item = waiting.pop()
        if id(item) not in found and not isinstance(item, type | ModuleType | FunctionType):
            found.add(id(item))
            waiting += gc.get_referents(item)
    return found


def test_the_time_without_a_link_is_no_part_of_the_search() -> None:
    """A member that founded a cluster before its new link was up met the others then, and gave up again, for ever."""
    peer = Peer("b" * 32, "host:2", 1)
    member = Membership(peer, ["host:1"], 271, lambda: "c" * 32, 0.0)
    member.renew(0.0)
    member.search_anew(20.0)
    member.tick(20.1)
    assert member.view is None
    assert [address for address, _ in member.take_messages()] == ["host:1"]
    member.tick(23.0)
    assert member.view is not None


# -- the table of partitions ----------------------------------------------------------------------------------------


def tables(simulation: Simulation) -> set[PartitionTable | None]:
    return {member.table for member in members(simulation)}


def agreed(simulation: Simulation) -> PartitionTable:
    """Return the table that all members have, once every partition is where it should be."""
    until(simulation, lambda: len(tables(simulation)) == 1 and all(t and t.is_settled for t in tables(simulation)), 20)
    (table,) = tables(simulation)
    assert table is not None
    return table


def with_a_backup(size: int) -> Simulation:
    """Return a quiet cluster with one backup of each partition."""
    for seed in range(1, 300, 3):
        simulation = Simulation(seed, size=size, faults=0)
        if all(len(node.seeds) == size for node in simulation.nodes.values()):
            simulation.up_to(4.0)
            assert simulation.backups == 1
            return simulation
    raise AssertionError("no seed lists all members")


def test_members_copy_and_hand_over_until_all_partitions_are_where_they_should_be() -> None:
    table = agreed(with_a_backup(3))
    assert all(len(owners) == 2 for owners in table.owners())
    assert sorted(table.primaries().count(place) for place in range(3)) == [1, 2, 2]


def test_the_view_without_a_member_brings_the_promotion_of_its_backups() -> None:
    simulation = with_a_backup(3)
    before = agreed(simulation)
    victim = members(simulation)[0]
    simulation.nodes[victim.me.address].kill()
    rest = [node.member for node in simulation.members() if node.member is not None]
    until(simulation, lambda: all(m.view and m.view.find(victim.me.uuid) is None for m in rest), 5)
    for member in rest:  # without waiting for anything else
        assert member.view is not None
        assert member.table is not None
        assert member.table.epoch == member.view.epoch
        for owners, now in zip(before.owners(), member.table.owners(), strict=True):
            assert now[0] == next(uuid for uuid in owners if uuid != victim.me.uuid)


def test_without_data_the_table_of_a_view_is_in_place_at_once() -> None:
    member = Membership(Peer("me", "10.0.0.1:1", 1), [], 271, str, 0.0)
    member.tick(0.0)
    member.receive(JoinRequest(Peer("you", "10.0.0.2:1", 1), 271, 0, 0), 0.1)
    proposal = next(m for _, m in member.take_messages() if isinstance(m, Propose))
    member.receive(Accept("you", proposal.view.epoch), 0.2)
    table = member.table
    assert table is not None
    assert table.is_settled
    assert abs(table.primaries().count(0) - table.primaries().count(1)) == 1
    install = next(m for _, m in member.take_messages() if isinstance(m, Install))
    assert install.table == table


def test_a_member_that_has_accepted_another_view_accepts_no_table() -> None:
    """Its proposer has been told which table is the newest here: that must stay true."""
    member = member_of(OLD, YOUNG)
    view = member.view
    assert view is not None
    holders = [Holder(uuid, f"host of {uuid}") for uuid in view.uuids]
    table = PartitionTable.first(8, 3, holders, 1)
    newer = View(8, view.members, view.since)
    member.receive(Propose("old", newer), 0.1)
    member.receive(Install("old", newer, table), 0.1)
    member.take_messages()
    changed = table.changed([Change(Event.STALE, 0, table.owners()[0][1])])
    member.receive(ProposeTable("old", changed), 0.2)
    assert (OLD.address, AcceptTable("me", 8, 1)) in member.take_messages()
    member.receive(Propose("old", View(9, view.members, view.since)), 0.3)
    again = changed.changed([Change(Event.SYNCED, 0, table.owners()[0][1])])
    member.receive(ProposeTable("old", again), 0.4)
    assert member.take_messages() == [(OLD.address, Accept("me", 9, (8, 1), table)), (OLD.address, Reject("me", 9))]


def test_what_another_proposal_has_come_before_is_reported_again_when_that_is_in_force() -> None:
    """Not with a later heartbeat: a partition that is handed over is closed until a table says so."""
    member = member_of(OLD, YOUNG)
    view = member.view
    assert view is not None
    newer = View(8, view.members, view.since)
    table = PartitionTable(8, 0, view.uuids, ((1, 0), (1, 0)), ((2,), (2,)), ((1, 2), (1, 2)))
    member.receive(Propose("old", newer), 0.1)
    member.receive(Install("old", newer, table), 0.1)
    synced = [Change(Event.SYNCED, partition, view.uuids[2]) for partition in range(2)]
    member.report(synced)
    member.take_messages()
    changed = table.changed(synced[:1])
    member.receive(ProposeTable("old", changed), 0.2)
    member.take_messages()
    member.receive(InstallTable("old", changed), 0.3)
    assert member.take_messages() == [(OLD.address, ReplicaReport("me", 8, 2, (synced[1],)))]
