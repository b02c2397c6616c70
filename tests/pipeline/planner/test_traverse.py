"""The walk: each vertex once, in a defined order, whatever the graph."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shmjet.pipeline.planner.traverse import traverse

graphs = st.integers(1, 8).flatmap(
    lambda n: st.lists(st.lists(st.integers(0, n - 1), max_size=n), min_size=n, max_size=n)
)


def visited(graph: list[list[int]], start: int = 0) -> list[int]:
    order: list[int] = []
    traverse(start, order.append, lambda vertex: graph[vertex])
    return order


def by_recursion(graph: list[list[int]], vertex: int, seen: list[int]) -> list[int]:
    if vertex not in seen:
        seen.append(vertex)
        for following in graph[vertex]:
            by_recursion(graph, following, seen)
    return seen


@given(graphs)
def test_it_visits_what_a_recursive_walk_visits_in_the_same_order(graph: list[list[int]]) -> None:
    assert visited(graph) == by_recursion(graph, 0, [])


def test_a_diamond_is_visited_depth_first_and_its_end_once() -> None:
    assert visited([[1, 2], [3], [3], []]) == [0, 1, 3, 2]


def test_a_cycle_ends_where_it_began() -> None:
    assert visited([[1], [2], [0]]) == [0, 1, 2]
    assert visited([[0]]) == [0]


def test_every_walk_has_a_memory_of_its_own() -> None:
    assert visited([[1], []]) == visited([[1], []])


def test_a_graph_may_be_deeper_than_the_stack() -> None:
    assert visited([[i + 1] for i in range(50_000)] + [[]]) == list(range(50_001))


def test_what_follows_is_asked_for_once_and_after_the_visit() -> None:
    log: list[str] = []

    def following(vertex: int) -> list[int]:
        log.append(f"after {vertex}")
        return [[1, 1], [0]][vertex]

    traverse(0, lambda vertex: log.append(f"visit {vertex}"), following)
    assert log == ["visit 0", "after 0", "visit 1", "after 1"]
