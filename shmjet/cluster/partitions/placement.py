"""Where the replicas of partitions should lie: evenly, on different hosts, with the least moves from where they are.

In this order of importance, for each set of members:

1. the replicas of a partition are on as many hosts as there are;
2. the members have equally many replicas, within one, and equally many primaries, within one, where (1) allows it;
3. as few replicas as possible are copied;
4. as few of the staying replicas as possible change between backup and primary;
5. of partitions that are alike those move for which the member has the highest rendezvous rank, so that the choice does
   not lean to low numbers and is the same on each member.

Copies are the least possible exactly; (4) is kept by three steps one after the other (primaries, replicas, primaries
among these), each of which is exact by itself. Pure.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

from shmjet.cluster.partitions.spread import Places, Spread

_LONG = (1 << 64) - 1
_ODD, _MIX = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9
"""Of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators)."""

Held = tuple[int, ...]
"""The members, as numbers, that have a partition, the primary first."""


def place(held: Sequence[Held], hosts: Sequence[str], names: Sequence[str], backups: int) -> tuple[Held, ...]:
    """Return the members that each partition should be on, the primary first, then the backups.

    Args:
        held: for each partition, who has a replica now, the primary first; empty for a partition that no member has.
        hosts: of the members.
        names: of the members, different ones; they decide ties.
        backups: how many each partition should have, as far as there are members.

    Example:
        >>> place([(0,), (0,), (0,), (0,)], ["a", "b"], ["a", "b"], 1)
        ((0, 1), (1, 0), (0, 1), (1, 0))
    """
    return _Placement(held, hosts, names, backups).wanted()


class _Placement:
    def __init__(self, held: Sequence[Held], hosts: Sequence[str], names: Sequence[str], backups: int) -> None:
        self._held = held
        self._hosts = hosts
        self._members = len(hosts)
        self._copies = min(1 + backups, self._members)
        self._on_one_host = _most_on_one_host(hosts, self._copies)
        self._seeds = [_seed(name) for name in names]

    def wanted(self) -> tuple[Held, ...]:
        planned = self._primaries()
        chosen = self._replicas(planned)
        primaries = self._primaries_among(chosen, planned)
        return tuple(
            (primaries[partition], *self._backups(partition, chosen[partition] - {primaries[partition]}))
            for partition in range(len(self._held))
        )

    def _rank(self, partition: int, member: int) -> int:
        """Return how much a member is for a partition: a number that depends on its name and on nothing else."""
        mixed = self._seeds[member] ^ (partition + 1) * _ODD & _LONG
        mixed = (mixed ^ mixed >> 30) * _MIX & _LONG
        return mixed ^ mixed >> 27

    def _primaries(self) -> list[int]:
        """Choose primaries as if nothing else mattered: a backup is a better one than a member that has to copy."""

        def cost(held: Held, member: int) -> int:
            return 3 if member not in held else min(1, held.index(member))

        spread = Spread[Held](self._members, 1, cost, lambda _held, _rest, _into: True, self._rank)
        for partition, held in enumerate(self._held):
            spread.put(partition, held, held[:1])
        return _only(spread.level(), len(self._held))

    def _replicas(self, planned: list[int]) -> list[Places]:
        """Choose the members of each partition; where that costs no copy, planned primaries and no change of a role."""
        copy = 8 * self._copies * max(1, len(self._held))

        def cost(kind: tuple[int, Held], member: int) -> int:
            primary, held = kind
            is_primary = member == primary
            if member not in held:
                return copy + 2 * (not is_primary)
            return 2 * (not is_primary) + ((member == held[0]) != is_primary)

        def fits(_kind: tuple[int, Held], rest: Places, into: int) -> bool:
            host = self._hosts[into]
            return sum(self._hosts[member] == host for member in rest) < self._on_one_host

        spread = Spread[tuple[int, Held]](self._members, self._copies, cost, fits, self._rank)
        for partition, held in enumerate(self._held):
            kind = planned[partition], held
            costs = {member: cost(kind, member) for member in held}
            staying: list[int] = []
            for member in sorted(held, key=costs.__getitem__):
                if len(staying) < self._copies and fits(kind, frozenset(staying), member):
                    staying.append(member)
            spread.put(partition, kind, staying)
        found = spread.level()
        return [found[partition] for partition in range(len(self._held))]

    def _primaries_among(self, chosen: list[Places], planned: list[int]) -> list[int]:
        """Choose the primary of each partition among its members."""
        Choice = tuple[Places, int, int]

        def cost(kind: Choice, member: int) -> int:
            _, primary, plan = kind
            return 2 * (member != primary) + (member != plan)

        spread = Spread[Choice](self._members, 1, cost, lambda kind, _rest, into: into in kind[0], self._rank)
        for partition, places in enumerate(chosen):
            primary = self._held[partition][0] if self._held[partition] else -1
            first = [member for member in (primary, planned[partition]) if member in places][:1]
            spread.put(partition, (places, primary, planned[partition]), first)
        return _only(spread.level(), len(chosen))

    def _backups(self, partition: int, members: Places) -> list[int]:
        """Order the backups: the present ones as they are, then the others by rank."""
        held = self._held[partition]
        new = sorted(members - set(held), key=lambda member: -self._rank(partition, member))
        return [member for member in held if member in members] + new


def _seed(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")


def _most_on_one_host(hosts: Sequence[str], copies: int) -> int:
    """Return how many replicas of one partition have to be on one host at least."""
    on = Counter(hosts)
    most = 1
    while sum(min(most, members) for members in on.values()) < copies:
        most += 1
    return most


def _only(places: dict[int, Places], count: int) -> list[int]:
    return [next(iter(places[item])) for item in range(count)]
