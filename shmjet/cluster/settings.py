"""The settings that a client hands to the member that it starts, and the member's answer when it is up."""

from __future__ import annotations

import signal
from typing import Any

import msgspec

from shmjet.core.map_config import MapConfig

SOCKET_NAME = "member.sock"
"""The member's socket in the instance's folder."""
KEPT_RESULTS = 1000
"""How many executions that have ended a member and its clients remember."""
KEPT_EXCEPTIONS = 32 << 20
"""Bytes of the exceptions of executions that have ended, at most; of older ones a member remembers the text."""
KEPT_CODES = 64
"""The number of jobs with a large code, or with files, that are kept: each takes memory that others may need."""
LARGE_CODE = 1 << 20
"""A job's code of more bytes does not go through sockets but lies in a file in memory, once."""


class MemberSettings(msgspec.Struct, frozen=True):
    """The part of a `JetConfig` that a member needs, with every default decided.

    `cores` has one entry per worker: the core it is pinned to, None for none. `allowed` are the cores that any of its
    processes may run on, `memory_nodes` the NUMA nodes of its shared memory (none: no matter). `spin`: idle workers may
    spin before they sleep. `note` goes to the log. `client_pid` is watched: the member ends when that process does;
    0 for none. `log_levels`: from which on records of shmjet's loggers, and of others, are sent to it. `stop_signals`
    end the member, too. `jobs` are its own, "module:function" by name. With `bind` it has a network, to which the
    fields behind belong; the secrets are not among them, because settings are seen in the list of processes.
    `maps` are settings of maps by name or pattern. `tells_members_apart`: members prove a secret that clients do not
    know. `storage` is the folder in which records of jobs and snapshots outlive the member, and without a network maps
    and lists, too; empty: they end with it. These are in memory only for about `storage_sync` seconds; 0: not at all.
    Another member that is silent for `longest_silence` seconds is lost. Attempts of a job that fail one after the other
    are `restart_pause` seconds apart, then twice as many, and so on.
    """

    cluster_name: str
    cores: list[int | None]
    allowed: list[int]
    memory_nodes: list[int]
    spin: bool
    note: str
    partition_count: int
    ring_memory: int
    idle_min_ns: int
    idle_max_ns: int
    force_rings: bool
    steal_margin: int | None
    client_pid: int
    log_levels: list[int]
    stop_signals: tuple[int, ...] = (signal.SIGTERM, signal.SIGHUP)
    allow_code: bool = True
    jobs: dict[str, str] = {}
    maps: dict[str, MapConfig] = {}
    bind: str | None = None
    seeds: list[str] = []
    discovery: str | None = None
    tls: dict[str, Any] | None = None
    flow_period_ns: int = 100_000_000
    tells_members_apart: bool = False
    longest_silence: float = 2.2
    restart_pause: float = 0.04
    storage: str = ""
    storage_sync: float = 0.01
    backup_count: int = 1
    """How many backups partitions should have, as far as there are members."""
    scale_up_delay: float = 10.0
    """Seconds from the last join of members to the restarts of jobs."""


class Starting(msgspec.Struct, frozen=True, tag=True):
    """What the member does now, on its way up: "opening its port", say."""

    doing: str


class Started(msgspec.Struct, frozen=True, tag=True):
    """The member is up; its socket and maps are in this folder. `address` is where others reach it."""

    folder: str
    uuid: str
    pid: int
    address: str = "local"


class StartFailed(msgspec.Struct, frozen=True, tag=True):
    """The member could not start; `error` is the name of an error class of `shmjet.data.errors`."""

    text: str
    error: str = "ShmjetError"


StartAnswer = Starting | Started | StartFailed
