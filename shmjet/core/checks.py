"""Checks of single values that every description in this floor shares, each naming what it looked at."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import fields
from datetime import timedelta
from functools import wraps
from sys import float_info
from typing import Any, TypeVar

from shmjet.data.errors import ConfigError, DagError, ShmjetError
from shmjet.data.sendable_text import is_sendable

T = TypeVar("T")

MOST_PARTITIONS = 65535
"""Partitions that maps and edges may have."""


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


def check_seconds(name: str, value: Any, *, zero: bool = False) -> float:
    """Return a finite number of seconds above 0, or with `zero` of at least 0; a `timedelta` is turned into one.

    Raises:
        ConfigError: it is something else, or out of range.
    """
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0 <= seconds <= float_info.max or (seconds == 0 and not zero):
        least = "of at least" if zero else "above"
        raise ConfigError(f"{name} must be a number of seconds {least} 0, got {value!r:.80}")
    return float(seconds)


LONGEST_SNAPSHOT_NAME = 200
"""Bytes of a snapshot's name in UTF-8: it becomes the name of a folder."""


def check_snapshot_name(where: str, value: Any) -> str:
    """Return the name of an exported snapshot.

    Args:
        where: what the message calls it.
        value: what was given.

    Raises:
        ConfigError: it is not a text, is empty or too long, begins with a dot, or holds a slash or a control character.
    """
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{where} must be a non-empty text, got {value!r}")
    if value.startswith(".") or "/" in value or not value.isprintable():
        raise ConfigError(f"{where} must not begin with a dot, nor hold a slash or control characters, got {value!r}")
    if len(value.encode("utf-8", "replace")) > LONGEST_SNAPSHOT_NAME:
        raise ConfigError(f"{where} must have at most {LONGEST_SNAPSHOT_NAME} bytes, got {len(value)} characters")
    return value


LONGEST_OBSERVABLE_NAME = 1024
"""Characters."""


def check_observable_name(where: str, value: Any) -> str:
    """Return the name of an observable.

    Args:
        where: what the message calls it.
        value: what was given.

    Raises:
        TypeError: it is not a text, is empty or too long, or cannot be written in UTF-8.
    """
    if not isinstance(value, str) or not 1 <= len(value) <= LONGEST_OBSERVABLE_NAME:
        most = f"a name of 1 to {LONGEST_OBSERVABLE_NAME} characters"
        raise TypeError(f"{where}: expected {most}, got {value!r:.80} ({type(value).__name__})")
    if not is_sendable(value):
        raise TypeError(f"{where}: the name {value!r} has characters that UTF-8 has not")
    return value


def check_name(where: str, value: Any, error: type[ShmjetError] = ConfigError) -> str:
    """Return a name of a job, vertex, stage or cluster, else raise `error`: not a text, empty, or not UTF-8."""
    if not isinstance(value, str) or not value:
        raise error(f"{where} must be a non-empty text, got {value!r}")
    if not is_sendable(value):
        raise error(f"{where} has characters that UTF-8 has not, got {value!r}")
    return value


def check_callable(name: str, value: Any, error: type[Exception] = DagError) -> Any:
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


def with_known_settings(config: type[T]) -> type[T]:
    """Decorate a dataclass so that an unknown keyword argument is a `ConfigError` that names the nearest field.

    A dataclass by itself raises a TypeError.
    """
    known = [field.name for field in fields(config) if field.init]  # type: ignore[arg-type]
    init: Callable[..., None] = config.__init__

    @wraps(init)
    def checked(self: Any, *values: Any, **settings: Any) -> None:
        for name in settings:
            if name not in known:
                raise ConfigError(f"{config.__name__}: {unknown_setting(name, known)}")
        init(self, *values, **settings)

    config.__init__ = checked  # type: ignore[method-assign]
    return config
