"""The checks of `shmjet doctor`: each is a pure function from facts of a machine to a finding.

So a test can check any machine. Every finding that is not fine says how to fix it.
"""

from __future__ import annotations

import resource
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from shmjet.core import ConfigError
from shmjet.host.control_groups import Limits
from shmjet.host.kernel_files import format_list
from shmjet.host.placement import Placement
from shmjet.host.topology import Topology

SMALL_SHM = 1 << 30
"""Bytes of /dev/shm below which a job with many rings, or a large map, may not find room."""

TINY_SHM = 32 << 20
"""Bytes below which shmjet does not use /dev/shm at all."""

FAST_CLOCKS = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter")
"""Clocks of the kernel that the C library reads by itself."""

FEW_FILES = 1024
FEW_PROCESSES = 1024
JAVA_NEEDED = 17

BLAS_VARIABLE = "SHMJET_BLAS_THREADS"
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


def check_cores(allowed: Set[int], present: Set[int], online: Set[int]) -> Finding:
    """How many cores there are and how many of them the process may run on."""
    text = f"{len(allowed)} usable: {format_list(allowed)}"
    if closed := online - allowed:
        text += f"; outside this process's CPU affinity or cpuset: {format_list(closed)}"
    if offline := present - online:
        text += f"; offline: {format_list(offline)}"
    if len(allowed) == 1:
        return Finding("cores", State.WARNING, text, "with one core nothing runs in parallel: give the process more")
    return Finding("cores", State.OK, text)


def check_smt(topology: Topology) -> Finding:
    """Hardware threads that share a physical core."""
    if not topology.has_smt:
        return Finding("smt", State.OK, "every usable core is a physical core of its own")
    physical = sum(1 for core in topology.allowed if topology.rank(core) == 0)
    return Finding(
        "smt",
        State.OK,
        f"{len(topology.allowed)} hardware threads on {physical} physical cores; each of these gets a worker before "
        "any gets a second",
    )


def check_cpuset(topology: Topology) -> Finding:
    """The control group leaves memory on the nodes whose cores it leaves."""
    limits = topology.limits
    parts = [f"cores {format_list(limits.cores)}"] if limits.cores is not None else []
    parts += [f"memory of NUMA node {format_list(limits.nodes)}"] if limits.nodes is not None else []
    text = f"{', '.join(parts)} (control groups version {limits.version})" if parts else "none"
    mine = topology.usable().keys() & topology.memory.keys()
    if limits.nodes is not None and mine and not mine & limits.nodes:
        remedy = f"allow memory of the cores' own nodes (docker: --cpuset-mems={format_list(mine)})"
        return Finding("cpuset", State.WARNING, text + ": all memory is on another node than the cores", remedy)
    return Finding("cpuset", State.OK, text)


def check_quota(topology: Topology) -> Finding:
    """The control group allows as much CPU time as there are cores."""
    limits, usable = topology.limits, len(topology.allowed)
    if limits.version is None:
        return Finding("cpu quota", State.OK, "no control groups")
    if limits.cpus is None:
        return Finding("cpu quota", State.OK, f"none (control groups version {limits.version})")
    text = f"{limits.cpus:g} CPUs for {usable} usable cores (control groups version {limits.version})"
    if limits.cpus >= usable:
        return Finding("cpu quota", State.OK, text)
    remedy = "raise the quota (docker: --cpus); until then a member starts fewer workers and does not pin them"
    return Finding("cpu quota", State.WARNING, text, remedy)


def check_numa(topology: Topology, placement: Placement | ConfigError) -> Finding:
    """The nodes, their cores and memory, and which of them the member uses."""
    usable = topology.usable()
    nodes = "; ".join(_node(topology, node) for node in sorted(topology.nodes))
    if len(usable) == 1:
        return Finding("numa", State.OK, nodes if len(topology.nodes) > 1 else f"one node, {nodes.partition(': ')[2]}")
    if isinstance(placement, ConfigError):
        return Finding("numa", State.WARNING, nodes, "fix the workers' cores, see below")
    text = f"{nodes}. A member uses node {format_list(placement.nodes)}"
    if len(placement.nodes) < len(usable):
        cores = len(topology.allowed)
        remedy = (
            f"for all cores: JetConfig(cores={cores}) or SHMJET_CORES={cores}, with slower rings between nodes; or a "
            "member for each node (JetConfig(cores=[...]))"
        )
        return Finding("numa", State.WARNING, text, remedy)
    remedy = "rings between nodes are slower: for data that one node can deal with leave JetConfig(cores=None)"
    return Finding("numa", State.WARNING, text, remedy)


def _node(topology: Topology, node: int) -> str:
    cores = topology.nodes[node]
    text = f"node {node}: " + (f"cores {format_list(cores)}" if cores else "no cores")
    if not topology.memory:  # not looked at where there is one node
        return text
    return text + (f", {_size(topology.memory[node])} free" if node in topology.memory else ", no memory")


def check_workers(placement: Placement | ConfigError, usable: int = 0) -> Finding:
    """Which core each worker of a member gets that is started without arguments (`SHMJET_CORES` counts).

    Args:
        placement: of the workers.
        usable: cores that this process may use; 0: not known.
    """
    if isinstance(placement, ConfigError):
        return Finding("workers", State.ERROR, str(placement), "name cores that this process may use, see above")
    count, allowed = len(placement.cores), placement.allowed
    pinned = [core for core in placement.cores if core is not None]
    if not pinned:
        return Finding("workers", State.OK, f"{count}, not pinned, on cores {format_list(allowed)}")
    text = f"{count}: {_pinned(pinned)}"
    if count > len(allowed):
        remedy = f"SHMJET_CORES={len(allowed)} at most: workers that share a core take time from each other"
        return Finding("workers", State.WARNING, text + "; several share a core", remedy)
    if count == usable > 1:
        text += f"; SHMJET_CORES={count - 1} leaves one free, for streams whose latency counts"
    return Finding("workers", State.OK, text)


def _pinned(cores: Sequence[int]) -> str:
    """Name the core of each worker, whole runs at once.

    Example:
        >>> _pinned([0, 1, 2, 8])
        'worker 0-2 on core 0-2, worker 3 on core 8'
    """
    parts = []
    for _, run in groupby(enumerate(cores), key=lambda pair: pair[1] - pair[0]):
        workers, places = zip(*run, strict=True)
        parts.append(f"worker {format_list(workers)} on core {format_list(places)}")
    return ", ".join(parts)


def check_memory(total: int, available: int, limits: Limits) -> Finding:
    """There is memory to work with."""
    capped = limits.memory is not None and limits.memory < total
    limit = f", limited to {_size(limits.memory or 0)} by the control group" if capped else ""
    text = f"{_size(available)} of {_size(total)} available{limit}"
    if min(available, limits.memory or available) < 512 << 20:
        return Finding("memory", State.WARNING, text, "free some, or raise the limit (docker: --memory)")
    return Finding("memory", State.OK, text)


def check_shm(space: tuple[int, int] | None, limits: Limits | None = None) -> Finding:
    """/dev/shm exists, is large enough for rings and maps, and the memory for it is available."""
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
    memory = None if limits is None else limits.memory
    if memory is not None and free > memory:
        text += f"; what is in it counts as memory, which the control group limits to {_size(memory)}"
    return Finding("/dev/shm", State.OK, text)


def check_replicas(room: int, backups: int) -> Finding:
    """Backups of other members' maps and lists have room next to those of this member.

    Args:
        room: bytes that maps and lists may take here.
        backups: of each partition, on other members.
    """
    own = room // (1 + backups)
    text = (
        f"{backups} of each partition on other members: of {_size(room)} for maps and lists, {_size(own)} are for this "
        "member's own, the rest for its backups of others"
    )
    if own >= SMALL_SHM:
        return Finding("backups", State.OK, text)
    remedy = "enlarge /dev/shm or the memory, spread the maps over more members, or lower backup_count"
    return Finding("backups", State.WARNING, text, remedy)


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


def check_process_limit(limits: Limits, cores: int) -> Finding:
    """The control group allows as many processes (and threads) as there are workers and carriers."""
    if limits.processes is None:
        return Finding("pids limit", State.OK, "none")
    text = f"{limits.processes:,} processes and threads (control groups version {limits.version})"
    if limits.processes >= max(256, 4 * cores):
        return Finding("pids limit", State.OK, text)
    state = State.WARNING if limits.processes >= 4 * cores else State.ERROR
    return Finding("pids limit", state, text, f"docker: --pids-limit {max(FEW_PROCESSES, 4 * cores)}")


def check_clock(source: str) -> Finding:
    """The clock can be read without a system call: processors are timed with every call."""
    if not source:
        return Finding("clock", State.OK, "not told")
    if source in FAST_CLOCKS:
        return Finding("clock", State.OK, source)
    text = f"{source}: each look at the clock is a system call"
    remedy = "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource, if that is available"
    return Finding("clock", State.WARNING, text, remedy)


def check_locked_memory(soft: int) -> Finding:
    """How much memory may be locked; shmjet locks none."""
    return Finding("RLIMIT_MEMLOCK", State.OK, f"{_size(soft) if soft >= 0 else 'unlimited'} (none is needed)")


def check_java(found: tuple[str, int] | None) -> Finding:
    """Java for the Spark extra."""
    remedy = f"install Java {JAVA_NEEDED} or later (apt-get install default-jre-headless)"
    if found is None:
        return Finding("java", State.WARNING, "not found: only needed for Spark", remedy)
    version, major = found
    if major < JAVA_NEEDED:
        text = f"{version}: too old for Spark 4, only needed for Spark"
        return Finding("java", State.WARNING, text, remedy)
    return Finding("java", State.OK, version)


def check_spark(version: str | None) -> Finding:
    """PySpark for the Spark extra."""
    if version is None:
        text = "pyspark not found: only needed for Spark"
        return Finding("spark", State.WARNING, text, "pip install pyspark")
    return Finding("spark", State.OK, f"pyspark {version}")


def check_threads(environment: Mapping[str, str], workers: int, cores: int) -> Finding:
    """Threads of numpy's libraries: one in each worker, unless SHMJET_BLAS_THREADS says otherwise."""
    wanted = environment.get(BLAS_VARIABLE, "1")
    found = [f"{name}={environment[name]}" for name in THREAD_VARIABLES if environment.get(name)]
    here = f"; {', '.join(found)} is for this process only" if found else ""
    text = f"{wanted} in each worker{here}"
    if not wanted.isdecimal() or int(wanted) < 1:
        return Finding("BLAS threads", State.ERROR, text, f"{BLAS_VARIABLE} must be a number from 1 on")
    if int(wanted) > 1 and int(wanted) * workers > cores:
        text += f": {int(wanted) * workers} threads on {cores} cores"
        return Finding("BLAS threads", State.WARNING, text, f"unset {BLAS_VARIABLE}, or use fewer workers")
    return Finding("BLAS threads", State.OK, text)


def _size(count: int) -> str:
    for factor, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= factor:
            return f"{count / factor:.4g} {unit}"
    return f"{count} bytes"


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else f"{value:,}"


def _at_least(value: int, wanted: int) -> bool:
    return value == resource.RLIM_INFINITY or value >= wanted
