"""Checks of single values that every description in this floor shares, each naming what it looked at."""

from __future__ import annotations

from collections.abc import Collection, Iterable
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


def unknown_setting(name: str, known: Collection[str]) -> str:
    """Say that there is no setting of that name, and which one may have been meant."""
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    advice = f"did you mean {near[0]!r}?" if near else f"fields: {', '.join(known)}"
    return f"there is no setting {name!r}; {advice}"


def check_settings(owner: str, given: Iterable[str], known: Collection[str]) -> None:
    """Check the names of the keyword arguments of a config.

    A dataclass would raise a TypeError of its own, so this is called by `__new__`.

    Raises:
        ConfigError: one of them is unknown; the text names the nearest one.
    """
    for name in given:
        if name not in known:
            raise ConfigError(f"{owner}: {unknown_setting(name, known)}")
