"""Which cores a member takes, on machines of one, two and four nodes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shmjet
from shmjet import ConfigError, JetConfig
from shmjet.host.control_groups import Limits
from shmjet.host.placement import place
from shmjet.host.topology import Topology, read_topology
from tests.machines import four_nodes, machine, two_sockets


def one_node(cores: Sequence[int]) -> Topology:
    return Topology({0: tuple(cores)}, {core: (core,) for core in cores}, frozenset(cores))


def test_on_one_node_the_default_is_a_worker_for_each_core() -> None:
    placed = place(None, one_node([2, 5]))
    assert (placed.cores, placed.allowed, placed.nodes) == ((2, 5), (2, 5), (0,))
    assert placed.memory_nodes == ()
    assert placed.spin
    assert placed.note == ""


def test_more_workers_than_cores_share_them_and_do_not_spin() -> None:
    placed = place(3, one_node([2, 5]))
    assert (placed.cores, placed.allowed, placed.spin) == ((2, 5, 2), (2, 5), False)
    assert place(1, one_node([2, 5])).cores == (2,)


def test_a_list_is_obeyed_on_whatever_nodes_its_cores_are(tmp_path: Path) -> None:
    topology = read_topology(two_sockets(tmp_path), range(16))
    placed = place((12, 0), topology)
    assert (placed.cores, placed.allowed, placed.nodes, placed.memory_nodes) == ((12, 0), (0, 12), (1, 0), (1, 0))
    with pytest.raises(ConfigError, match=r"names core 7, but this process may use only \[2, 5\]"):
        place((7,), one_node([2, 5]))


def test_the_default_stays_on_one_node_and_says_so(tmp_path: Path) -> None:
    placed = place(None, read_topology(two_sockets(tmp_path), range(16)))
    assert placed.cores == (0, 1, 2, 3, 8, 9, 10, 11)
    assert (placed.nodes, placed.memory_nodes) == ((0,), (0,))
    assert placed.note == "this member stays on NUMA node 0; cores=16 takes the cores of node 1 too"


def test_home_is_where_most_of_the_allowed_cores_are(tmp_path: Path) -> None:
    topology = read_topology(two_sockets(tmp_path), [0, 1, 4, 5, 6])
    assert place(None, topology).nodes == (1,)
    assert place(2, topology).cores == (4, 5)


def test_among_equal_nodes_home_is_the_one_with_most_free_memory(tmp_path: Path) -> None:
    topology = read_topology(machine(tmp_path, {0: [0, 1], 1: [2, 3]}, free_mb={0: 10, 1: 20}), range(4))
    assert place(2, topology).nodes == (1,)


def test_physical_cores_come_before_second_threads_but_after_them_no_other_node_is_needed(tmp_path: Path) -> None:
    topology = read_topology(two_sockets(tmp_path), range(16))
    assert place(4, topology).cores == (0, 1, 2, 3)
    assert place(6, topology).cores == (0, 1, 2, 3, 8, 9)
    assert place(6, topology).note == ""


def test_what_does_not_fit_one_node_goes_to_the_nearest_and_is_logged(tmp_path: Path) -> None:
    topology = read_topology(four_nodes(tmp_path), [0, 1, 2, 3, 4, 6, 7])
    assert place(3, topology).cores == (4, 6, 7)
    placed = place(5, topology)
    assert placed.cores == (4, 6, 7, 2, 3)
    assert (placed.nodes, placed.memory_nodes) == ((4, 1), (4,))
    assert "5 workers do not fit the 3 cores of NUMA node 4: node 1 is used too" in placed.note
    everything = place(9, topology)
    assert everything.cores == (4, 6, 7, 2, 3, 0, 1, 4, 6)
    assert "nodes 0, 1 are used too" in everything.note
    assert not everything.spin


def test_a_quota_lowers_the_default_and_leaves_workers_unpinned_on_their_node(tmp_path: Path) -> None:
    topology = msgspec.structs.replace(read_topology(two_sockets(tmp_path), range(16)), limits=Limits(2, cpus=2.5))
    placed = place(None, topology)
    assert placed.cores == (None, None, None)
    assert placed.allowed == (0, 1, 2, 3, 8, 9, 10, 11)
    assert placed.nodes == (0,)
    assert not placed.spin
    assert place(2, topology).spin
    assert place(2, topology).cores == (None, None)
    assert place((3,), topology).cores == (3,)
    assert place(None, msgspec.structs.replace(topology, limits=Limits(2, cpus=0.5))).cores == (None,)
    assert place(2, msgspec.structs.replace(topology, limits=Limits(2, cpus=16.0))).cores == (0, 1)


def test_memory_is_not_asked_of_nodes_that_the_cpuset_excludes(tmp_path: Path) -> None:
    topology = read_topology(two_sockets(tmp_path), range(16))
    assert place(None, msgspec.structs.replace(topology, limits=Limits(2, nodes=frozenset({1})))).memory_nodes == ()
    assert place(16, msgspec.structs.replace(topology, limits=Limits(2, nodes=frozenset({1})))).memory_nodes == (1,)


@given(st.sets(st.integers(0, 15), min_size=1), st.integers(1, 40))
def test_a_number_of_workers_gets_different_cores_while_there_are_any(allowed: set[int], wanted: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        topology = read_topology(two_sockets(Path(folder)), allowed)
    placed = place(wanted, topology)
    assert len(placed.cores) == wanted
    assert set(placed.cores) <= allowed
    assert len(set(placed.cores)) == min(wanted, len(allowed))
    home = topology.usable()[placed.nodes[0]]
    assert len(home) == max(map(len, topology.usable().values()))
    assert placed.cores[: len(home)] == home[:wanted]


def test_a_member_runs_where_it_was_placed() -> None:
    core = max(os.sched_getaffinity(0))
    with shmjet.new_instance(JetConfig(cores=[core])) as jet:
        member = jet.cluster.members[0]
        assert member.cores == (core,)
        assert os.sched_getaffinity(member.pid) == {core}
        assert os.sched_getaffinity(member.workers[0]) == {core}


def test_a_core_that_is_not_ours_is_an_error_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match="names core 4095"):
        shmjet.new_instance(JetConfig(cores=[4095]))
