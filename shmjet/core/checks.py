"""Checks of single values that every description in this floor shares, each naming what it looked at."""

from __future__ import annotations

from typing import Any

from shmjet.core.errors import ConfigError, DagError, ShmjetError


def check_int(name: str, value: Any, error: type[ShmjetError] = ConfigError) -> int:
    """Return `value` when it is an integer and no bool, else raise `error`."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise error(f"{name} must be an integer, got {value!r} ({type(value).__name__})")
    return value


def check_at_least(name: str, value: Any, least: int, error: type[ShmjetError] = ConfigError) -> int:
    """Return `value` when it is an integer of at least `least`, else raise `error`."""
    if check_int(name, value, error) < least:
        raise error(f"{name} must be at least {least}, got {value}")
    return int(value)


def check_callable(name: str, value: Any, error: type[ShmjetError] = DagError) -> Any:
    """Return `value` when it can be called, else raise `error`."""
    if not callable(value):
        raise error(f"{name} must be a function, got {value!r} ({type(value).__name__})")
    return value
