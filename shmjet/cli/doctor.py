"""`shmjet doctor`: judges what this machine offers, and says how to mend what is not fine.

Each check is a function from facts to a finding, so that a test can put any machine before it. The facts come from
`shmjet.cli.host`.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum

import psutil

from shmjet.cli import host
from shmjet.cli.outcome import Outcome

SMALL_SHM = 1 << 30
"""Bytes of /dev/shm below which a job with many rings, or a large map, may not find room."""

TINY_SHM = 32 << 20
"""Bytes below which shmjet does not use /dev/shm at all."""

FEW_FILES = 1024
FEW_PROCESSES = 1024
JAVA_NEEDED = 17

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class State(StrEnum):
    """How good a finding is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """One fact about the machine, and what to do about it when it is not fine."""

    name: str
    state: State
    text: str
    remedy: str = ""


def check_platform(system: str, machine: str, version: tuple[int, ...]) -> Finding:
    """Linux on x86-64 or ARM64 with Python 3.11 or later."""
    text = f"{system} {machine}, Python {'.'.join(map(str, version[:3]))}"
    if system != "Linux":
        return Finding("platform", State.ERROR, text, "shmjet needs Linux: use a container or a virtual machine")
    if version < (3, 11):
        return Finding("platform", State.ERROR, text, "install Python 3.11 or later")
    if machine not in ("x86_64", "aarch64"):
        return Finding("platform", State.WARNING, text, "tested on x86_64 and aarch64 only; run `make test`")
    return Finding("platform", State.OK, text)


def check_extension() -> Finding:
    """The C extension can be loaded."""
    try:
        from shmjet import _native
    except ImportError as error:
        return Finding("extension", State.ERROR, f"cannot be loaded: {error}", "build it: `make setup`")
    return Finding("extension", State.OK, f"loaded, {len(_native.__all__)} names")


def check_cores(logical: int, usable: int) -> Finding:
    """How many cores the process may run on."""
    text = f"{usable} of {logical} usable"
    if usable < logical:
        text += " (the others are outside this process's CPU affinity)"
    if usable == 1:
        return Finding("cores", State.WARNING, text, "with one core nothing runs in parallel")
    return Finding("cores", State.OK, text)


def check_quota(quota: host.Quota, usable: int) -> Finding:
    """The control group allows as much CPU time as there are cores."""
    if quota.version is None:
        return Finding("cpu quota", State.OK, "no control groups")
    if quota.cpus is None:
        return Finding("cpu quota", State.OK, f"none (control groups version {quota.version})")
    text = f"{quota.cpus:g} CPUs for {usable} usable cores (control groups version {quota.version})"
    if quota.cpus >= usable:
        return Finding("cpu quota", State.OK, text)
    workers = max(1, int(quota.cpus))
    remedy = f"raise the quota (docker: --cpus) or use JetConfig(cores={workers}), SHMJET_CORES={workers}"
    return Finding("cpu quota", State.WARNING, text, remedy)


def check_memory(total: int, available: int, quota: host.Quota) -> Finding:
    """There is memory to work with."""
    limit = "" if quota.memory is None or quota.memory >= total else f", limited to {_size(quota.memory)} by the group"
    text = f"{_size(available)} of {_size(total)} available{limit}"
    if min(available, quota.memory or available) < 512 << 20:
        return Finding("memory", State.WARNING, text, "free some, or raise the limit (docker: --memory)")
    return Finding("memory", State.OK, text)


def check_numa(nodes: Mapping[int, set[int]], usable: set[int]) -> Finding:
    """The usable cores are on one NUMA node."""
    used = {node: cores & usable for node, cores in nodes.items() if cores & usable}
    if len(used) <= 1:
        return Finding("numa", State.OK, "one node" if nodes else "not reported by the kernel; taken for one node")
    node, cores = max(used.items(), key=lambda pair: len(pair[1]))
    text = f"the usable cores are on {len(used)} nodes: memory of another node is slower"
    remedy = f"for data that fits one node: numactl --cpunodebind={node} --membind={node}, {len(cores)} cores"
    return Finding("numa", State.WARNING, text, remedy)


def check_shm(space: tuple[int, int] | None) -> Finding:
    """/dev/shm is there and large enough for rings and maps."""
    remedy = (
        "enlarge it: mount -o remount,size=50% /dev/shm (docker: --shm-size=8g, kubernetes: emptyDir of medium Memory)"
    )
    if space is None:
        return Finding("/dev/shm", State.WARNING, "missing or not writable; anonymous memory is used instead", remedy)
    size, free = space
    text = f"{_size(free)} of {_size(size)} free"
    if free < TINY_SHM:
        return Finding("/dev/shm", State.WARNING, text + ": too little; maps go to the temporary folder", remedy)
    if free < SMALL_SHM:
        return Finding("/dev/shm", State.WARNING, text + ": large maps will not fit", remedy)
    return Finding("/dev/shm", State.OK, text)


def check_files(soft: int, hard: int, cores: int) -> Finding:
    """A process may open as many files as workers, rings and carriers need."""
    text = f"{_limit(soft)} open files (hard limit {_limit(hard)})"
    if _at_least(soft, max(FEW_FILES, 8 * cores)):
        return Finding("RLIMIT_NOFILE", State.OK, text)
    state = State.WARNING if _at_least(soft, 256) else State.ERROR
    wanted = max(FEW_FILES, 8 * cores)
    return Finding("RLIMIT_NOFILE", state, text, f"ulimit -n {wanted} (docker: --ulimit nofile={wanted})")


def check_processes(soft: int, hard: int, cores: int) -> Finding:
    """The user may have as many processes as there are workers and carriers."""
    text = f"{_limit(soft)} processes (hard limit {_limit(hard)})"
    if _at_least(soft, max(FEW_PROCESSES, 4 * cores)):
        return Finding("RLIMIT_NPROC", State.OK, text)
    state = State.WARNING if _at_least(soft, 4 * cores) else State.ERROR
    return Finding("RLIMIT_NPROC", state, text, f"ulimit -u {max(FEW_PROCESSES, 4 * cores)} (docker: --pids-limit)")


def check_locked_memory(soft: int) -> Finding:
    """How much memory may be locked; shmjet locks none."""
    return Finding("RLIMIT_MEMLOCK", State.OK, f"{_size(soft) if soft >= 0 else 'unlimited'} (none is needed)")


def check_java(found: tuple[str, int] | None) -> Finding:
    """Java for the Spark extra."""
    remedy = f"only for the extra `spark`: install Java {JAVA_NEEDED} or later (apt-get install default-jre-headless)"
    if found is None:
        return Finding("java", State.WARNING, "not found", remedy)
    version, major = found
    if major < JAVA_NEEDED:
        return Finding("java", State.WARNING, f"{version}: too old for Spark 4", remedy)
    return Finding("java", State.OK, version)


def check_spark(version: str | None) -> Finding:
    """PySpark for the Spark extra."""
    if version is None:
        remedy = "only for the extra `spark`: pip install 'shmjet[spark]'"
        return Finding("spark", State.WARNING, "pyspark is not installed", remedy)
    return Finding("spark", State.OK, f"pyspark {version}")


def check_threads(environment: Mapping[str, str]) -> Finding:
    """Threads of numpy's libraries: one in each worker, whatever the environment says."""
    found = [f"{name}={environment[name]}" for name in THREAD_VARIABLES if environment.get(name)]
    here = f"; {', '.join(found)} is for this process only" if found else ""
    return Finding("BLAS threads", State.OK, f"1 in each worker{here}")


def findings() -> Iterator[Finding]:
    """Look at this machine, from the most basic to the optional."""
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    quota = host.control_group()
    memory = psutil.virtual_memory()
    yield check_platform(platform.system(), platform.machine(), tuple(sys.version_info[:3]))
    yield check_extension()
    yield check_cores(os.cpu_count() or 1, len(usable))
    yield check_quota(quota, len(usable))
    yield check_memory(memory.total, memory.available, quota)
    yield check_numa(host.numa_nodes(), usable)
    yield check_shm(host.shared_memory())
    yield check_files(*resource.getrlimit(resource.RLIMIT_NOFILE), len(usable))
    yield check_processes(*resource.getrlimit(resource.RLIMIT_NPROC), len(usable))
    yield check_locked_memory(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0])
    yield check_threads(os.environ)
    yield check_java(host.java_version())
    yield check_spark(host.installed_version("pyspark"))


def examine(*, as_json: bool = False) -> int:
    """Print all findings; return 1 when one is an error, else 0."""
    found = list(findings())
    if as_json:
        print(json.dumps([asdict(finding) for finding in found], indent=2))
    else:
        _print(found)
    return Outcome.FAILED if any(finding.state is State.ERROR for finding in found) else Outcome.OK


def _print(found: list[Finding]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    colours = {State.OK: "green", State.WARNING: "yellow", State.ERROR: "bold red"}
    for finding in found:
        line = Text(f"{finding.state:<8}", style=colours[finding.state])
        line.append(f"{finding.name:<16}", style="bold").append(finding.text, style="default")
        console.print(line)
        if finding.remedy:
            console.print(f"{'':<24}{finding.remedy}", markup=False, style="dim")


def _size(count: int) -> str:
    for factor, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= factor:
            return f"{count / factor:.4g} {unit}"
    return f"{count} bytes"


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else f"{value:,}"


def _at_least(value: int, wanted: int) -> bool:
    return value == resource.RLIM_INFINITY or value >= wanted
