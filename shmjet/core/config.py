"""`JetConfig`: the settings of an instance, from arguments, environment, a file and defaults, in that order.

Each field is described once, in `_FIELDS`: its default, how its text in the environment is read, and what it may be.
Nothing is started or looked up here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from shmjet.core.checks import (
    MOST_PARTITIONS,
    check_at_least,
    check_name,
    check_seconds,
    unknown_setting,
    with_known_settings,
)
from shmjet.core.map_config import MapConfig, most_backups
from shmjet.core.secret import LONGEST, MEMBER_SECRET_FILE, SECRET_FILE, read_secret
from shmjet.data.errors import ConfigError

MOST_WORKERS = 8192
"""Workers that a member may have: as many as Linux has cores at most."""

_UNSET: Any = type("Unset", (), {"__repr__": lambda self: "UNSET"})()
_PREFIX = "SHMJET_"
_SECRET_FILES = {"secret": SECRET_FILE, "member_secret": MEMBER_SECRET_FILE}
"""The environment variables that name files with secrets, by field."""


@with_known_settings
@dataclass(frozen=True, kw_only=True)
class JetConfig:
    """Settings of a member; frozen and checked.

    A field that is not given is taken from the environment (`SHMJET_CORES=4`; lists as `a,b`), else from the file
    (`from_toml`), else its default. Instead of a number of seconds a `timedelta` may be given.

    Args:
        cluster_name: members of one name find each other (default "dev").
        cores: None for all that the process may use of one NUMA node, a number of workers (which go to further nodes
            only when one has too few cores), or a list of core numbers, one per worker.
        bind: None for no network, or "host:port" to join a cluster; needs a `secret`.
        members: addresses ("host:port") of members to join.
        discovery: how else members are found, None for not at all.
        secret: what members and clients prove to each other that they know; text or bytes. `SHMJET_SECRET_FILE` names
            a file with it that only its owner may read (`shmjet secret -o FILE` makes one), and so does a text that
            begins with `file:`.
        member_secret: what members prove to each other as well, and clients do not know; given in the same ways
            (`SHMJET_MEMBER_SECRET`, `SHMJET_MEMBER_SECRET_FILE`). None: any holder of `secret` may join as a member
            (default). Needed with `bind` and `allow_code=False`.
        tls: None, or a mapping of TLS settings: `certificate`, `key` and `authority` (paths of PEM files), `mutual`
            (others have to show a certificate, too) and `check_hostname` (of the listener; default True).
        allow_code: whether clients may bring code; without, they can look, cancel, and run `jobs` (default True). The
            same on all members of a cluster; False needs a `member_secret`.
        jobs: jobs that clients can run by name: for each a text "module:function", of a function without arguments that
            returns a DAG or a pipeline, or a pair of one and a `JobConfig`. Members import the module (default none).
        partition_count: number of partitions of maps and edges, 1 to 65535 (default 271).
        backup_count: copies of each partition of maps and lists on other members, 0 to 6 (default 1), as far as there
            are members; on another host where there is one. The same on all members of a cluster.
        storage: "memory" (default), or a directory in which maps, lists, snapshots and the records of jobs with a
            guarantee outlive the member: when it is started with it again, they are there, and it goes on with these
            jobs. With `bind` each member has its own directory. When all have ended, maps and lists are there again as
            soon as the members that had them last have been started.
        storage_sync: seconds at most, about, for which a change of a map or list is in memory only, where there is a
            `storage`; 0: a change returns when it is on disk (default 0.01).
        maps: settings of maps, a `MapConfig` for each name or pattern such as "logs-*" (default none). A map's own
            name counts before patterns, and of these the first that fits. In a TOML file tables such as
            `[maps."logs-*"]`, in the environment JSON: `SHMJET_MAPS='{"counts": {"journal_capacity": 1000}}'`. The same
            on all members. A `min_backups` above `backup_count` is refused, see `MapConfig`.
        flow_control_period: seconds between flow-control messages, above 0 (default 0.1).
        idle_min: seconds that an idle worker spins before it sleeps (default 50e-6).
        idle_max: seconds at most between two looks at something outside that cannot wake a worker (default 1e-3).
        work_stealing: whether a worker that runs dry takes over tasklets of others (default True).
        scale_up_delay: seconds after the last member has joined until jobs with `auto_scaling` are restarted, so that
            they run on it, too (default 10.0). The coordinator's counts.
        ring_memory: upper bound in bytes for all rings of one job, at least 1 MiB (default 256 MiB).

    Raises:
        ConfigError: an unknown field, a wrong type or range; the text names the field and where its value came from.

    Example:
        >>> JetConfig(cores=4).partition_count
        271
    """

    cluster_name: str = _UNSET
    cores: int | Sequence[int] | None = _UNSET
    bind: str | None = _UNSET
    members: Sequence[str] = _UNSET
    discovery: str | None = _UNSET
    secret: str | bytes | None = _UNSET
    member_secret: str | bytes | None = _UNSET
    tls: Mapping[str, Any] | None = _UNSET
    allow_code: bool = _UNSET
    jobs: Mapping[str, str] = _UNSET
    partition_count: int = _UNSET
    backup_count: int = _UNSET
    storage: str = _UNSET
    storage_sync: float = _UNSET
    maps: Mapping[str, MapConfig] = _UNSET
    flow_control_period: float = _UNSET
    idle_min: float = _UNSET
    idle_max: float = _UNSET
    work_stealing: bool = _UNSET
    scale_up_delay: float = _UNSET
    ring_memory: int = _UNSET

    def __post_init__(self) -> None:
        for name, description in _FIELDS.items():
            value, source = getattr(self, name), ""
            if value is _UNSET:
                value, source = _from_environment(name, description)
                file = _SECRET_FILES.get(name, "")
                if value is None and file in os.environ:
                    value, source = read_secret(os.environ[file]), f" (from {file})"
            object.__setattr__(self, name, description.check(f"JetConfig.{name}{source}", value))
        if self.idle_max < self.idle_min:
            raise ConfigError(f"JetConfig.idle_max ({self.idle_max}) must not be below idle_min ({self.idle_min})")
        if self.bind is not None and not self.secret:
            raise ConfigError(
                f"JetConfig.bind is {self.bind!r}, but no secret is set; a member opens no port without one: "
                "pass secret=, or set SHMJET_SECRET or SHMJET_SECRET_FILE (`shmjet secret -o FILE` makes such a file)"
            )
        if self.bind is not None and not self.allow_code and not self.member_secret:
            raise ConfigError(
                "JetConfig.allow_code is False, but no member_secret is set, so every process that knows the secret "
                "could join as a member and bring code: pass member_secret=, or set SHMJET_MEMBER_SECRET or "
                "SHMJET_MEMBER_SECRET_FILE (`shmjet secret -o FILE` makes such a file), the same on all members"
            )
        most = 0 if self.bind is None else most_backups(self.backup_count, self.maps)
        for name, config in self.maps.items():
            if config.min_backups > most:
                why = "without bind there are no other members" if self.bind is None else f"backup_count is {most}"
                raise ConfigError(
                    f"JetConfig.maps[{name!r}].min_backups is {config.min_backups}, but {why}, so that each write "
                    "would be refused"
                )
        if self.secret is not None and self.secret == self.member_secret:
            raise ConfigError("JetConfig.member_secret must differ from secret, which clients know, too")

    @classmethod
    def from_toml(cls, path: str | Path, **overrides: Any) -> JetConfig:
        """Read settings from a TOML file whose keys are the fields' names.

        Args:
            path: the file.
            overrides: fields that are stronger than environment and file.

        Raises:
            ConfigError: the file cannot be read or parsed, or a value is wrong; the text names file and field.

        Example:
            >>> JetConfig.from_toml("jet.toml", cores=2)       # doctest: +SKIP
        """
        import tomllib

        try:
            with open(path, "rb") as file:
                read = tomllib.load(file)
        except OSError as error:
            raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from error
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{str(path)!r} is not valid TOML: {error}") from error
        given = [read.get(name) for name in _SECRET_FILES]
        holds = any(isinstance(secret, str) and not secret.startswith("file:") for secret in given)
        if holds and os.stat(path).st_mode & 0o077:
            raise ConfigError(f"{str(path)!r} holds a secret, but others may read it; chmod 600 {path}")
        settings: dict[str, Any] = {}
        for name, value in read.items():
            if name not in _FIELDS:
                raise ConfigError(f"{str(path)!r}: {unknown_setting(name, _FIELDS)}")
            checked = _FIELDS[name].check(f"{name} in {str(path)!r}", value)
            variables = {_PREFIX + name.upper()} | ({_SECRET_FILES[name]} if name in _SECRET_FILES else set())
            if variables.isdisjoint(os.environ):
                settings[name] = checked
        for name in overrides:
            if name not in _FIELDS:
                raise ConfigError(f"JetConfig.from_toml(): {unknown_setting(name, _FIELDS)}")
        return cls(**{**settings, **overrides})

    def __repr__(self) -> str:
        shown = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value != _FIELDS[field.name].default:
                shown.append(f"{field.name}={'***' if field.name in _SECRET_FILES else repr(value)}")
        return f"JetConfig({', '.join(shown)})"


@dataclass(frozen=True)
class _Field:
    default: Any
    read: Callable[[str], Any]
    """Turns the text of an environment variable into a value; ValueError when it cannot."""
    check: Callable[[str, Any], Any]
    """Returns the value in its final form; ConfigError when it is wrong."""


def _from_environment(name: str, description: _Field) -> tuple[Any, str]:
    variable = _PREFIX + name.upper()
    text = os.environ.get(variable)
    if text is None:
        return description.default, ""
    try:
        return description.read(text), f" (from {variable})"
    except ValueError:
        shown = "a value" if name in _SECRET_FILES else repr(text)
        raise ConfigError(f"JetConfig.{name} (from {variable}): cannot read {shown}") from None


def _read_list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _read_cores(text: str) -> int | list[int] | None:
    """Read `4` (workers), `0,2,4` or `0-3,8` (core numbers; one alone as `2,`), or nothing (all)."""
    if not text.strip():
        return None
    if "," not in text and "-" not in text.strip()[1:]:
        return int(text)
    cores: list[int] = []
    for part in _read_list(text):
        first, dash, last = part.partition("-")
        cores += range(int(first), int(last) + 1) if dash and first else [int(part)]
    return cores


def _read_bool(text: str) -> bool:
    known = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if text.strip().lower() not in known:
        raise ValueError(text)
    return known[text.strip().lower()]


def _read_table(text: str) -> dict[str, str]:
    """Read `key=value,key=value`."""
    return dict(_pair(part) for part in _read_list(text))


def _read_json(text: str) -> Any:
    import json

    return json.loads(text)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ValueError(text)
    return key.strip(), value.strip()


def _text(where: str, value: Any) -> str:
    return check_name(where, value)


def _optional_text(where: str, value: Any) -> str | None:
    return None if value is None else _text(where, value)


IN_MEMORY = "memory"
"""The storage of a member whose jobs and maps end with it."""


def _storage(where: str, value: Any) -> str:
    path = _text(where, os.fspath(value) if isinstance(value, os.PathLike) else value)
    if "\0" in path:
        raise ConfigError(f"{where} has a character that no path may have, \\0, got {path!r}")
    return path


def _address(where: str, value: Any) -> str:
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"{where} must be an address such as '10.0.0.5:5701', got {value!r}")
    return str(value)


def _optional_address(where: str, value: Any) -> str | None:
    return None if value is None else _address(where, value)


def _addresses(where: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise ConfigError(f"{where} must be a list of addresses such as ['10.0.0.5:5701'], got {value!r}")
    return tuple(_address(where, address) for address in value)


def _secret(where: str, value: Any) -> str | bytes | None:
    if value is not None and (not isinstance(value, str | bytes) or not value):
        raise ConfigError(f"{where} must be a non-empty text or bytes, got one of type {type(value).__name__}")
    if value is not None and len(value) > LONGEST:
        raise ConfigError(f"{where} must have at most {LONGEST} characters, got {len(value)}")
    return value


def _mapping(where: str, value: Any) -> Mapping[str, Any] | None:
    if value is not None and not isinstance(value, Mapping):
        raise ConfigError(f"{where} must be a mapping of settings or None, got {value!r}")
    return None if value is None else dict(value)


def _jobs(where: str, value: Any) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} must be a mapping of names to texts 'module:function', got {value!r}")
    for name, function in value.items():
        module, _, attribute = function.partition(":") if isinstance(function, str) else ("", "", "")
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{where} must have names that are non-empty texts, got {name!r}")
        if not attribute.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
            raise ConfigError(f"{where}[{name!r}] must be a text 'module:function', got {function!r}")
    return dict(value)


def _maps(where: str, value: Any) -> Mapping[str, MapConfig]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} must be a mapping of names or patterns to MapConfigs, got {value!r}")
    maps: dict[str, MapConfig] = {}
    for name, config in value.items():
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{where} must have names or patterns that are non-empty texts, got {name!r}")
        if isinstance(config, Mapping):
            try:
                config = MapConfig(**config)
            except (ConfigError, TypeError) as error:
                raise ConfigError(f"{where}[{name!r}]: {error}") from error
        if not isinstance(config, MapConfig):
            raise ConfigError(f"{where}[{name!r}] must be a MapConfig, got {config!r:.80} ({type(config).__name__})")
        maps[name] = config
    return maps


def _cores(where: str, value: Any) -> int | tuple[int, ...] | None:
    if value is None:
        return None
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        numbers = tuple(check_at_least(f"{where}: a core number", core, 0) for core in value)
        if not numbers or len(set(numbers)) < len(numbers):
            raise ConfigError(f"{where} must list at least one core number and none twice, got {value!r}")
        return numbers
    return _integer(1, MOST_WORKERS)(where, value)


def _flag(where: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{where} must be True or False, got {value!r}")
    return value


def _integer(least: int, most: int | None = None) -> Callable[[str, Any], int]:
    def check(where: str, value: Any) -> int:
        number = check_at_least(where, value, least)
        if most is not None and number > most:
            raise ConfigError(f"{where} must be at most {most}, got {number}")
        return number

    return check


def _seconds(*, zero: bool) -> Callable[[str, Any], float]:
    return partial(check_seconds, zero=zero)


_FIELDS: dict[str, _Field] = {
    "cluster_name": _Field("dev", str, _text),
    "cores": _Field(None, _read_cores, _cores),
    "bind": _Field(None, str, _optional_address),
    "members": _Field((), _read_list, _addresses),
    "discovery": _Field(None, str, _optional_text),
    "secret": _Field(None, str, _secret),
    "member_secret": _Field(None, str, _secret),
    "tls": _Field(None, _read_table, _mapping),
    "allow_code": _Field(True, _read_bool, _flag),
    "jobs": _Field({}, _read_table, _jobs),
    "partition_count": _Field(271, int, _integer(1, MOST_PARTITIONS)),
    "backup_count": _Field(1, int, _integer(0, 6)),
    "storage": _Field(IN_MEMORY, str, _storage),
    "storage_sync": _Field(0.01, float, _seconds(zero=True)),
    "maps": _Field({}, _read_json, _maps),
    "flow_control_period": _Field(0.1, float, _seconds(zero=False)),
    "idle_min": _Field(50e-6, float, _seconds(zero=True)),
    "idle_max": _Field(1e-3, float, _seconds(zero=False)),
    "work_stealing": _Field(True, _read_bool, _flag),
    "scale_up_delay": _Field(10.0, float, _seconds(zero=True)),
    "ring_memory": _Field(256 << 20, int, _integer(1 << 20)),
}
