"""`shmjet doctor`: collects facts of this machine, checks them, and prints each problem and how to fix it.

The checks are in `shmjet.cli.checks`; the facts come from `shmjet.host.topology`, `shmjet.cli.host` and the system.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict

import psutil

from shmjet.cli import checks, host
from shmjet.cli.checks import Finding, State
from shmjet.cli.outcome import Outcome
from shmjet.core import ConfigError, JetConfig
from shmjet.core.map_config import most_backups
from shmjet.host.kernel_files import Root
from shmjet.host.placement import Placement, place
from shmjet.host.topology import Topology, read_cores, read_topology


def findings(root: Root = "/", allowed: Iterable[int] | None = None) -> Iterator[Finding]:
    """Look at this machine, from the most basic to the optional.

    Args:
        root: where `proc`, `sys` and `dev` are.
        allowed: the cores that this process may use; by default asked of the kernel.
    """
    topology = read_topology(root, allowed)
    placement = _placement(topology)
    workers = len(placement.cores) if isinstance(placement, Placement) else len(topology.allowed)
    memory = psutil.virtual_memory()
    yield checks.check_platform(platform.system(), platform.machine(), tuple(sys.version_info[:3]))
    yield checks.check_extension()
    yield checks.check_cores(topology.allowed, *read_cores(root))
    yield checks.check_smt(topology)
    yield checks.check_cpuset(topology)
    yield checks.check_quota(topology)
    yield checks.check_numa(topology, placement)
    yield checks.check_workers(placement, len(topology.allowed))
    yield checks.check_memory(memory.total, memory.available, topology.limits)
    yield checks.check_shm(host.shared_memory(root), topology.limits)
    backups = _backups()
    if backups is not None:
        space = host.shared_memory(root)
        room = memory.available if space is None else min(memory.available, space[1])
        yield checks.check_replicas(
            room if topology.limits.memory is None else min(room, topology.limits.memory), backups
        )
    yield checks.check_files(*resource.getrlimit(resource.RLIMIT_NOFILE), workers)
    yield checks.check_processes(*resource.getrlimit(resource.RLIMIT_NPROC), workers)
    yield checks.check_process_limit(topology.limits, workers)
    yield checks.check_clock(host.clock_source(root))
    yield checks.check_locked_memory(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0])
    yield checks.check_threads(os.environ, workers, len(topology.allowed))
    yield checks.check_java(host.java_version())
    yield checks.check_spark(host.installed_version("pyspark"))


def _backups() -> int | None:
    """How many backups a member of a cluster that is started without arguments makes; None for a member alone."""
    try:
        config = JetConfig()
    except ConfigError:  # said of the workers
        return None
    return None if config.bind is None else most_backups(config.backup_count, config.maps)


def _placement(topology: Topology) -> Placement | ConfigError:
    """Where a member would live that is started without arguments: the environment counts (`SHMJET_CORES`)."""
    try:
        return place(JetConfig().cores, topology)
    except ConfigError as error:
        return error


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

    from shmjet.host.terminal_text import clean_line

    console = Console(highlight=False, soft_wrap=True)
    colours = {State.OK: "green", State.WARNING: "yellow", State.ERROR: "bold red"}
    for finding in found:
        line = Text(f"{finding.state:<8}", style=colours[finding.state])
        line.append(f"{finding.name:<16}", style="bold").append(clean_line(finding.text), style="default")
        console.print(line)
        if finding.remedy:
            console.print(f"{'':<24}{clean_line(finding.remedy)}", markup=False, style="dim")
