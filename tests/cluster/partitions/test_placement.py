"""Placement of partitions against brute force: even, on different hosts, with the least copies."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from shmjet.cluster.partitions.placement import Held, place
from tests.examples import examples

Rows = Sequence[Held]


@st.composite
def clusters(draw: st.DrawFn, most_members: int, most_partitions: int) -> tuple[list[Held], list[str], int]:
    """Draw who has which partitions, the members' hosts, and a number of backups."""
    members = draw(st.integers(1, most_members))
    backups = draw(st.integers(0, 2))
    rows = st.permutations(range(members)).flatmap(
        lambda order: st.integers(0, min(2 + backups, members)).map(lambda size: tuple(order[:size]))
    )
    held = draw(st.lists(rows, min_size=1, max_size=most_partitions))
    hosts = draw(
        st.one_of(
            st.just([f"h{m}" for m in range(members)]),
            st.lists(st.sampled_from("ab"), min_size=members, max_size=members),
        )
    )
    return held, hosts, backups


def loads(rows: Rows, members: int) -> list[int]:
    counts = Counter(itertools.chain.from_iterable(rows))
    return [counts[member] for member in range(members)]


def copies(held: Rows, rows: Rows) -> int:
    return sum(member not in had for had, row in zip(held, rows, strict=True) for member in row)


def cost(held: Rows, rows: Rows, members: int) -> tuple[int, int]:
    """Return how uneven a placement is, and how many copies it takes."""
    return sum(load * load for load in loads(rows, members)), copies(held, rows)


def hosts_shared(rows: Rows, hosts: Sequence[str]) -> int:
    """Return how many replicas of a partition are on one host, at most."""
    return max(max(Counter(hosts[member] for member in row).values()) for row in rows)


def names(members: int) -> list[str]:
    return [f"member {member}" for member in range(members)]


@examples(60)
@given(clusters(4, 4))
def test_no_placement_is_more_even_and_none_as_even_has_fewer_copies(case: tuple[list[Held], list[str], int]) -> None:
    held, hosts, backups = case
    members = len(hosts)
    found = place(held, hosts, names(members), backups)
    size = min(1 + backups, members)
    assert all(len(set(row)) == len(row) == size for row in found)
    rows = list(itertools.combinations(range(members), size))
    apart = min(hosts_shared([row], hosts) for row in rows)
    assert hosts_shared(found, hosts) == apart
    allowed = [row for row in rows if hosts_shared([row], hosts) == apart]
    possible = itertools.product(allowed, repeat=len(held))
    assert cost(held, found, members) == min(cost(held, placed, members) for placed in possible)


@given(clusters(6, 40))
def test_primaries_and_replicas_are_even_within_one_where_hosts_allow_it(
    case: tuple[list[Held], list[str], int],
) -> None:
    held, hosts, backups = case
    members = len(hosts)
    apart = [f"host {member}" for member in range(members)]
    found = place(held, apart, names(members), backups)
    for rows in (found, [row[:1] for row in found]):
        counts = loads(rows, members)
        assert max(counts) - min(counts) <= 1


@given(clusters(6, 40))
def test_a_placement_is_kept_and_is_the_same_for_everybody(case: tuple[list[Held], list[str], int]) -> None:
    held, hosts, backups = case
    found = place(held, hosts, names(len(hosts)), backups)
    assert place(held, list(hosts), names(len(hosts)), backups) == found
    assert place(found, hosts, names(len(hosts)), backups) == found


@given(clusters(5, 30))
def test_a_newcomer_takes_its_share_and_nobody_else_copies_anything(case: tuple[list[Held], list[str], int]) -> None:
    held, hosts, backups = case
    members = len(hosts)
    apart = [f"host {member}" for member in range(members + 1)]
    before = place(held, apart[:-1], names(members), backups)
    after = place(before, apart, names(members + 1), backups)
    if len(before[0]) == len(after[0]):  # else there is a backup more of each
        assert copies(before, after) == loads(after, members + 1)[-1]


def test_members_of_one_host_are_no_backups_for_each_other_while_there_is_another_host() -> None:
    hosts = ["one", "one", "one", "two"]
    found = place([()] * 30, hosts, names(4), 1)
    assert all({hosts[member] for member in row} == {"one", "two"} for row in found)
    assert loads(found, 4) == [10, 10, 10, 30]
    primaries = loads([row[:1] for row in found], 4)
    assert max(primaries) - min(primaries) <= 1


def test_members_of_the_only_host_are_backups_for_each_other() -> None:
    assert all(len(row) == 2 for row in place([()] * 10, ["one", "one"], names(2), 1))


def test_alike_partitions_move_by_rank_and_not_by_number() -> None:
    held = [(0,)] * 100
    moved = [partition for partition, row in enumerate(place(held, ["a", "b"], names(2), 0)) if row == (1,)]
    other = [partition for partition, row in enumerate(place(held, ["a", "b"], ["x", "y"], 0)) if row == (1,)]
    assert len(moved) == len(other) == 50
    assert moved != list(range(50))
    assert moved != other


def test_one_partition_may_move_twice_on_the_way_to_an_even_placement() -> None:
    held = [(2, 0, 3), (1, 2, 4), (2, 1)]
    found = place(held, ["b", "a", "c", "b", "a"], names(5), 1)
    assert cost(held, found, 5) == (8, 1)


def test_the_largest_number_of_partitions_is_shared_evenly() -> None:
    found = place([(0,)] * 65535, ["a", "b", "c"], names(3), 0)
    assert loads(found, 3) == [21845] * 3
