"""Made-up machines: folders that look like `/proc` and `/sys` of hosts that the tests do not run on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from shmjet.host.kernel_files import format_list

CPUS = "sys/devices/system/cpu"
NODES = "sys/devices/system/node"


def write(root: Path, files: Mapping[str, str]) -> None:
    """Write files with their folders."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def machine(
    root: Path,
    nodes: Mapping[int, Sequence[int]],
    *,
    siblings: Sequence[Sequence[int]] = (),
    offline: Sequence[int] = (),
    free_mb: Mapping[int, int] | None = None,
    distances: Mapping[int, Sequence[int]] | None = None,
) -> Path:
    """Make a machine.

    Args:
        root: an empty folder.
        nodes: the online cores of each node.
        siblings: cores that are hardware threads of one physical core; others are alone.
        offline: cores that are there and switched off.
        free_mb: free memory of each node that has any; by default all have the same.
        distances: a line for each node; by default 10 to itself, 20 to others.
    """
    memory = dict.fromkeys(nodes, 1000) if free_mb is None else dict(free_mb)
    online = [core for cores in nodes.values() for core in cores]
    together = {core: threads for threads in siblings for core in threads}
    write(
        root,
        {
            f"{CPUS}/present": f"{format_list([*online, *offline])}\n",
            f"{CPUS}/online": f"{format_list(online)}\n",
            f"{CPUS}/smt/active": f"{int(bool(siblings))}\n",
            f"{NODES}/has_memory": f"{format_list(memory)}\n",
            f"{NODES}/possible": "0-63\n",
        },
    )
    for core in online:
        text = f"{format_list(together.get(core, [core]))}\n"
        write(root, {f"{CPUS}/cpu{core}/topology/core_cpus_list": text})
    for core in offline:
        (root / f"{CPUS}/cpu{core}").mkdir(parents=True)
    for at, (node, cores) in enumerate(nodes.items()):
        far = [10 if other == at else 20 for other in range(len(nodes))]
        line = " ".join(map(str, far if distances is None else distances[node]))
        free = memory.get(node, 0) * 1024
        write(
            root,
            {
                f"{NODES}/node{node}/cpulist": f"{format_list(cores)}\n",
                f"{NODES}/node{node}/distance": f"{line}\n",
                f"{NODES}/node{node}/meminfo": f"Node {node} MemTotal: 9 kB\nNode {node} MemFree:   {free} kB\n",
            },
        )
    return root


def two_sockets(root: Path) -> Path:
    """Two nodes of four physical cores with two hardware threads each, numbered as on x86: 16 cores."""
    pairs = [(core, core + 8) for core in range(8)]
    return machine(root, {0: [0, 1, 2, 3, 8, 9, 10, 11], 1: [4, 5, 6, 7, 12, 13, 14, 15]}, siblings=pairs)


def four_nodes(root: Path) -> Path:
    """Nodes 0, 1, 4 and 8; node 8 has memory only, node 1 has no memory; core 5 is offline."""
    return machine(
        root,
        {0: [0, 1], 1: [2, 3], 4: [4, 6, 7], 8: []},
        offline=[5],
        free_mb={0: 500, 4: 2000, 8: 64000},
        distances={0: [10, 21, 31, 40], 1: [21, 10, 31, 40], 4: [31, 12, 10, 40], 8: [40, 40, 40, 10]},
    )
