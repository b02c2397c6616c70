"""No setting is accepted in silence: each is read by the engine, or this version refuses all but its default."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

import shmjet
from shmjet import (
    ClientConfig,
    ConfigError,
    EdgeConfig,
    JetConfig,
    JobConfig,
    MapConfig,
    PoolExecutor,
    processors,
    sinks,
    sources,
)
from shmjet.cluster.client.unsupported_settings import check_instance, check_job

ROOT = Path(shmjet.__file__).parent
DESCRIBING = {"core/config.py", "core/job.py", "cluster/client/unsupported_settings.py"}
"""Where settings are described and checked: to read one there is not to heed it."""

NOT_YET: dict[type, dict[str, Any]] = {
    JetConfig: {},
    JobConfig: {},
    EdgeConfig: {},
    ClientConfig: {},
    MapConfig: {},
}
"""Settings that this version does not have, and a value that would mean something."""

INSIDE: dict[type, dict[str, str]] = {
    MapConfig: {"backup_count": "`most_backups` counts it in"},
    JobConfig: {"module_names": "the pickle of a config names the modules it needs"},
}
"""Fields that are not settings."""


@cache
def attributes_read() -> frozenset[tuple[str, str]]:
    """Return (of what, attribute) for all that files with a config read: `self._config.cores` is (_config, cores)."""
    found = set()
    for path in ROOT.rglob("*.py"):
        text = path.read_text()
        if str(path.relative_to(ROOT)) in DESCRIBING or not re.search(r"config\w*\.\w", text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                owner = node.value
                name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
                found.add((name, node.attr))
    return frozenset(found)


def is_read(name: str) -> bool:
    return any("config" in owner and attribute == name for owner, attribute in attributes_read())


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, each.name) for kind in NOT_YET for each in fields(kind)], ids=lambda value: str(value)
)
def test_every_setting_is_read_or_refused(kind: type, name: str) -> None:
    if name not in NOT_YET[kind]:
        assert is_read(name) or name in INSIDE.get(kind, {}), f"nothing reads {kind.__name__}.{name}: refuse it"
        return
    with pytest.raises(ConfigError, match=rf"{kind.__name__}\.{name} is .*this version .*leave it"):
        accept(kind, kind(**{name: NOT_YET[kind][name]}))
    default = getattr(kind(), name)
    assert getattr(accept(kind, kind(**{name: default})), name) == default


def accept(kind: type, config: Any) -> Any:
    """Do with settings what starting an instance or making a job does."""
    if kind is not MapConfig:  # whose own check is all
        {JetConfig: check_instance, JobConfig: check_job}[kind](config)
    return config


def used_names(function: Any) -> set[str]:
    """Return the names that a function's body reads."""
    node = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}


FOR_THE_INTERFACE = {PoolExecutor.__init__: {"mp_context"}}
"""What is taken because `ProcessPoolExecutor` takes it; the docstrings say that it does nothing."""


def functions_of(module: Any) -> list[Callable[..., Any]]:
    found = [getattr(module, name) for name in module.__all__]
    return [each for each in found if isinstance(each, FunctionType)]


@pytest.mark.parametrize(
    "function",
    [*functions_of(sources), *functions_of(sinks), *functions_of(processors), PoolExecutor.__init__],
    ids=lambda function: f"{function.__module__}.{function.__qualname__}",
)
def test_every_argument_is_used(function: Callable[..., Any]) -> None:
    unused = set(inspect.signature(function).parameters) - {"self"} - used_names(function)
    assert unused == FOR_THE_INTERFACE.get(function, set())
