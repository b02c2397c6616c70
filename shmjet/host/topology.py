"""The cores and the memory of this machine as the kernel describes them, and what of them this process may use.

Read from `/sys/devices/system/node` and `/sys/devices/system/cpu`; where there is no such folder (no NUMA in the
kernel, a container that hides it), all cores count as one node. Only reads; `shmjet.host.placement` decides.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

import msgspec

from shmjet.host.control_groups import Limits, control_group
from shmjet.host.kernel_files import Root, parse_list, read_names, read_text

_NODES = "sys/devices/system/node"
_CPUS = "sys/devices/system/cpu"


class Topology(msgspec.Struct, frozen=True):
    """A machine and this process's part in it.

    `nodes` maps each NUMA node to its online cores, ascending; a node of memory only has none, and numbers may have
    holes. `siblings` maps a core to all hardware threads of its physical core, ascending, itself included. `allowed`
    are the cores that this process may run on. Where there are several nodes, `memory` maps each that has memory to its
    free bytes (0 where unknown), and `distances[a][b]` is the relative cost of node b's memory from node a, 10 for its
    own.
    """

    nodes: Mapping[int, tuple[int, ...]]
    siblings: Mapping[int, tuple[int, ...]]
    allowed: frozenset[int]
    limits: Limits = Limits()
    memory: Mapping[int, int] = {}
    distances: Mapping[int, Mapping[int, int]] = {}

    def usable(self) -> dict[int, tuple[int, ...]]:
        """Return the nodes of which this process may use cores, each with these; best first within a node.

        Best first: one hardware thread of each physical core, then the second ones, and so on; by number among equals.
        """
        found = {}
        for node, cores in self.nodes.items():
            if mine := [core for core in cores if core in self.allowed]:
                found[node] = tuple(sorted(mine, key=lambda core: (self.rank(core), core)))
        return found

    def rank(self, core: int) -> int:
        """Return how many usable hardware threads of the same physical core come before this one."""
        return sum(1 for other in self.siblings.get(core, ()) if other < core and other in self.allowed)

    def node_of(self, core: int) -> int:
        """Return the node of a core."""
        return next(node for node, cores in self.nodes.items() if core in cores)

    @property
    def has_smt(self) -> bool:
        """Whether any two usable cores are hardware threads of one physical core."""
        return any(self.rank(core) for core in self.allowed)


def read_topology(root: Root = "/", allowed: Iterable[int] | None = None) -> Topology:
    """Look at the machine.

    Args:
        root: where `proc` and `sys` are.
        allowed: the process's CPU affinity; by default asked of the kernel.
    """
    base = os.fspath(root).rstrip("/")
    limits = control_group(root)
    mine = frozenset(os.sched_getaffinity(0) if allowed is None else allowed)
    if limits.cores is not None and mine & limits.cores:  # else the cpuset's numbers are not this process's
        mine &= limits.cores
    nodes = {
        node: tuple(sorted(parse_list(read_text(f"{base}/{_NODES}/node{node}/cpulist"))))
        for node in read_names(f"{base}/{_NODES}", "node")
    }
    strays = mine.difference(*nodes.values())
    if strays:  # no nodes at all, or cores that no node has
        first = min((node for node, cores in nodes.items() if cores), default=min(nodes, default=0))
        nodes[first] = tuple(sorted(strays.union(nodes.get(first, ()))))
    memory, distances = {}, {}
    if len(nodes) > 1:
        with_memory = parse_list(read_text(f"{base}/{_NODES}/has_memory")) or set(nodes)
        memory = {node: _free_memory(f"{base}/{_NODES}/node{node}/meminfo") for node in nodes if node in with_memory}
        distances = {node: _distances(f"{base}/{_NODES}/node{node}/distance", list(nodes)) for node in nodes}
    return Topology(nodes, _siblings(base, mine), mine, limits, memory, distances)


def read_cores(root: Root = "/") -> tuple[frozenset[int], frozenset[int]]:
    """Return the cores that are there, and those of them that are online."""
    folder = f"{os.fspath(root).rstrip('/')}/{_CPUS}"
    online = frozenset(parse_list(read_text(f"{folder}/online")))
    return frozenset(parse_list(read_text(f"{folder}/present"))) | online, online


def _siblings(base: str, cores: Iterable[int]) -> dict[int, tuple[int, ...]]:
    if read_text(f"{base}/{_CPUS}/smt/active") == "0":  # spares a file for each core
        return {core: (core,) for core in cores}
    found: dict[int, tuple[int, ...]] = {}
    for core in sorted(cores):
        if core in found:
            continue
        folder = f"{base}/{_CPUS}/cpu{core}/topology"
        text = read_text(f"{folder}/core_cpus_list") or read_text(f"{folder}/thread_siblings_list")
        siblings = tuple(sorted({core} | parse_list(text)))
        found.update(dict.fromkeys(siblings, siblings))
    return found


def _free_memory(path: str) -> int:
    for line in read_text(path).splitlines():
        words = line.split()  # Node 0 MemFree:  123456 kB
        if "MemFree:" in words[:-1]:
            return int(words[words.index("MemFree:") + 1]) * 1024
    return 0


def _distances(path: str, nodes: list[int]) -> dict[int, int]:
    """Read a line of distances, which has one for each node there is, whatever holes their numbers have."""
    words = read_text(path).split()
    return {node: int(word) for node, word in zip(nodes, words, strict=False) if word.isdecimal()}
