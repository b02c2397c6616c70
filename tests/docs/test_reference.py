"""Every public name has a docstring, and a place in the reference."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import shmjet

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
MODULES = (
    "shmjet",
    "shmjet.aggregate_ops",
    "shmjet.columns",
    "shmjet.console",
    "shmjet.core",
    "shmjet.grid",
    "shmjet.pipeline",
    "shmjet.pool",
    "shmjet.processors",
    "shmjet.sinks",
    "shmjet.sources",
    "shmjet.testing",
)
NEEDED = {"shmjet.joblib": "joblib", "shmjet.console": "starlette"}
"""What modules with an extra of their own need."""
INTERNAL = {"Grid"}
"""In an `__all__` for the engine, and not for users."""


def is_there(module: str) -> bool:
    return module not in NEEDED or importlib.util.find_spec(NEEDED[module]) is not None


def public_names() -> list[tuple[str, str]]:
    return [(name, public) for name in MODULES if is_there(name) for public in importlib.import_module(name).__all__]


def methods_of(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties that a class or one of its bases defines."""
    ours = [base for base in kind.__mro__ if base.__module__.startswith("shmjet.")]
    for name, value in (pair for base in ours for pair in vars(base).items()):
        found = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if not name.startswith("_") and (inspect.isfunction(found) or isinstance(found, property)):
            yield name, found


def referenced() -> set[int]:
    """Return the identities of all objects that a page of the reference documents."""
    found: list[Any] = []
    for page in REFERENCE.glob("*.md"):
        module = ""
        for directive, name in re.findall(r"^\.\. (\w+):: ([\w.]+)$", page.read_text(), re.M):
            if name in NEEDED and not is_there(name):
                break  # all that is below it on the page
            if directive == "currentmodule":
                module = name
            elif directive == "automodule":
                loaded = importlib.import_module(name)
                found += [loaded, *(getattr(loaded, public) for public in loaded.__all__)]
            elif directive.startswith("auto"):
                found.append(getattr(importlib.import_module(module), name))
    return set(map(id, found))


def test_public_names_have_docstrings() -> None:
    bare: list[str] = []
    for module, name in public_names():
        value = getattr(importlib.import_module(module), name)
        path = f"{module}.{name}"
        if isinstance(value, type):
            if not vars(value).get("__doc__"):  # that of its base class does not count
                bare.append(path)
            bare += [f"{path}.{member}" for member, found in methods_of(value) if not inspect.getdoc(found)]
        elif (isinstance(value, ModuleType) or callable(value)) and not inspect.getdoc(value):
            bare.append(path)  # a constant has none of its own
    assert bare == []


def test_all_public_names_are_in_the_reference() -> None:
    known = referenced()
    values = {f"{module}.{name}": getattr(importlib.import_module(module), name) for module, name in public_names()}
    missing = [
        path
        for path, value in values.items()
        if id(value) not in known and not isinstance(value, ModuleType) and path.rpartition(".")[2] not in INTERNAL
    ]
    assert missing == [], "add them to a page of docs/reference"


def test_every_public_module_is_in_the_reference() -> None:
    text = "\n".join(page.read_text() for page in REFERENCE.glob("*.md"))
    modules = [name for name in shmjet.__all__ if isinstance(getattr(shmjet, name), ModuleType)]
    assert len(modules) > 4
    assert [name for name in modules if f"shmjet.{name}\n" not in text] == []
