"""What this machine offers: cores, quotas, memory, limits, Java, Spark. Only reads; judges nothing.

Every function takes the root of the file system that it reads (`/` but in tests) or is otherwise free of hidden state.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TypeVar

Number = TypeVar("Number", int, float)

ROOT = Path("/")


@dataclass(frozen=True)
class Quota:
    """A control group's limits: CPUs (may be a fraction) and bytes of memory; None where there is no limit."""

    version: int | None
    cpus: float | None
    memory: int | None


def control_group(root: Path = ROOT) -> Quota:
    """Return the tightest limits of this process's control group and the groups above it (version 1 or 2)."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return Quota(None, None, None)
    groups = dict[str, str]()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        groups.update(dict.fromkeys(controllers.split(","), path))
    mount = root / "sys/fs/cgroup"
    if (mount / "cgroup.controllers").exists():
        folders = _upwards(mount, groups.get("", "/"))
        return Quota(2, _least(map(_cpus_v2, folders)), _least(_number(folder / "memory.max") for folder in folders))
    cpu_folders = _upwards(_first(mount, "cpu,cpuacct", "cpu"), groups.get("cpu", "/"))
    memory_folders = _upwards(mount / "memory", groups.get("memory", "/"))
    cpus = _least(map(_cpus_v1, cpu_folders))
    memory = _least(_number(folder / "memory.limit_in_bytes") for folder in memory_folders)
    # Version 1 says "no limit" with the largest page-aligned number.
    return Quota(1 if groups else None, cpus, None if memory is not None and memory >= 1 << 62 else memory)


def numa_nodes(root: Path = ROOT) -> dict[int, set[int]]:
    """Return the cores of each NUMA node that has cores."""
    nodes = {}
    for folder in sorted((root / "sys/devices/system/node").glob("node[0-9]*")):
        try:
            cores = parse_cores((folder / "cpulist").read_text())
        except OSError:
            continue
        if cores:
            nodes[int(folder.name[4:])] = cores
    return nodes


def parse_cores(text: str) -> set[int]:
    """Return the numbers of a kernel list.

    Example:
        >>> parse_cores("0-2,5\\n")
        {0, 1, 2, 5}
    """
    cores: set[int] = set()
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            cores.update(range(int(first), int(last or first) + 1))
    return cores


def shared_memory(root: Path = ROOT) -> tuple[int, int] | None:
    """Return (size, free) of /dev/shm in bytes, None when there is none or it cannot be written."""
    folder = root / "dev/shm"
    if not os.access(folder, os.W_OK | os.X_OK):
        return None
    status = os.statvfs(folder)
    return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize


def java_version() -> tuple[str, int] | None:
    """Return what `java -version` says and its major number, None when there is no java that works."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else None
    java = java or shutil.which("java")
    if java is None:
        return None
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=10, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "((?:1\.)?(\d+)[^"]*)"', answer.stderr + answer.stdout)
    return (found[1], int(found[2])) if found else None


def installed_version(distribution: str) -> str | None:
    """Return the version of an installed distribution, None when it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _upwards(mount: Path, group: str) -> list[Path]:
    """The folders of a group and of all above it; in a container, where the path is the host's, only the mount."""
    folder = mount / group.lstrip("/")
    folders = [folder, *folder.parents] if folder.is_dir() else [mount]
    return [found for found in folders if found == mount or mount in found.parents]


def _first(mount: Path, *names: str) -> Path:
    return next((mount / name for name in names if (mount / name).is_dir()), mount / names[-1])


def _cpus_v2(folder: Path) -> float | None:
    words = _text(folder / "cpu.max").split()
    return int(words[0]) / int(words[1]) if len(words) == 2 and words[0] != "max" else None


def _cpus_v1(folder: Path) -> float | None:
    quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return quota / period if quota is not None and quota > 0 and period else None


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.lstrip("-").isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _least(values: Iterable[Number | None]) -> Number | None:
    return min((value for value in values if value is not None), default=None)
