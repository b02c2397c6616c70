"""A cluster of membership state machines on a virtual clock and a network that misbehaves, all from one seed.

One `Simulation` is one story: members start, things go wrong for a while (`FAULTS`), then all is well again, and after
some quiet seconds they must have found together. What has to hold at any time is checked at every event; a breach
raises `Broken`, whose text has the seed and how to run it again. Shared by the tests and by stress/simulate_cluster.py.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable

from shmjet.cluster.membership.events import (
    PartitionsLost,
    State,
    StoredRunsWanted,
    TableInstalled,
    ViewInstalled,
    WasFenced,
)
from shmjet.cluster.membership.state_machine import Membership
from shmjet.cluster.membership.views import MembershipMessage, Peer, View
from shmjet.cluster.partitions.recovery import StoredTable
from shmjet.cluster.partitions.table import Change, Event, Version
from tests.cluster.simulated_data import PARTITIONS, SimulatedData

TICK_S = 0.25
QUIET_S = 9.0
STORY_S = 7.0


class Broken(AssertionError):
    """Something that must always hold does not."""


class Node:
    """One host: at most one member process at a time, at an address that stays."""

    def __init__(self, simulation: Simulation, address: str, seeds: list[str]) -> None:
        self.simulation = simulation
        self.address = address
        self.seeds = seeds
        self.member: Membership | None = None
        self.generation = 0
        self.paused_until = 0.0
        self.held: list[MembershipMessage] = []
        self.gone_for_me: set[str] = set()
        self.epoch = 0
        self.installed: View | None = None
        """The last view that was looked at: the member may have left it since."""
        self.version: Version = (0, 0)
        self.stored: StoredTable | None = None
        """What its disk has when a member is started."""
        self.runs_of = ""
        """The member whose runs on disk this one has got."""
        self.uuid = ""
        """The identity at the time of the event that is looked at: it may have changed since."""

    @property
    def alive(self) -> bool:
        return self.member is not None

    def start(self) -> None:
        peer = Peer(self.simulation.identity(), self.address, 1)
        self.member = Membership(
            peer,
            self.seeds,
            PARTITIONS,
            self.simulation.identity,
            self.simulation.now,
            backups=self.simulation.backups,
            holds_data=True,
            stored=self.stored,
        )
        self.generation += 1
        self.paused_until, self.epoch, self.uuid, self.version, self.runs_of = 0.0, 0, peer.uuid, (0, 0), ""
        self.held.clear()
        self.gone_for_me.clear()
        self.simulation.at(self.simulation.now, self.tick, self.generation)

    def kill(self) -> None:
        self.member = None
        self.generation += 1

    def pause(self, seconds: float) -> None:
        self.paused_until = max(self.paused_until, self.simulation.now + seconds)

    def tick(self, generation: int) -> None:
        if self.member is None or generation != self.generation:
            return
        now = self.simulation.now
        if now < self.paused_until:
            self.simulation.at(self.paused_until, self.tick, generation)
            return
        held, self.held = self.held, []
        for message in held:
            self.member.receive(message, now)
        self.member.tick(now)
        self.settle()
        self.simulation.data.write(self)
        self.restore()
        if self.member is not None:
            self.simulation.at(now + TICK_S, self.tick, generation)

    def deliver(self, message: MembershipMessage) -> None:
        if self.member is None:
            return
        if self.simulation.now < self.paused_until:
            self.held.append(message)
            return
        self.member.receive(message, self.simulation.now)
        self.settle()

    def refused(self, address: str) -> None:
        """Learn that no process listens at an address, as a kernel says for a process that was killed."""
        if self.member is not None and self.simulation.now >= self.paused_until:
            self.member.unreachable(address, self.simulation.now)
            self.settle()

    def settle(self) -> None:
        """Send what the member wants to say, and check what it has come to believe."""
        member = self.member
        assert member is not None
        events = member.take_events()
        for event in sorted(events, key=lambda event: isinstance(event, TableInstalled)):  # then losses are known
            if isinstance(event, TableInstalled):
                self.check_table(event)
            elif isinstance(event, PartitionsLost):
                self.simulation.note(f"{self.address}: partitions {event.partitions} are lost")
                self.simulation.data.lost(event.partitions, self)
            elif isinstance(event, ViewInstalled):
                self.check(event.view)
                self.simulation.data.view_installed(event, self.uuid)
                self.gone_for_me.update(peer.uuid for peer in (*event.lost, *event.left))
                self.simulation.removals += len(event.lost)
            elif isinstance(event, StoredRunsWanted):
                self.ask_for_runs(event.member)
            elif isinstance(event, WasFenced):
                self.simulation.fencings += 1
                self.uuid = event.me.uuid
                self.version = (0, 0)
                self.epoch = 0  # under a new identity it may join the members that had lost it
                self.gone_for_me.clear()
        for address, message in member.take_messages():
            self.simulation.transmit(self, address, message)
        if member.state is State.LEFT:
            self.kill()

    def ask_for_runs(self, member: str) -> None:
        """Get the runs that a member has on disk, from there: a moment later, or not at all, as the network has it."""

        def get(asked: Membership | None) -> None:
            if asked is None or asked is not self.member or self.simulation.now < self.paused_until:
                return
            other = self.simulation.node_of(member)
            if other is not None and (other is self or self.simulation.connects(self.address, other.address)):
                self.runs_of = member
                asked.has_runs_of(member)
                self.settle()

        self.simulation.at(self.simulation.now + 0.02 * self.simulation.random.random(), get, self.member)

    def restore(self) -> None:
        """Go on with the runs on disk of the last coordinator, as the present one, at some time."""
        member = self.member
        table = None if member is None or not member.is_coordinator else member.table
        if member is None or table is None or table.is_waiting or not table.led_by:
            return
        if self.simulation.random.random() < 0.3:
            member.report([Change(Event.RESTORED, 0, table.led_by)])
            self.settle()

    def check_table(self, event: TableInstalled) -> None:
        table = event.table
        if table.version <= self.version:
            self.simulation.broken(f"{self.address} goes from table {self.version} to {table.version}")
        self.version = table.version
        assert self.member is not None
        if self.member.table is table and self.member.me.uuid == self.uuid:  # else it has gone on since
            if self.member.view is None or table.epoch != self.member.view.epoch:
                self.simulation.broken(f"{self.address} has a table of epoch {table.epoch}, in view {self.member.view}")
            self.simulation.data.table_installed(table, self)

    def check(self, view: View) -> None:
        simulation = self.simulation
        if view.epoch <= self.epoch:
            simulation.broken(f"{self.address} goes from epoch {self.epoch} to {view.epoch}")
        self.epoch, self.installed = view.epoch, view
        if view.find(self.uuid) is None:
            simulation.broken(f"{self.address} installs a view without itself")
        if len(set(view.uuids)) < len(view.uuids) or len({p.address for p in view.members}) < len(view.members):
            simulation.broken(f"{self.address} installs a view with a member twice: {view}")
        if back := self.gone_for_me.intersection(view.uuids):
            simulation.broken(f"{self.address} sees {back} again, which had been removed")
        for other in simulation.views.setdefault(view.epoch, []):
            if other != view and set(other.uuids) & set(view.uuids):
                simulation.broken(f"two views of epoch {view.epoch} share members: {other.uuids} and {view.uuids}")
        simulation.views[view.epoch].append(view)


class Simulation:
    """One story.

    Args:
        seed: decides everything.
        size: how many hosts; None: up to the seed.
        faults: how many things go wrong; None: up to the seed.
    """

    def __init__(self, seed: int, size: int | None = None, faults: int | None = None) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now = 0.0
        self.views: dict[int, list[View]] = {}
        self.removals = 0
        self.fencings = 0
        self.is_healed = False
        self.trace: list[str] = []
        self._queue: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._order = itertools.count()
        self._identities = itertools.count(1)
        self._delay = 0.002
        self._drop = 0.0
        self._double = 0.0
        self._cut: set[tuple[str, str]] = set()
        self._clogged: dict[tuple[str, str], list[MembershipMessage]] = {}
        self.backups = seed % 3
        self.data = SimulatedData(self)
        count = size if size is not None else self.random.choice([2, 3, 3, 3, 4, 5])
        addresses = [f"10.0.0.{place}:5701" for place in range(1, count + 1)]
        self.random.shuffle(addresses)
        listed = addresses if self.random.random() < 0.5 else addresses[:1]
        self.nodes = {address: Node(self, address, listed) for address in addresses}
        gap = self.random.choice([0.0, 0.05, 1.0])
        for place, node in enumerate(self.nodes.values()):
            self.at(place * gap * self.random.random(), node.start)
        wrong = self.random.randint(1, 3) if faults is None else faults
        for _ in range(wrong):
            fault = self.random.choice(FAULTS)
            self.at(1.0 + self.random.random() * (STORY_S - 2.0), fault, self)

    def identity(self) -> str:
        return f"m{next(self._identities)}"

    def at(self, when: float, action: Callable[..., None], *arguments: object) -> None:
        heapq.heappush(self._queue, (when, next(self._order), action, arguments))

    def note(self, text: str) -> None:
        self.trace.append(f"{self.now:6.2f} {text}")

    def broken(self, text: str) -> None:
        story = "\n".join(self.trace)
        raise Broken(
            f"seed {self.seed}: at {self.now:.2f} s {text}\n{story}\n"
            f"again: python stress/simulate_cluster.py --seed {self.seed} --count 1 --verbose"
        )

    def up_to(self, end: float) -> None:
        """Let time pass."""
        while self._queue and self._queue[0][0] <= end:
            self.now, _, action, arguments = heapq.heappop(self._queue)
            action(*arguments)
        self.now = end

    def run(self) -> None:
        """Tell the whole story."""
        self.up_to(STORY_S)
        self.heal()
        self.note("all is well again")
        self.up_to(STORY_S + QUIET_S)
        self.check_together()

    # -- the network ------------------------------------------------------------------------------------------------

    def transmit(self, sender: Node, address: str, message: MembershipMessage) -> None:
        receiver = self.nodes.get(address)
        pair = (sender.address, address)
        if receiver is None or pair in self._cut:
            return
        if pair in self._clogged:
            self._clogged[pair].append(message)
            return
        if not receiver.alive:
            self.at(self.now + self._delay, sender.refused, address)
            return
        chance = self.random.random()
        if chance < self._drop:
            return
        copies = 2 if chance > 1.0 - self._double else 1
        for _ in range(copies):
            self.at(self.now + self._delay * (0.5 + self.random.random()), receiver.deliver, message)

    def connects(self, sender: str, receiver: str) -> bool:
        """Say whether messages go both ways now."""
        pairs = {(sender, receiver), (receiver, sender)}
        return pairs.isdisjoint(self._cut) and pairs.isdisjoint(self._clogged)

    def cut(self, apart: set[str], *, one_way: bool = False) -> None:
        for a in self.nodes:
            for b in self.nodes:
                if (a in apart) and (b not in apart):
                    self._cut.add((a, b))
                    if not one_way:
                        self._cut.add((b, a))

    def clog(self, pair: tuple[str, str]) -> None:
        self._clogged.setdefault(pair, [])

    def flow(self, pair: tuple[str, str]) -> None:
        for message in self._clogged.pop(pair, []):
            self.at(self.now + self._delay, self.nodes[pair[1]].deliver, message)

    def repair(self) -> None:
        self._cut.clear()
        self.note("the network is whole")

    def heal(self) -> None:
        """End all that goes wrong. The dead stay dead, but for one at an address by which others find each other."""
        self.is_healed = True
        self._delay, self._drop, self._double = 0.002, 0.0, 0.0
        self._cut.clear()
        for pair in list(self._clogged):
            self.flow(pair)
        for node in self.nodes.values():
            node.paused_until = min(node.paused_until, self.now)
        known = next(iter(self.nodes.values()))
        if not known.alive and len(known.seeds) == 1:
            known.start()

    # -- the end ----------------------------------------------------------------------------------------------------

    def members(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.alive]

    def check_together(self) -> None:
        """All who live have found each other."""
        alive = self.members()
        wanted = {node.member.me.uuid for node in alive if node.member is not None}
        for node in alive:
            member = node.member
            assert member is not None
            if member.state is not State.MEMBER or member.view is None:
                self.broken(f"{node.address} is {member.state.name}")
            elif set(member.view.uuids) != wanted:
                self.broken(f"{node.address} is in a view of {member.view.uuids}, not of {sorted(wanted)}")
        tables = {node.member.table for node in alive if node.member is not None}
        if len(tables) > 1 or None in tables:
            self.broken(f"the members have {len(tables)} tables of partitions")
        for table in tables:
            assert table is not None
            if not table.is_settled:
                self.broken(f"not all partitions are where they should be: {table}")

    def node_of(self, uuid: str) -> Node | None:
        """Return the host of a member that lives."""
        return next((n for n in self.members() if n.member is not None and n.member.me.uuid == uuid), None)

    def shake(self, delay: float, drop: float, double: float) -> None:
        self._delay, self._drop, self._double = delay, drop, double


def _kill(simulation: Simulation) -> None:
    if len(simulation.members()) > 1:
        node = simulation.random.choice(simulation.members())
        simulation.note(f"kill {node.address}")
        node.kill()
        if simulation.random.random() < 0.6:
            after = simulation.random.choice([0.05, 0.5, 3.0])
            simulation.note(f"and start it again after {after} s")
            simulation.at(simulation.now + after, _start, simulation, node)


def _start(simulation: Simulation, node: Node) -> None:
    if not node.alive:
        node.start()


def _leave(simulation: Simulation) -> None:
    nodes = simulation.members()
    if len(nodes) > 1:
        node = simulation.random.choice(nodes)
        if node.member is not None and simulation.now >= node.paused_until:
            if simulation.random.random() < 0.5:
                simulation.note(f"{node.address} leaves")
                node.member.leave(simulation.now)
                node.settle()
            else:
                simulation.note(f"{node.address} wants to leave, and hands its partitions over")
                simulation.data.vacate(node)


def _pause(simulation: Simulation) -> None:
    nodes = simulation.members()
    if nodes:
        node, seconds = simulation.random.choice(nodes), simulation.random.choice([0.5, 1.0, 2.5, 5.0])
        simulation.note(f"{node.address} stands still for {seconds} s")
        node.pause(seconds)


def _partition(simulation: Simulation) -> None:
    addresses = list(simulation.nodes)
    apart = set(simulation.random.sample(addresses, simulation.random.randint(1, len(addresses) - 1)))
    one_way = simulation.random.random() < 0.25
    seconds = simulation.random.choice([0.5, 2.0, 4.0])
    simulation.note(f"cut {sorted(apart)} off{' one way' if one_way else ''} for {seconds} s")
    simulation.cut(apart, one_way=one_way)
    simulation.at(simulation.now + seconds, simulation.repair)


def _clog(simulation: Simulation) -> None:
    if len(simulation.nodes) > 1:
        a, b = simulation.random.sample(list(simulation.nodes), 2)
        seconds = simulation.random.choice([0.5, 2.0, 4.0])
        simulation.note(f"clog {a} -> {b} for {seconds} s")
        simulation.clog((a, b))
        simulation.at(simulation.now + seconds, simulation.flow, (a, b))


def _shake(simulation: Simulation) -> None:
    delay, drop, double = simulation.random.choice([0.05, 0.4]), simulation.random.random() * 0.4, 0.3
    simulation.note(f"delays of {delay} s, {drop:.0%} lost, {double:.0%} doubled")
    simulation.shake(delay, drop, double)


FAULTS: list[Callable[[Simulation], None]] = [_kill, _kill, _leave, _pause, _partition, _partition, _clog, _shake]
