"""Edges: what each chained method sets, and what is refused at once."""

import pytest

from shmjet.core import ConfigError, DagError, EdgeConfig, Processor, Routing, Vertex, between, from_
from shmjet.core.keys import DEFAULT_TO_ONE_KEY


@pytest.fixture
def a():
    return Vertex("a", Processor)


@pytest.fixture
def b():
    return Vertex("b", Processor)


def test_an_edge_is_local_unicast_between_ordinals_zero_by_default(a, b):
    edge = between(a, b)
    assert (edge.source, edge.source_ordinal, edge.destination, edge.destination_ordinal) == (a, 0, b, 0)
    assert edge.routing is Routing.UNICAST
    assert not edge.is_distributed
    assert edge.priority_value == 0
    assert not edge.is_buffered
    assert not edge.is_ordered
    assert edge.edge_config == EdgeConfig(2048, 1024, 16384, 3)
    assert edge.label == "'a'[0] -> 'b'[0]"


def test_every_method_returns_the_edge_and_sets_its_property(a, b):
    def key(item):
        return item

    config = EdgeConfig(queue_size=8)
    edge = from_(a, 1).to(b, 2)
    chained = edge.partitioned(key, lambda k, n: 0).distributed().priority(-3).buffered().ordered(key).configure(config)
    assert chained is edge
    assert edge.routing is Routing.PARTITIONED
    assert edge.key_fn is key
    assert edge.partitioner(5, 3) == 0
    assert edge.is_distributed
    assert edge.priority_value == -3
    assert edge.is_buffered
    assert edge.is_ordered
    assert edge.order_key is key
    assert edge.edge_config is config
    assert repr(edge) == (
        "from_('a', 1).to('b', 2).partitioned(key, <lambda>).distributed().priority(-3).buffered().ordered(key)"
    )


@pytest.mark.parametrize("routing", ["unicast", "isolated", "broadcast", "fanout", "all_to_one", "partitioned"])
def test_the_last_routing_wins(a, b, routing):
    edge = between(a, b).partitioned(str)
    getattr(edge, routing)()
    assert edge.routing.value == routing
    assert edge.key_fn is None


def test_all_to_one_has_a_key(a, b):
    assert between(a, b).all_to_one().to_one_key == DEFAULT_TO_ONE_KEY
    assert between(a, b).all_to_one("k").to_one_key == "k"
    assert repr(between(a, b).all_to_one("k")) == "between('a', 'b').all_to_one('k')"


def test_local_undoes_distribution(a, b):
    edge = between(a, b).partitioned().distribute_to("host:1").local()
    assert not edge.is_distributed
    assert edge.target_address is None


def test_a_distributed_isolated_edge_is_refused_either_way_round(a, b):
    with pytest.raises(DagError, match="cannot be distributed"):
        between(a, b).isolated().distributed()
    with pytest.raises(DagError, match="cannot be isolated"):
        between(a, b).distributed().isolated()
    with pytest.raises(DagError, match="cannot be distributed"):
        between(a, b).isolated().distribute_to("host:1")


def test_a_second_destination_is_refused(a, b):
    with pytest.raises(DagError, match="has a destination already"):
        between(a, b).to(b, 1)


def test_a_missing_destination_is_an_error_when_it_is_asked_for(a):
    assert not from_(a).has_destination
    with pytest.raises(DagError, match="has no destination"):
        from_(a).destination


@pytest.mark.parametrize("ordinal", [-1, "0", 1.0, True])
def test_an_ordinal_counts_from_zero(a, b, ordinal):
    with pytest.raises(DagError, match=r"'a'.*ordinal"):
        from_(a, ordinal)
    with pytest.raises(DagError, match=r"'b'.*ordinal"):
        from_(a).to(b, ordinal)


def test_wrong_arguments_name_the_edge(a, b):
    with pytest.raises(DagError, match=r"between\('a', 'b'\): partitioned\(key_fn\) must be a function, got 3"):
        between(a, b).partitioned(3)
    with pytest.raises(DagError, match=r"partitioned\(partitioner\) must be a function"):
        between(a, b).partitioned(str, "murmur")
    with pytest.raises(DagError, match="priority must be an integer"):
        between(a, b).priority("high")
    with pytest.raises(DagError, match=r"ordered\(key\) must be a function"):
        between(a, b).ordered(1)
    with pytest.raises(DagError, match="a member's address"):
        between(a, b).distribute_to("")
    with pytest.raises(ConfigError, match="takes an EdgeConfig"):
        between(a, b).configure({"queue_size": 1})
    with pytest.raises(DagError, match="source must be a Vertex"):
        between("a", b)


@pytest.mark.parametrize("field", ["high_water_mark", "queue_size", "packet_size_limit", "receive_window_multiplier"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "1", True, None])
def test_edge_config_names_the_wrong_field(field, value):
    with pytest.raises(ConfigError, match=f"EdgeConfig.{field} must be"):
        EdgeConfig(**{field: value})


def test_an_unknown_setting_is_named():
    with pytest.raises(ConfigError, match=r"EdgeConfig: there is no setting 'queuesize'; did you mean 'queue_size'"):
        EdgeConfig(queuesize=1)
