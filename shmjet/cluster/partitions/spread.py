"""Items spread evenly over members at the least cost: a minimum-cost flow with convex costs of the members' loads.

Every item is on a number of different members. `Spread.level` moves items until the sum of the squares of the loads is
the least possible and, among the ways to have that, the sum of the costs is. It sends items along shortest paths from
full members to empty ones, where a path may have several items move, each to the place of the next (successive shortest
paths; Ahuja, Magnanti, Orlin: Network Flows, chapters 9 and 14). Items of one kind that lie on the same members are
alike, so they move together: the work depends on the number of members and kinds, not on the number of items.

Knows nothing of partitions. Deterministic, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

Kind = TypeVar("Kind", bound=Hashable)
Places = frozenset[int]
Group = tuple[Kind, Places]


class Edge(NamedTuple, Generic[Kind]):
    """Items of one group can leave a member for another one, at this cost for each."""

    cost: int
    out: int
    into: int
    group: Group[Kind]


class Spread(Generic[Kind]):
    """See the module. Members are numbers from 0.

    Args:
        members: how many there are.
        copies: on how many different members each item is to be.
        cost: of an item of a kind on a member.
        fits: says whether an item of a kind that is on some members may be on another one as well.
        rank: of items on a member: of items that are alike the highest ranks move there.
    """

    def __init__(
        self,
        members: int,
        copies: int,
        cost: Callable[[Kind, int], int],
        fits: Callable[[Kind, Places, int], bool],
        rank: Callable[[list[int], int], list[int]],
    ) -> None:
        self._members = range(members)
        self._outside = members  # the place of copies that are on no member yet
        self._copies = copies
        self._cost = cost
        self._fits = fits
        self._rank = rank
        self._groups: dict[Group[Kind], list[int]] = {}
        self._edges_of: dict[Group[Kind], list[Edge[Kind]]] = {}
        self._loads = [0] * members
        self._missing = 0

    def put(self, items: list[int], kind: Kind, places: Iterable[int]) -> None:
        """Add items that are on these members, `copies` at most. They have to be the cheapest for them."""
        there = frozenset(places)
        self._groups.setdefault((kind, there), []).extend(items)
        self._missing += (self._copies - len(there)) * len(items)
        for member in there:
            self._loads[member] += len(items)

    def level(self) -> list[tuple[Kind, Places, list[int]]]:
        """Spread the items, and return which of each kind are on which members."""
        while self._missing and self._fill():
            pass
        while self._even_out():
            pass
        return [(kind, places, items) for (kind, places), items in self._groups.items()]

    # -- steps --------------------------------------------------------------------------------------------------

    def _fill(self) -> bool:
        """Put missing copies on the emptiest member that can have some; False where none can."""
        edges = self._best_edges()
        paths = self._paths(edges, [self._outside])
        count = max(1, self._missing // len(self._members))
        return any(
            self._move(paths.to(member), count) or self._move(_direct(edges, self._outside, member), count)
            for member in self._in_order(paths, self._members)
        )

    def _even_out(self) -> bool:
        """Move items from fuller members to emptier ones, or have two loads change places where that costs less."""
        edges = self._best_edges()
        full = {
            load: self._paths(edges, [member for member in self._members if self._loads[member] == load])
            for load in sorted(set(self._loads), reverse=True)
        }
        for load, paths in full.items():
            emptier = [member for member in self._members if self._loads[member] <= load - 2]
            for member in self._in_order(paths, emptier):
                if self._move(paths.to(member), self._difference(load, self._loads[member])):
                    return True
        for load, paths in full.items():
            next_to = [member for member in self._members if self._loads[member] == load - 1]
            for member in self._in_order(paths, next_to):
                if paths.cost(member) < 0 and self._move(paths.to(member), 1):
                    return True
        return False

    def _difference(self, full: int, empty: int) -> int:
        """Return how many items to move from a full member to an emptier one: up to the mean, where it lies between."""
        mean = sum(self._loads) // len(self._members)
        count = min(full - mean, mean - empty)
        return count if count > 0 else (full - empty) // 2

    def _in_order(self, paths: _Paths[Kind], members: Iterable[int]) -> list[int]:
        """Return the members that paths reach, the emptiest first."""
        found = [member for member in members if member in paths]
        return sorted(found, key=lambda member: (self._loads[member], paths.cost(member), member))

    def _paths(self, edges: list[Edge[Kind]], sources: list[int]) -> _Paths[Kind]:
        return _Paths(edges, sources, self._outside + 1)

    def _best_edges(self) -> list[Edge[Kind]]:
        """Return the cheapest edge between any two members; of equally cheap ones the first."""
        best: dict[tuple[int, int], Edge[Kind]] = {}
        for group in self._groups:
            edges = self._edges_of.get(group)
            if edges is None:
                edges = self._edges_of[group] = list(self._edges(group))
            for edge in edges:
                known = best.get((edge.out, edge.into))
                if known is None or edge.cost < known.cost:
                    best[edge.out, edge.into] = edge
        return list(best.values())

    def _edges(self, group: Group[Kind]) -> Iterator[Edge[Kind]]:
        kind, places = group
        leaving = sorted(places) + [self._outside] * (len(places) < self._copies)
        for out in leaving:
            rest, saved = places - {out}, 0 if out == self._outside else self._cost(kind, out)
            for into in self._members:
                if into not in places and self._fits(kind, rest, into):
                    yield Edge(self._cost(kind, into) - saved, out, into, group)

    def _move(self, path: list[Edge[Kind]], most: int) -> bool:
        """Move as many items as there are along all edges of a path, `most` at most; False where there are none."""
        used = [edge.group for edge in path]
        count = min(most, *(len(self._groups[group]) // used.count(group) for group in used)) if path else 0
        if not count:
            path, count = self._one_after_another(path), 1
        for edge in path:
            kind, places = edge.group
            moving = self._groups.pop(edge.group)
            if count < len(moving):
                ranked = [item for _, item in sorted(zip(self._rank(moving, edge.into), moving, strict=True))]
                moving, staying = ranked[-count:], ranked[:-count]
                self._groups[edge.group] = staying
            self._groups.setdefault((kind, (places - {edge.out}) | {edge.into}), []).extend(moving)
            self._loads[edge.into] += count
            if edge.out == self._outside:
                self._missing -= count
            else:
                self._loads[edge.out] -= count
        return bool(path)

    def _one_after_another(self, path: list[Edge[Kind]]) -> list[Edge[Kind]]:
        """Return a path along which one item moves, where edges share an item that has to move twice; or none."""
        left = {edge.group: len(self._groups[edge.group]) for edge in path}
        reached: dict[Group[Kind], Group[Kind]] = {}
        steps = []
        for edge in path:
            group = edge.group
            left[group] -= 1
            kind, places = group if left[group] >= 0 else reached[group]
            rest = places - {edge.out}
            if edge.into in places or len(rest) == len(places) or not self._fits(kind, rest, edge.into):
                return []
            steps.append(edge._replace(group=(kind, places)))
            reached[group] = kind, rest | {edge.into}
        return steps


class _Paths(Generic[Kind]):
    """The cheapest paths from some places to all others, of equally cheap ones the shortest (Bellman and Ford).

    Args:
        edges: between places.
        sources: where paths begin.
        places: how many there are.
    """

    def __init__(self, edges: list[Edge[Kind]], sources: list[int], places: int) -> None:
        self._found: dict[int, tuple[int, int]] = dict.fromkeys(sources, (0, 0))
        self._last: dict[int, Edge[Kind]] = {}
        for _ in range(places):
            changed = False
            for edge in edges:
                if edge.out not in self._found:
                    continue
                cost, steps = self._found[edge.out]
                reached = cost + edge.cost, steps + 1
                known = self._found.get(edge.into)
                if (known is None or reached < known) and not self._passes(edge.out, edge.into):
                    self._found[edge.into] = reached
                    self._last[edge.into] = edge
                    changed = True
            if not changed:
                return

    def _passes(self, place: int, through: int) -> bool:
        """Say whether the path to a place passes another one: no path is to come back."""
        while place != through:
            if place not in self._last:
                return False
            place = self._last[place].out
        return True

    def __contains__(self, place: int) -> bool:
        return place in self._last

    def cost(self, place: int) -> int:
        """Return what the path to a place costs."""
        return self._found[place][0]

    def to(self, place: int) -> list[Edge[Kind]]:
        """Return the edges of the path to a place, from its end."""
        path = []
        while place in self._last:
            edge = self._last[place]
            path.append(edge)
            place = edge.out
        return path


def _direct(edges: list[Edge[Kind]], out: int, into: int) -> list[Edge[Kind]]:
    """Return the path of one edge between two places, or none."""
    return [edge for edge in edges if (edge.out, edge.into) == (out, into)]
