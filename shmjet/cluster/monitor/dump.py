"""Diagnostic dump of a running member, collected from outside and without its help.

Settings, jobs with their plans, what every processor, ring and worker is doing, and the Python stacks of all its
processes. Nothing of users' data is in it, and no secret: names of vertices and files of code are.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil

from shmjet._native import RING_HEADER, ring_items
from shmjet.cluster.monitor.local import AttachedMember
from shmjet.cluster.protocol import ExecutionRow
from shmjet.core import ShmjetError
from shmjet.execution import control
from shmjet.host.stacks import stacks_of

_PACKAGES = ("shmjet", "numpy", "msgspec", "cloudpickle", "lmdb", "mmh3", "psutil", "pyspark")
_TAIL, _HEAD = 128, 384
"""Where a ring's control block counts bytes that were written and taken (`docs/formats/ring.md`)."""
_HIDDEN = ("secret", "password", "token", "tls", "key")
_ENVIRONMENT = ("SHMJET_", "OMP_", "OPENBLAS_", "MKL_", "PYTHON")


def versions() -> dict[str, str]:
    """Return the versions of what matters here."""
    found = {
        "python": sys.version.split("\n", 1)[0],
        "platform": platform.platform(),
        "libc": "-".join(platform.libc_ver()),
    }
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def inspect(member: AttachedMember) -> dict[str, Any]:
    """Return everything about one member, as plain dicts and lists.

    Raises:
        MemberLostError: it is gone.
    """
    about = member.about
    workers = [_worker(member, index) for index in range(len(member.cores))]
    processes = [("member", about.pid)]
    processes += [(f"worker {worker['index']}", worker["pid"]) for worker in workers if worker["pid"]]
    known = {pid for _, pid in processes}
    processes += [(name, pid) for name, pid in _carriers(about.pid) if pid not in known]
    return {
        "pid": about.pid,
        "address": about.address,
        "uuid": about.uuid,
        "version": about.version,
        "client_pid": about.client_pid or None,
        "up_s": round(time.time() - about.started_at, 1),
        "folder": str(member.folder),
        "settings": without_secrets(about.settings),
        "environment": _environment(about.pid),
        "workers": workers,
        "executions": [_execution(member, row) for row in member.executions()],
        "processes": [_process(name, pid, member.folder) for name, pid in processes],
    }


def main(folder: str) -> None:
    """Print what `inspect` finds about the member in a folder, and the versions there, as one JSON object."""
    with AttachedMember(Path(folder)) as member:
        print(json.dumps({**inspect(member), "versions": versions()}, default=str))


def without_secrets(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings with what must not leave the house crossed out.

    Example:
        >>> without_secrets({"cores": 2, "secret": "abc"})
        {'cores': 2, 'secret': '***'}
    """
    return {
        name: "***" if value not in (None, "", ()) and any(part in name.lower() for part in _HIDDEN) else value
        for name, value in settings.items()
    }


def _environment(pid: int) -> dict[str, str]:
    """Return the environment variables of a process that the engine looks at."""
    try:
        pairs = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return {}
    found = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    return without_secrets({name: value for name, value in sorted(found.items()) if name.startswith(_ENVIRONMENT)})


def _worker(member: AttachedMember, index: int) -> dict[str, Any]:
    words = control.control_words(member.control, index * control.BLOCK_SIZE)
    try:
        heartbeat = words[control.HEARTBEAT_NS]
        return {
            "index": index,
            "pid": words[control.PID] or None,
            "core": member.cores[index],
            "heartbeat_age_s": round((time.perf_counter_ns() - heartbeat) / 1e9, 3) if heartbeat else None,
            "busy_s": round(words[control.BUSY_NS] / 1e9, 3),
            "idle_s": round(words[control.IDLE_NS] / 1e9, 3),
            "tasklets": words[control.TASKLETS],
            "rounds": words[control.ROUNDS],
            "sleeps": words[control.SLEEPS],
            "runs_code_of_execution": words[control.CURRENT_EXECUTION],
            "asked_to_leave_execution": words[control.INTERRUPT],
            "thief": words[control.THIEF] - 1,
            "stolen": words[control.STOLEN],
        }
    finally:
        words.release()


def _execution(member: AttachedMember, row: ExecutionRow) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": row.id,
        "job_id": row.job_id,
        "job_name": row.job_name,
        "status": row.status,
        "cancelled": row.cancelled,
        "seconds": round((row.completed_at or time.time()) - row.started_at, 3),
        "error": row.error,
    }
    try:
        metrics = member.metrics(row).to_dict()
    except ShmjetError as error:
        return {**found, "metrics": str(error)}
    found |= {"vertices": metrics["vertices"], "edges": metrics["edges"]}
    if row.plan is not None:
        found["plan"] = msgspec.to_builtins(_named(row))
        found["rings"] = _rings(member, row)
    return found


def _named(row: ExecutionRow) -> dict[str, Any]:
    """Return a plan with the names of its fields, which do not travel."""
    assert row.plan is not None
    plan = msgspec.structs.asdict(row.plan)
    return {**plan, **{part: [msgspec.structs.asdict(item) for item in plan[part]] for part in ("vertices", "edges")}}


def _rings(member: AttachedMember, row: ExecutionRow) -> list[dict[str, Any]] | str:
    """Return what is in each ring: items, and bytes of its capacity."""
    assert row.plan is not None
    found = []
    with member.arena(row) as arena:
        if arena is None:
            return "the execution has ended meanwhile"
        memory, layout = arena
        for (e, producer, consumer), offset in layout.rings.items():
            header = memory[offset : offset + RING_HEADER]
            items = ring_items(header)
            edge = row.plan.edges[e]
            written, taken = (int.from_bytes(header[at : at + 8], sys.byteorder) for at in (_TAIL, _HEAD))
            header.release()
            source, destination = row.plan.vertices[edge.source].name, row.plan.vertices[edge.destination].name
            found.append(
                {
                    "lane": f"{source}#{producer} -> {destination}#{consumer}",
                    "edge": e,
                    "items": items,
                    "queue_size": edge.queue_size,
                    "bytes": written - taken,
                    "capacity": layout.rings.capacity((e, producer, consumer)),
                    "bytes_ever": written,
                }
            )
        return found if member.is_current else "the execution has ended meanwhile"


def _carriers(member: int) -> list[tuple[str, int]]:
    """Return name and pid of the other processes of a member: its fork server, and carriers."""
    try:
        children = psutil.Process(member).children(recursive=True)
        return [(child.name(), child.pid) for child in children if child.name().startswith("shmjet")]
    except psutil.Error:
        return []


def _process(name: str, pid: int, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "pid": pid}
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            found |= {
                "status": process.status(),
                "cpu_s": round(sum(process.cpu_times()[:2]), 2),
                "rss": process.memory_info().rss,
                "threads": process.num_threads(),
                "descriptors": process.num_fds(),
                "affinity": sorted(os.sched_getaffinity(pid)),
            }
    except (psutil.Error, OSError) as error:
        return {**found, "status": f"cannot be looked at: {error}"}
    found["stacks_by"], found["stacks"] = stacks_of(pid, folder)
    return found
