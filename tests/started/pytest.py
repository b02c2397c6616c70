"""What `import pytest` finds in the processes that tests start: marks and fixtures that do nothing.

Workers import the module of a test when they get one of its functions or classes. The real package takes a quarter of a
second each time, half of what such a process costs. Whatever else is asked for comes from the real one.
"""

from __future__ import annotations

import importlib
import runpy
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

_HERE = Path(__file__).parent


class _Marks:
    """`mark`: each of its attributes is a decorator, with arguments or without."""

    def __getattr__(self, name: str) -> Any:
        return fixture


def fixture(*arguments: Any, **options: Any) -> Any:
    """Return the function that is decorated, or what returns it."""
    if len(arguments) == 1 and not options and callable(arguments[0]):
        return arguments[0]
    return lambda decorated: decorated


def param(*values: Any, **options: Any) -> None:
    """Take the arguments of a test, which does not run here."""


mark = _Marks()


def _make_way() -> None:
    """Let others find the real package."""
    sys.modules.pop("pytest", None)
    sys.path[:] = [place for place in sys.path if not place or Path(place) != _HERE]


@cache
def _real() -> ModuleType:
    _make_way()
    return importlib.import_module("pytest")


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(_real(), name)


if __name__ == "__main__":  # `python -m pytest`
    _make_way()
    runpy.run_module("pytest", run_name="__main__", alter_sys=True)
