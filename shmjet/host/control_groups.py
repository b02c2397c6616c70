"""What the control groups (version 1 or 2) allow this process: CPU time, memory, cores, memory of which NUMA nodes.

A group is bound by its own limits and by those of all groups above it. In a container the path that the kernel names
may be the host's while the mount shows only the container's own group; then the mount is the group.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from shmjet.host.kernel_files import Root, parse_list, read_number, read_text
from shmjet.host.memory_limits import group_paths, upwards

Number = TypeVar("Number", int, float)

_NO_LIMIT_V1 = 1 << 62
"""Version 1 says "no limit" with the largest page-aligned number."""


class Limits(msgspec.Struct, frozen=True):
    """A control group's limits, each None where there is none.

    `version` of the control groups, `cpus` as a number (may be a fraction), `memory` in bytes, `cores` and `nodes` that
    the cpuset leaves: the latter have memory to give. `processes`: how many there may be, threads included.
    """

    version: int | None = None
    cpus: float | None = None
    memory: int | None = None
    cores: frozenset[int] | None = None
    nodes: frozenset[int] | None = None
    processes: int | None = None


def control_group(root: Root = "/") -> Limits:
    """Return the tightest limits of this process's control group and the groups above it."""
    base = os.fspath(root).rstrip("/")
    groups = group_paths(base)
    mount = f"{base}/sys/fs/cgroup"
    if os.path.exists(f"{mount}/cgroup.controllers"):
        folders = upwards(mount, groups.get("", "/"))
        return Limits(
            2,
            _least(map(_cpus_v2, folders)),
            _least(read_number(f"{folder}/memory.max") for folder in folders),
            _nearest(folders, "cpuset.cpus.effective"),
            _nearest(folders, "cpuset.mems.effective"),
            _least(read_number(f"{folder}/pids.max") for folder in folders),
        )
    if not groups:
        return Limits()
    cpu_mount = next((f"{mount}/{name}" for name in ("cpu,cpuacct", "cpu") if os.path.isdir(f"{mount}/{name}")), mount)
    cpuset = upwards(f"{mount}/cpuset", groups.get("cpuset", "/"))
    limits = (read_number(f"{f}/memory.limit_in_bytes") for f in upwards(f"{mount}/memory", groups.get("memory", "/")))
    memory = _least(limits)
    return Limits(
        1,
        _least(map(_cpus_v1, upwards(cpu_mount, groups.get("cpu", "/")))),
        None if memory is not None and memory >= _NO_LIMIT_V1 else memory,
        _nearest(cpuset, "cpuset.effective_cpus", "cpuset.cpus"),
        _nearest(cpuset, "cpuset.effective_mems", "cpuset.mems"),
        _least(read_number(f"{f}/pids.max") for f in upwards(f"{mount}/pids", groups.get("pids", "/"))),
    )


def _cpus_v2(folder: str) -> float | None:
    words = read_text(f"{folder}/cpu.max").split()
    return int(words[0]) / int(words[1]) if len(words) == 2 and words[0] != "max" else None


def _cpus_v1(folder: str) -> float | None:
    quota, period = read_number(f"{folder}/cpu.cfs_quota_us"), read_number(f"{folder}/cpu.cfs_period_us")
    return quota / period if quota is not None and quota > 0 and period else None


def _nearest(folders: Iterable[str], *names: str) -> frozenset[int] | None:
    """The kernel list of the nearest group that has one; what is effective there counts the groups above in."""
    for folder in folders:
        for name in names:
            if numbers := parse_list(read_text(f"{folder}/{name}")):
                return frozenset(numbers)
    return None


def _least(values: Iterable[Number | None]) -> Number | None:
    return min((value for value in values if value is not None), default=None)
