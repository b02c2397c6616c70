"""What a DAG accepts, what it refuses and with which words, and in which order it gives its vertices."""

from itertools import pairwise

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet.core import DAG, DagError, Processor, Vertex, between, from_


def dag_of(*names):
    dag = DAG()
    return dag, *(dag.new_vertex(name, Processor) for name in names)


def names_of(vertices):
    return [vertex.name for vertex in vertices]


def test_iteration_puts_each_vertex_behind_those_that_feed_it():
    dag, sink, source, middle = dag_of("sink", "source", "middle")
    dag.edge(between(source, middle)).edge(between(middle, sink))
    assert names_of(dag) == ["source", "middle", "sink"]


def test_an_empty_dag_is_valid():
    assert list(DAG()) == []


def test_vertices_are_found_by_name():
    dag, a = dag_of("a")
    assert dag.vertex("a") is a
    assert a in dag
    assert "a" in dag
    assert Vertex("a", Processor) not in dag
    with pytest.raises(DagError, match="no vertex 'b' in this DAG; vertices: 'a'"):
        dag.vertex("b")


def test_unique_names_are_counted():
    dag = DAG()
    assert names_of([dag.new_unique_vertex("map", Processor) for _ in range(3)]) == ["map", "map-2", "map-3"]


def test_a_duplicate_vertex_name_is_refused():
    dag, _ = dag_of("a")
    with pytest.raises(DagError, match="'a' is in this DAG already"):
        dag.new_vertex("a", Processor)


def test_a_vertex_made_elsewhere_can_be_added():
    dag, vertex = DAG(), Vertex("a", Processor)
    assert dag.add_vertex(vertex) is vertex
    assert dag.add_vertex(vertex) is vertex


def test_an_edge_without_a_destination_is_refused():
    dag, a = dag_of("a")
    with pytest.raises(DagError, match=r"from_\('a', 0\) has no destination; say \.to\("):
        dag.edge(from_(a))


def test_unknown_vertices_are_refused():
    dag, a = dag_of("a")
    stranger = Vertex("stranger", Processor)
    with pytest.raises(DagError, match="destination 'stranger' is not in this DAG"):
        dag.edge(between(a, stranger))
    with pytest.raises(DagError, match="source 'stranger' is not in this DAG"):
        dag.edge(between(stranger, a))


def test_another_vertex_of_the_same_name_is_refused():
    dag, a, _ = dag_of("a", "b")
    with pytest.raises(DagError, match="destination is not the vertex 'b' of this DAG but another one of that name"):
        dag.edge(between(a, Vertex("b", Processor)))


def test_a_self_edge_is_refused():
    dag, a = dag_of("a")
    with pytest.raises(DagError, match="'a' cannot feed itself"):
        dag.edge(between(a, a))


def test_a_duplicate_ordinal_is_refused_with_advice_when_both_are_zero():
    dag, a, b, c = dag_of("a", "b", "c")
    dag.edge(between(a, b))
    with pytest.raises(DagError, match=r"'a': outbound ordinal 0 is taken by between\('a', 'b'\); use from_"):
        dag.edge(between(a, c))
    with pytest.raises(DagError, match="'b': inbound ordinal 0 is taken") as caught:
        dag.edge(from_(c, 1).to(b, 0))
    assert "use from_" not in str(caught.value)


def test_the_same_edge_twice_is_refused():
    dag, a, b = dag_of("a", "b")
    edge = between(a, b)
    dag.edge(edge)
    with pytest.raises(DagError, match="added already"):
        dag.edge(edge)


def test_something_else_than_an_edge_is_refused():
    dag, a = dag_of("a")
    with pytest.raises(DagError, match="takes an Edge"):
        dag.edge(a)


@pytest.mark.parametrize(("outbound", "inbound", "text"), [(1, 0, "outbound ordinal 0"), (0, 1, "inbound ordinal 0")])
def test_a_gap_in_ordinals_is_refused(outbound, inbound, text):
    dag, a, b = dag_of("a", "b")
    dag.edge(from_(a, outbound).to(b, inbound))
    with pytest.raises(DagError, match=f"{text} is missing, there are \\[1\\]"):
        dag.validate()


def test_a_cycle_is_shown_as_a_path():
    dag, a, b, c, d = dag_of("a", "b", "c", "d")
    dag.edge(between(a, b)).edge(between(b, c)).edge(between(c, d)).edge(from_(d).to(b, 1))
    with pytest.raises(DagError, match="cycle: b -> c -> d -> b"):
        dag.validate()
    with pytest.raises(DagError, match="cycle"):
        iter(dag)


def test_several_edges_may_join_two_vertices():
    dag, a, b = dag_of("a", "b")
    dag.edge(from_(a, 1).to(b, 0)).edge(from_(a, 0).to(b, 1))
    dag.validate()
    assert [edge.destination_ordinal for edge in dag.outbound_edges(a)] == [1, 0]
    assert [edge.source_ordinal for edge in dag.inbound_edges("b")] == [1, 0]


def test_an_edge_distributed_to_one_member_must_be_partitioned():
    dag, a, b = dag_of("a", "b")
    edge = between(a, b).distribute_to("10.0.0.5:5701")
    dag.edge(edge)
    with pytest.raises(DagError, match=r"distribute_to\(\) needs a partitioned\(\) or all_to_one\(\) edge"):
        dag.validate()
    edge.partitioned()
    dag.validate()
    edge.all_to_one()
    dag.validate()


def test_a_dag_with_lambdas_survives_cloudpickle_with_its_identities():
    dag, a, b = dag_of("a", "b")
    dag.edge(between(a, b).partitioned(lambda item: item % 3))
    copy = cloudpickle.loads(cloudpickle.dumps(dag))
    copy.validate()
    edge = copy.edges[0]
    assert edge.source is copy.vertex("a")
    assert edge.destination is copy.vertex("b")
    assert edge.key_fn(7) == 1


def test_text_form_shows_vertices_and_edges():
    dag, a, b = dag_of("a", "b")
    dag.edge(between(a, b).broadcast())
    assert str(dag) == "DAG\n    Vertex('a', Processor)\n    Vertex('b', Processor)\n    between('a', 'b').broadcast()"


def test_a_long_chain_needs_no_deep_stack():
    dag = DAG()
    vertices = [dag.new_vertex(str(i), Processor) for i in range(2000)]
    for first, second in pairwise(vertices):
        dag.edge(between(first, second))
    assert len(list(dag)) == 2000


@given(st.permutations(range(7)), st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6))))
def test_any_acyclic_graph_is_ordered(creation_order, pairs):
    dag = DAG()
    made = {i: dag.new_vertex(str(i), Processor) for i in creation_order}
    outbound, inbound = [0] * 7, [0] * 7
    for low, high in sorted((min(p), max(p)) for p in pairs if p[0] != p[1]):
        dag.edge(from_(made[low], outbound[low]).to(made[high], inbound[high]))
        outbound[low] += 1
        inbound[high] += 1
    place = {vertex: i for i, vertex in enumerate(dag)}
    assert len(place) == 7
    assert all(place[edge.source] < place[edge.destination] for edge in dag.edges)
