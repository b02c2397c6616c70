"""The choice of cores for a pool's workers: the cores an instance would take, away from the cores of other pools."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

from shmjet.host.placement import place
from shmjet.host.topology import Topology, read_topology

_lock = threading.Lock()
_taken: Counter[int] = Counter()


def choose_cores(wanted: int | None, cores: Sequence[int] | None) -> tuple[tuple[int | None, ...], bool]:
    """Return the core of each worker, None for a worker that is not pinned, and whether an idle worker may spin.

    Args:
        wanted: number of workers; None: as many as there are cores.
        cores: the cores to use in turn; None: any.

    Raises:
        ConfigError: this process may not use one of `cores`.
    """
    topology = read_topology()
    if cores is not None:
        placement = place(list(cores), topology)
        count = len(cores) if wanted is None else wanted
        spin = placement.spin and count <= len(cores) and _leaves_room(count, topology)
        return tuple(cores[i % len(cores)] for i in range(count)), spin
    placement = place(wanted, topology)
    spin = placement.spin and _leaves_room(len(placement.cores), topology)
    if None in placement.cores:
        return placement.cores, spin
    everything = [core for core in place(None, topology).cores if core is not None]
    if len(placement.cores) >= len(everything):
        return placement.cores, spin
    with _lock:
        free = sorted(everything, key=lambda core: (_taken[core], everything.index(core)))
        chosen = tuple(free[: len(placement.cores)])
        _taken.update(chosen)
    return chosen, spin


def _leaves_room(workers: int, topology: Topology) -> bool:
    """Whether spinning workers leave cores to the client's own thread and to the thread that collects results."""
    return workers + 2 <= len(topology.allowed)


def give_back(cores: Sequence[int | None]) -> None:
    """Count these cores as free again."""
    with _lock:
        for core in cores:
            if core is not None and _taken[core] > 0:
                _taken[core] -= 1
