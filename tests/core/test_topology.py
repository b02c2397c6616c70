"""Order and cycles of arbitrary graphs."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from shmjet.core.graph_order import cycle_in, topological_order

NODES = list("abcdef")
graphs = st.fixed_dictionaries({node: st.lists(st.sampled_from(NODES), max_size=3) for node in NODES})


@given(graphs)
def test_a_graph_has_either_a_complete_order_or_a_cycle(successors):
    order = topological_order(NODES, successors)
    cycle = cycle_in(NODES, successors)
    assert (len(order) == len(NODES)) == (cycle == [])
    place = {node: i for i, node in enumerate(order)}
    assert all(place[a] < place[b] for a in order for b in successors[a] if b in place)


@given(graphs)
def test_a_cycle_is_a_path_of_real_edges_that_returns_to_its_start(successors):
    cycle = cycle_in(NODES, successors)
    if cycle:
        assert cycle[0] == cycle[-1]
        assert len(set(cycle[:-1])) == len(cycle) - 1
        assert all(b in successors[a] for a, b in pairwise(cycle))


def test_the_given_order_decides_among_equals():
    assert topological_order(["b", "a", "c"], {"a": [], "b": [], "c": []}) == ["b", "a", "c"]
