"""Which cores a member's workers run on, and which NUMA nodes its rings take memory from. Pure: decides, does nothing.

The rules, in their order:

- A list of cores is obeyed: one worker pinned to each.
- Everything else stays on one node, the *home* node: the one of which the process may use the most cores; among equals
  the one with the most free memory, then the lowest number. `cores=None` takes all usable cores of the home node, at
  most as many as the CPU quota of the control group gives (rounded up).
- `cores=N` takes cores of the home node, and goes on to the next nodes, the nearest first, only when N is more than
  the home node has. With more workers than usable cores several workers share one.
- Within a node every physical core gets a worker before any gets a second one on its sibling thread.
- Workers are pinned to their core, unless a CPU quota gives less than the usable cores: then the machine's cores are
  shared with others, who would pin to the same first ones, so workers may move among the node's cores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from shmjet.data.errors import ConfigError
from shmjet.host.control_groups import Limits
from shmjet.host.topology import Topology


class Placement(msgspec.Struct, frozen=True):
    """Where a member lives.

    `cores` has the core of each worker, None for a worker without one; `allowed` are the cores that any process of
    the member may run on, `nodes` the nodes of these, home first; `memory_nodes` those from which shared memory is
    taken, empty where there is no choice; `spin` says whether an idle worker may spin before it sleeps, because it
    takes no time from another; `note` says what a user may not expect, "" when there is nothing.
    """

    cores: tuple[int | None, ...]
    allowed: tuple[int, ...]
    nodes: tuple[int, ...]
    memory_nodes: tuple[int, ...]
    spin: bool
    note: str


def place(wanted: int | Sequence[int] | None, topology: Topology) -> Placement:
    """Choose cores.

    Args:
        wanted: `JetConfig.cores`.
        topology: of this machine.

    Raises:
        ConfigError: a core of the list may not be used by this process.
    """
    usable = topology.usable()
    if isinstance(wanted, Sequence):
        for core in wanted:
            if core not in topology.allowed:
                allowed = sorted(topology.allowed)
                raise ConfigError(f"JetConfig.cores names core {core}, but this process may use only {allowed}")
        return _placement(topology, tuple(wanted), wanted, "")
    order = _by_nearness(usable, topology)
    home = order[0]
    count = _default_count(len(usable[home]), topology.limits) if wanted is None else wanted
    near: list[int] = []
    for node in order:
        if len(near) < count:
            near += usable[node]
    chosen = tuple(near[i % len(near)] for i in range(count))
    quota, note = topology.limits.cpus, _note(topology, usable, home, wanted, chosen)
    if quota is not None and quota < len(topology.allowed):
        return _placement(topology, (None,) * count, near, note)
    return _placement(topology, chosen, chosen, note)


def _by_nearness(usable: dict[int, tuple[int, ...]], topology: Topology) -> list[int]:
    """The nodes in the order in which they are taken, the home node first."""
    home = min(usable, key=lambda node: (-len(usable[node]), -topology.memory.get(node, 0), node))
    far = topology.distances.get(home, {})
    return sorted(usable, key=lambda node: (node != home, far.get(node, math.inf), -len(usable[node]), node))


def _default_count(cores: int, limits: Limits) -> int:
    """How many workers there are by default: one for each core of the node that the quota pays for."""
    return cores if limits.cpus is None else min(cores, max(1, math.ceil(limits.cpus)))


def _placement(topology: Topology, cores: tuple[int | None, ...], allowed: Sequence[int], note: str) -> Placement:
    nodes = tuple(dict.fromkeys(topology.node_of(core) for core in allowed))
    memory = [node for node in nodes if node in topology.memory]
    if topology.limits.nodes is not None:
        memory = [node for node in memory if node in topology.limits.nodes]
    quota = topology.limits.cpus
    return Placement(
        cores,
        tuple(sorted(set(allowed))),
        nodes,
        tuple(memory) if len(topology.memory) > 1 else (),
        spin=len(cores) <= len(set(allowed)) and (quota is None or len(cores) <= quota),
        note=note,
    )


def _note(
    topology: Topology, usable: dict[int, tuple[int, ...]], home: int, wanted: int | None, chosen: Sequence[int]
) -> str:
    """Say what happens on several nodes."""
    own, everywhere = len(usable[home]), sum(map(len, usable.values()))
    spilled = sorted({topology.node_of(core) for core in chosen} - {home})
    if spilled:
        return (
            f"{len(chosen)} workers do not fit the {own} cores of NUMA node {home}: {_named(spilled)} "
            f"{'are' if len(spilled) > 1 else 'is'} used too, and rings between nodes are slower"
        )
    if wanted is None and len(usable) > 1:
        others = _named(sorted(usable.keys() - {home}))
        return f"this member stays on NUMA node {home}; cores={everywhere} takes the cores of {others} too"
    return ""


def _named(nodes: Sequence[int]) -> str:
    return f"node{'s' if len(nodes) > 1 else ''} {', '.join(map(str, nodes))}"
