"""What a run costs other than time: processor time and wake-ups of all processes that take part.

On a machine with fewer cores than busy processes, or with others on it, these say more than seconds do. Both sides of
a bench are counted by the kernel: processes that stay (ours) by `/proc`, children that are gone (a peer's) by
`getrusage`.
"""

from __future__ import annotations

import dataclasses
import resource
import statistics
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Cost:
    """Nanoseconds on a core, and how often a process has gone to sleep and been woken."""

    cpu_ns: float
    wakes: float

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.cpu_ns - other.cpu_ns, self.wakes - other.wakes)

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.cpu_ns + other.cpu_ns, self.wakes + other.wakes)


def of_process(pid: int) -> Cost:
    """What all threads of a process have cost so far."""
    cpu, wakes = 0, 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        cpu += int((task / "schedstat").read_text().split()[0])
        wakes += int((task / "status").read_text().partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return Cost(cpu, wakes)


def of_children() -> Cost:
    """What the children of this process that have ended, and been waited for, have cost."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost((used.ru_utime + used.ru_stime) * 1e9, used.ru_nvcsw)


class Account:
    """The costs of the contenders of one bench.

    Args:
        unit: what they are divided by, "item" or "MiB".
    """

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._costs: dict[str, list[dict[str, Cost]]] = {}

    def children(self, name: str, count: float, run: Callable[[], float]) -> float:
        """Run a contender whose processes are children that end with it; returns its figure."""
        before = of_children()
        figure = run()
        self._note(name, {"all": of_children() - before}, count)
        return figure

    def processes(self, name: str, pids: Mapping[str, int], count: float, run: Callable[[], float]) -> float:
        """Run a contender whose processes, by role, live longer; returns its figure."""
        before = {role: of_process(pid) for role, pid in pids.items()}
        figure = run()
        self._note(name, {role: of_process(pid) - before[role] for role, pid in pids.items()}, count)
        return figure

    def _note(self, name: str, costs: dict[str, Cost], count: float) -> None:
        per_unit = {role: Cost(cost.cpu_ns / count, cost.wakes / count) for role, cost in costs.items()}
        self._costs.setdefault(name, []).append(per_unit)

    def facts(self) -> dict[str, str]:
        """Medians of all runs but the first, which is the warm-up, for people to read."""
        found = {}
        for name, runs in self._costs.items():
            counted = runs[1:] or runs
            roles = {role: _median(run[role] for run in counted) for role in counted[0]}
            total = _median(_sum(run.values()) for run in counted)
            parts = ", ".join(f"{role} {cost.cpu_ns:.3g}" for role, cost in roles.items()) if len(roles) > 1 else ""
            found[f"cost of {name}"] = (
                f"{total.cpu_ns:.4g} ns of cores and {total.wakes:.3g} wake-ups per {self._unit}"
                + (f" ({parts})" if parts else "")
            )
        return found


def _sum(costs: Iterable[Cost]) -> Cost:
    total = Cost(0, 0)
    for cost in costs:
        total += cost
    return total


def _median(costs: Iterable[Cost]) -> Cost:
    all_costs = list(costs)
    return Cost(statistics.median(c.cpu_ns for c in all_costs), statistics.median(c.wakes for c in all_costs))
