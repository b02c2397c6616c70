"""What the kernel says about cores and nodes, read from made-up machines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet.host.kernel_files import format_list, parse_list, read_names, read_number, read_text
from shmjet.host.topology import read_cores, read_topology
from tests.machines import CPUS, NODES, four_nodes, machine, two_sockets, write


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0-2,5\n", {0, 1, 2, 5}), ("", set()), ("7", {7}), ("0-1,4-5", {0, 1, 4, 5}), ("max", set()), ("3-", {3})],
)
def test_kernel_lists_are_understood(text: str, numbers: set[int]) -> None:
    assert parse_list(text) == numbers


@given(st.sets(st.integers(0, 300)))
def test_a_list_that_was_written_reads_back(numbers: set[int]) -> None:
    assert parse_list(format_list(numbers)) == numbers


def test_files_that_are_not_there_are_empty(tmp_path: Path) -> None:
    assert read_text(f"{tmp_path}/none") == ""
    assert read_text(str(tmp_path)) == ""
    assert read_number(f"{tmp_path}/none") is None
    assert read_names(f"{tmp_path}/none", "node") == []


def test_two_sockets_with_hardware_threads(tmp_path: Path) -> None:
    topology = read_topology(two_sockets(tmp_path), range(16))
    assert topology.nodes == {0: (0, 1, 2, 3, 8, 9, 10, 11), 1: (4, 5, 6, 7, 12, 13, 14, 15)}
    assert topology.siblings[2] == topology.siblings[10] == (2, 10)
    assert topology.has_smt
    assert topology.usable()[1] == (4, 5, 6, 7, 12, 13, 14, 15)
    assert topology.memory == {0: 1000 << 20, 1: 1000 << 20}
    assert topology.distances[1] == {0: 20, 1: 10}


def test_neighbouring_numbers_may_be_threads_of_one_core(tmp_path: Path) -> None:
    topology = read_topology(machine(tmp_path, {0: range(6)}, siblings=[(0, 1), (2, 3), (4, 5)]), range(6))
    assert topology.usable() == {0: (0, 2, 4, 1, 3, 5)}


def test_a_thread_whose_sibling_may_not_be_used_is_a_core_of_its_own(tmp_path: Path) -> None:
    topology = read_topology(two_sockets(tmp_path), [1, 8, 9, 10])
    assert topology.usable() == {0: (1, 8, 10, 9)}
    assert topology.has_smt
    assert not read_topology(tmp_path, [0, 9, 5]).has_smt


def test_holes_in_numbers_nodes_of_memory_only_and_offline_cores(tmp_path: Path) -> None:
    topology = read_topology(four_nodes(tmp_path), [0, 1, 2, 3, 4, 6, 7])
    assert topology.nodes == {0: (0, 1), 1: (2, 3), 4: (4, 6, 7), 8: ()}
    assert topology.usable().keys() == {0, 1, 4}
    assert topology.memory == {0: 500 << 20, 4: 2000 << 20, 8: 64000 << 20}
    assert topology.distances[4] == {0: 31, 1: 12, 4: 10, 8: 40}
    assert read_cores(tmp_path) == (frozenset(range(8)), frozenset({0, 1, 2, 3, 4, 6, 7}))


def test_without_node_folders_all_cores_are_one_node(tmp_path: Path) -> None:
    topology = read_topology(tmp_path, [3, 5])
    assert topology.nodes == {0: (3, 5)}
    assert topology.siblings == {3: (3,), 5: (5,)}
    assert topology.memory == {}


def test_cores_that_no_node_has_belong_to_the_first(tmp_path: Path) -> None:
    assert read_topology(machine(tmp_path, {1: [0], 2: [1]}), [0, 1, 9]).nodes == {1: (0, 9), 2: (1,)}


def test_older_kernels_call_siblings_by_another_name(tmp_path: Path) -> None:
    write(tmp_path, {f"{CPUS}/cpu{core}/topology/thread_siblings_list": "0,4\n" for core in (0, 4)})
    assert read_topology(tmp_path, [0, 4]).siblings == {0: (0, 4), 4: (0, 4)}


def test_the_cpuset_is_part_of_what_is_allowed(tmp_path: Path) -> None:
    cpuset = "sys/fs/cgroup/cpuset.cpus.effective"
    write(two_sockets(tmp_path), {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cgroup.controllers": "cpuset\n"})
    write(tmp_path, {cpuset: "4-7,12\n"})
    assert read_topology(tmp_path, range(16)).allowed == {4, 5, 6, 7, 12}
    write(tmp_path, {cpuset: "100-103\n"})  # numbers of another machine: the affinity is what counts
    assert read_topology(tmp_path, range(16)).allowed == set(range(16))


def test_this_machine_has_a_node_for_every_core_of_this_process() -> None:
    topology = read_topology()
    assert topology.allowed
    assert topology.allowed <= os.sched_getaffinity(0)
    assert {core for cores in topology.usable().values() for core in cores} == topology.allowed
    assert all(core in topology.siblings[core] for core in topology.allowed)
    assert Path("/", NODES).exists() or list(topology.nodes) == [0]
