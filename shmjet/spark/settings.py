"""A check of Spark's settings, which refuses those under which a feed would fail later with an obscure error."""

from __future__ import annotations

import re
from typing import Any

from shmjet.data.errors import ConfigError

_WORKER_NEEDS = 384 << 20
"""Bytes of address space that a Python worker of a feed needs in addition to the job's shared memory."""
_UNITS = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}


def check_settings(conf: Any, memory: int) -> None:
    """Check a Spark context's configuration.

    Args:
        conf: has `get(key, default)`.
        memory: bytes of shared memory that a worker maps.

    Raises:
        ConfigError: a setting would kill a worker that waits, or that maps the job's memory; the text says which.
    """
    idle = seconds(conf.get("spark.python.worker.idleTimeoutSeconds", "0") or "0")
    if conf.get("spark.python.worker.killOnIdleTimeout", "false").lower() == "true" and idle > 0:
        raise ConfigError(
            f"spark.python.worker.killOnIdleTimeout=true with idleTimeoutSeconds={idle:g} kills Spark tasks that wait "
            "for a slower shmjet job; set spark.python.worker.killOnIdleTimeout=false for the session that feeds it"
        )
    given = conf.get("spark.executor.pyspark.memory", None)
    if given:
        cores = _cores(conf)
        each = size(given, "m") // cores
        if each < memory + _WORKER_NEEDS:
            raise ConfigError(
                f"spark.executor.pyspark.memory={given} leaves {each >> 20} MiB of address space to each of {cores} "
                f"Python workers of an executor, which map {memory >> 20} MiB of the shmjet job and need "
                f"{_WORKER_NEEDS >> 20} MiB themselves; set it to {-(-(memory + _WORKER_NEEDS) * cores >> 20)}m or "
                "more, leave it out, or lower `memory` of spark.source"
            )


def size(text: str, unit: str) -> int:
    """Return the bytes that one of Spark's sizes (`"2g"`, `"512m"`, `"100"`) means.

    Args:
        text: the size.
        unit: of a number without one.

    Example:
        >>> size("2g", "m"), size("3", "m")
        (2147483648, 3145728)
    """
    found = re.fullmatch(r"(\d+)\s*([a-z]?)(?:i?b)?", text.strip().lower())
    if found is None:
        raise ConfigError(f"Spark's configuration has a size {text!r}, which is none")
    return int(found[1]) * _UNITS[found[2] or unit]


def seconds(text: str) -> float:
    """Return the seconds that one of Spark's times (`"30"`, `"30s"`, `"2min"`, `"500ms"`) means."""
    found = re.fullmatch(r"(\d+)\s*(ms|s|m|min|h|d|)", text.strip().lower())
    if found is None:
        return 0.0
    return int(found[1]) * {"ms": 0.001, "": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}[found[2]]


def _cores(conf: Any) -> int:
    """Return into how many parts Spark divides an executor's memory for Python; by `local[N]` it does not."""
    return max(1, int(conf.get("spark.executor.cores", "") or 1))
