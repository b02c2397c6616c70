"""`MapConfig`: the settings of a map, and how a map's name finds its own among those of `JetConfig.maps`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from shmjet.core.checks import check_at_least, with_known_settings
from shmjet.data.errors import ConfigError

MOST_BACKUPS = 6
MOST_EVENTS = 1 << 40
EVICTIONS = ("none", "lru")


@with_known_settings
@dataclass(frozen=True, kw_only=True)
class MapConfig:
    """Settings of a map, given by name or pattern in `JetConfig(maps={"counts": MapConfig(...)})`.

    Args:
        backup_count: copies of each partition on other members that it has at least, 0 to 6; None: as
            `JetConfig.backup_count`. Partitions move as a whole, so all maps and lists get as many as the most that any
            setting asks for.
        min_backups: copies that must be there for a write, else it raises `GridError` (default 0).
        journal_capacity: how many of the last changes are kept for `IMap.journal`; 0: no journal (default).
        max_bytes: what its entries may take on a member, with their keys and files, at least 1; None: no limit.
        eviction: what makes room when `max_bytes` is reached: "none", so that a write raises `GridFullError`
            (default), or "lru": the entries that were put or looked up longest ago go. Needs `max_bytes`.

    Raises:
        ConfigError: an unknown field, a wrong type or range; the text names the field.

    Example:
        >>> MapConfig(journal_capacity=10_000).eviction
        'none'
    """

    backup_count: int | None = None
    min_backups: int = 0
    journal_capacity: int = 0
    max_bytes: int | None = None
    eviction: str = "none"

    def __post_init__(self) -> None:
        if self.backup_count is not None:
            _in_range("MapConfig.backup_count", self.backup_count, MOST_BACKUPS)
        _in_range("MapConfig.min_backups", self.min_backups, MOST_BACKUPS)
        _in_range("MapConfig.journal_capacity", self.journal_capacity, MOST_EVENTS)
        if self.max_bytes is not None:
            check_at_least("MapConfig.max_bytes", self.max_bytes, 1)
        if self.eviction not in EVICTIONS:
            raise ConfigError(f"MapConfig.eviction must be 'none' or 'lru', got {self.eviction!r}")
        if self.eviction == "lru" and self.max_bytes is None:
            raise ConfigError("MapConfig.eviction is 'lru', but max_bytes is not set; nothing would be evicted")

    @property
    def is_plain(self) -> bool:
        """Whether it has neither a journal nor a limit."""
        return not self.journal_capacity and self.max_bytes is None


def _in_range(name: str, value: int, most: int) -> int:
    if check_at_least(name, value, 0) > most:
        raise ConfigError(f"{name} must be at most {most}, got {value}")
    return value


PLAIN = MapConfig()
"""The settings of a map that has none."""


def config_of(name: str, maps: Mapping[str, MapConfig]) -> MapConfig:
    """Return the settings of a map: under its name, else under the first pattern that it matches.

    Args:
        name: of the map.
        maps: settings by name or pattern (`*`, `?`, `[...]`, as in file names; capitals are told apart).

    Example:
        >>> config_of("logs-1", {"logs-*": MapConfig(journal_capacity=5)}).journal_capacity
        5
    """
    found = maps.get(name)
    if found is None:
        found = next((config for pattern, config in maps.items() if fnmatchcase(name, pattern)), PLAIN)
    return found


def most_backups(backup_count: int, maps: Mapping[str, MapConfig]) -> int:
    """Return how many backups each partition has where there are enough members: the most that any setting asks for.

    Args:
        backup_count: of `JetConfig`.
        maps: settings by name or pattern.

    Example:
        >>> most_backups(1, {"accounts": MapConfig(backup_count=2)})
        2
    """
    return max(backup_count, *(config.backup_count or 0 for config in maps.values()), 0)


MapSettings = dict[str, dict[str, int | str | None]]
"""Settings of maps by name or pattern, in their order, as members tell them to one another."""
_COMPARED = ("min_backups", "journal_capacity", "max_bytes", "eviction")
"""`backup_count` is not among them: what counts is the most of them all."""


def settings_of(maps: Mapping[str, MapConfig]) -> MapSettings:
    """Return what has to be the same on all members.

    Example:
        >>> settings_of({"counts": MapConfig(max_bytes=1000)})["counts"]["max_bytes"]
        1000
    """
    return {name: {field: getattr(config, field) for field in _COMPARED} for name, config in maps.items()}


class Difference(NamedTuple):
    """A setting of a map that two members have differently.

    Args:
        name: of the map, or a pattern.
        field: of `MapConfig`.
        ours, theirs: the values.
    """

    name: str
    field: str
    ours: int | str | None
    theirs: int | str | None


def difference(ours: MapSettings, theirs: MapSettings) -> Difference | None:
    """Return the first setting in which two members differ, None where they have the same for every name and pattern.

    A pattern counts for what it matches, so a setting that another one gives in the same way makes no difference. What
    only one of them knows, as they are of different versions, is passed over.

    Example:
        >>> difference(settings_of({"a": MapConfig(max_bytes=5)}), settings_of({"*": MapConfig(max_bytes=6)}))
        Difference(name='a', field='max_bytes', ours=5, theirs=6)
    """
    for name in dict.fromkeys((*ours, *theirs)):
        one, other = _found(name, ours), _found(name, theirs)
        for field in _COMPARED:
            if field in one and field in other and one[field] != other[field]:
                return Difference(name, field, one[field], other[field])
    return None


def _found(name: str, settings: MapSettings) -> dict[str, int | str | None]:
    """Return the settings of a map, or of the maps that a pattern matches: those of the first that matches them."""
    is_pattern = any(character in name for character in "*?[")
    if name in settings and not is_pattern:
        return settings[name]
    for pattern, found in settings.items():
        if pattern == name or fnmatchcase(name, pattern):
            return found
    return settings_of({name: PLAIN})[name]
