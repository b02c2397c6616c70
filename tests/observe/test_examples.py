"""The examples in the docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import shmjet.observe


@pytest.mark.parametrize("name", [module.name for module in pkgutil.iter_modules(shmjet.observe.__path__)])
def test_examples_of(name: str) -> None:
    assert doctest.testmod(importlib.import_module(f"shmjet.observe.{name}")).failed == 0
