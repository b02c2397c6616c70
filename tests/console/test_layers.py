"""The picture's layout: edges point forwards, nothing overlaps, chains are straight."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from shmjet.console.layers import arrange


def test_a_chain_is_a_straight_line() -> None:
    arranged = arrange(4, [(0, 1), (1, 2), (2, 3)])
    assert [place.layer for place in arranged.vertices] == [0, 1, 2, 3]
    assert {place.across for place in arranged.vertices} == {0.5}
    assert (arranged.layers, arranged.breadth) == (4, 1.0)


def test_an_edge_over_several_layers_passes_a_bend_in_each() -> None:
    arranged = arrange(4, [(0, 1), (1, 2), (2, 3), (0, 3)])
    assert [bend.layer for bend in arranged.bends[3]] == [1, 2]
    assert arranged.bends[0] == []


def test_branches_that_could_cross_do_not() -> None:
    arranged = arrange(6, [(0, 5), (1, 4), (0, 2), (1, 3)])
    a, b = arranged.vertices[0].across, arranged.vertices[1].across
    left, right = ({5, 2}, {4, 3}) if a < b else ({4, 3}, {5, 2})
    assert max(arranged.vertices[v].across for v in left) < min(arranged.vertices[v].across for v in right)


def test_nothing_at_all_has_a_layout() -> None:
    arranged = arrange(0, [])
    assert (arranged.vertices, arranged.layers, arranged.breadth) == ([], 1, 0.0)


@st.composite
def dags(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    count = draw(st.integers(1, 9))
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    return count, draw(st.lists(st.sampled_from(pairs), unique=True, max_size=14)) if pairs else []


@given(dags())
def test_edges_point_forwards_and_nothing_overlaps(dag: tuple[int, list[tuple[int, int]]]) -> None:
    count, edges = dag
    arranged = arrange(count, edges)
    room: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
    for place in arranged.vertices:
        room[place.layer].append((place.across, 1.0))
    for bends in arranged.bends:
        for place in bends:
            room[place.layer].append((place.across, 0.4))
    for a, b in edges:
        assert arranged.vertices[a].layer < arranged.vertices[b].layer
    for places in room.values():
        ordered = sorted(places)
        for (x, w), (y, v) in pairwise(ordered):
            assert y - x >= (w + v) / 2 - 0.002
        assert ordered[0][0] >= ordered[0][1] / 2 - 0.002
        assert ordered[-1][0] <= arranged.breadth - ordered[-1][1] / 2 + 0.002
