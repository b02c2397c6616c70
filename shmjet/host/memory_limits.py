"""How much memory may still be had: by the host, and by every control group (version 1 or 2) above this process.

A group is bound by its own limit and by those of all groups above it, and what counts is the use of each whole group.
Cached pages of files count as used there, but the kernel gives them up first, so they are available here. In a
container the path that the kernel names may be the host's while the mount shows only the container's own group; then
the mount is the group.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

_NO_LIMIT_V1 = 1 << 62
"""Version 1 says "no limit" with the largest page-aligned number."""
_ENDLESS = 1 << 62

Root = str | os.PathLike[str]
"""The folder that stands for `/`; tests put a made-up machine there."""


def available_memory(root: Root = "/", *, swap: bool = True) -> int:
    """Return the bytes that can still be had, by the kernel's estimate and the limits of control groups.

    Args:
        root: where `proc` and `sys` are.
        swap: count swap space that is free, which keeps a process alive but not fast.
    """
    base = os.fspath(root).rstrip("/")
    host = _pairs(f"{base}/proc/meminfo")
    free_swap = host.get("SwapFree:", 0) * 1024
    available = host["MemAvailable:"] * 1024 if "MemAvailable:" in host else _ENDLESS
    found = available + free_swap if swap else available
    version, groups = memory_groups(root)
    for group in groups:
        room, swap_room = _room_v1(group, free_swap) if version == 1 else _room_v2(group, free_swap)
        found = min(found, room + swap_room if swap else room)
    return max(0, found)


def process_memory() -> int:
    """Return the bytes that this process may still take: `available_memory` without swap, and its own limits."""
    pages = _text("/proc/self/statm").split()
    used = [int(pages[at]) * resource.getpagesize() for at in (0, 5)] if len(pages) > 5 else [0, 0]
    found = available_memory(swap=False)
    for limit, taken in zip((resource.RLIMIT_AS, resource.RLIMIT_DATA), used, strict=True):
        most = resource.getrlimit(limit)[0]
        if most != resource.RLIM_INFINITY:
            found = min(found, max(0, most - taken))
    return found


def memory_groups(root: Root = "/") -> tuple[int, list[str]]:
    """Return the version of the control groups that limit memory, and the folders of this process' group and of those
    above it, from itself upwards; 0 and none where there are no groups."""
    base = os.fspath(root).rstrip("/")
    paths = group_paths(base)
    mount = f"{base}/sys/fs/cgroup"
    if os.path.exists(f"{mount}/cgroup.controllers"):
        return 2, upwards(mount, paths.get("", "/"))
    if "memory" in paths:
        return 1, upwards(f"{mount}/memory", paths["memory"])
    return 0, []


def group_paths(base: str) -> dict[str, str]:
    """Return the path of this process' group by controller; that of version 2 by the empty text."""
    paths: dict[str, str] = {}
    for line in _text(f"{base}/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    return paths


def upwards(mount: str, group: str) -> list[str]:
    """The folders of a group and of all above it, from itself to the mount; only the mount where it has none there."""
    folder = os.path.normpath(f"{mount}/{group}")
    folders = [mount]
    if os.path.isdir(folder) and folder.startswith(mount):
        while folder != mount:
            folders.insert(-1, folder)
            folder = os.path.dirname(folder)
    return folders


def _room_v2(group: str, free_swap: int) -> tuple[int, int]:
    """Return the bytes of memory and of swap that a group leaves."""
    limits = [limit for name in ("max", "high") if (limit := _number(f"{group}/memory.{name}")) is not None]
    used = _number(f"{group}/memory.current") if limits else None
    if used is None:
        return _ENDLESS, free_swap
    room = max(0, min(limits) - used + _cached(group, "inactive_file", "active_file"))
    most = _number(f"{group}/memory.swap.max") if free_swap else 0
    taken = _number(f"{group}/memory.swap.current") or 0
    return room, free_swap if most is None else min(free_swap, max(0, most - taken))


def _room_v1(group: str, free_swap: int) -> tuple[int, int]:
    limit = _number(f"{group}/memory.limit_in_bytes")
    both = _number(f"{group}/memory.memsw.limit_in_bytes")  # on memory and swap together
    if limit is None or min(limit, limit if both is None else both) >= _NO_LIMIT_V1:
        return _ENDLESS, free_swap
    cached = _cached(group, "total_inactive_file", "total_active_file")
    room = max(0, limit - (_number(f"{group}/memory.usage_in_bytes") or 0) + cached)
    if both is None:
        return room, free_swap
    together = max(0, both - (_number(f"{group}/memory.memsw.usage_in_bytes") or 0) + cached)
    return min(room, together), min(free_swap, max(0, together - room))


def _cached(group: str, *names: str) -> int:
    """Return the bytes of files that the kernel would give up."""
    known = _pairs(f"{group}/memory.stat")
    return sum(known.get(name, 0) for name in names)


def _pairs(path: str) -> dict[str, int]:
    words = (line.split() for line in _text(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in words if len(pair) > 1 and pair[1].isdecimal()}


def _number(path: str) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None


def _text(path: str) -> str:
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return ""
