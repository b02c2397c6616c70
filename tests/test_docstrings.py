"""The examples in the docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import linecache
from pathlib import Path

import pytest

import shmjet

PLACE = Path(shmjet.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(PLACE.parent).with_suffix("").parts)
    for path in PLACE.rglob("*.py")
    if ">>> " in path.read_text() and not path.name.startswith("__")
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_are_true(name: str) -> None:
    module = importlib.import_module(name)
    linecache.clearcache()  # doctest has Python look, for each docstring, whether one of these files has changed
    found = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert found.failed == 0
