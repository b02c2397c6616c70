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

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import repeat

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
        ((0, 1), (1, 0), (1, 0), (0, 1))
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
        rows: list[Held] = [()] * len(self._held)
        planned = self._primaries()
        if self._copies == 1:
            for _, primary, items in planned:
                row = tuple(primary)
                for partition in items:
                    rows[partition] = row
            return tuple(rows)
        for (chosen, held, _), primary, items in self._primaries_among(self._replicas(planned)):
            for partition, row in zip(items, self._ordered(items, chosen, held, primary), strict=True):
                rows[partition] = row
        return tuple(rows)

    def _rank(self, partitions: list[int], member: int) -> list[int]:
        """Return how much a member is for partitions: numbers that depend on its name and on nothing else."""
        seed = self._seeds[member]
        return [((seed ^ partition * _ODD) & _LONG) * _MIX & _LONG for partition in partitions]

    def _primaries(self) -> list[tuple[Held, Places, list[int]]]:
        """Choose primaries as if nothing else mattered: a backup is a better one than a member that has to copy."""

        def cost(held: Held, member: int) -> int:
            return 3 if member not in held else min(1, held.index(member))

        spread = Spread[Held](self._members, 1, cost, lambda _held, _rest, _into: True, self._rank)
        alike: dict[Held, list[int]] = {}
        for partition, held in enumerate(self._held):
            alike.setdefault(held, []).append(partition)
        for held, items in alike.items():
            spread.put(items, held, held[:1])
        return spread.level()

    def _replicas(
        self, planned: list[tuple[Held, Places, list[int]]]
    ) -> list[tuple[tuple[int, Held], Places, list[int]]]:
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
        for held, (primary,), items in planned:
            kind = primary, held
            costs = {member: cost(kind, member) for member in held}
            staying: list[int] = []
            for member in sorted(held, key=costs.__getitem__):
                if len(staying) < self._copies and fits(kind, frozenset(staying), member):
                    staying.append(member)
            spread.put(items, kind, staying)
        return spread.level()

    def _primaries_among(
        self, chosen: list[tuple[tuple[int, Held], Places, list[int]]]
    ) -> list[tuple[tuple[Places, Held, int], Places, list[int]]]:
        """Choose the primary of each partition among its members."""
        Choice = tuple[Places, Held, int]

        def cost(kind: Choice, member: int) -> int:
            _, held, planned = kind
            return 2 * (held[:1] != (member,)) + (member != planned)

        spread = Spread[Choice](self._members, 1, cost, lambda kind, _rest, into: into in kind[0], self._rank)
        for (planned, held), places, items in chosen:
            first = [member for member in (*held[:1], planned) if member in places][:1]
            spread.put(items, (places, held, planned), first)
        return spread.level()

    def _ordered(self, items: list[int], chosen: Places, held: Held, primary: Places) -> Iterator[Held]:
        """Yield the row of each partition: the primary, the present backups as they are, new ones by rank."""
        staying = tuple(member for member in held if member in chosen and member not in primary)
        new = sorted(chosen - primary - set(staying))
        if len(new) < 2:
            yield from repeat((*primary, *staying, *new), len(items))
            return
        ranks = [self._rank(items, member) for member in new]
        for ranked in zip(*ranks, strict=True):
            by_rank = [member for _, member in sorted(zip(ranked, new, strict=True), reverse=True)]
            yield (*primary, *staying, *by_rank)


def _seed(name: str) -> int:
    import hashlib  # it loads OpenSSL, which a member alone does not need

    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")


def _most_on_one_host(hosts: Sequence[str], copies: int) -> int:
    """Return how many replicas of one partition have to be on one host at least."""
    on = Counter(hosts)
    most = 1
    while sum(min(most, members) for members in on.values()) < copies:
        most += 1
    return most
