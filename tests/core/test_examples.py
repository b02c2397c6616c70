"""The examples in the docstrings are true."""

import doctest
import importlib
import pkgutil

import pytest

import shmjet.core

MODULES = [f"shmjet.core.{module.name}" for module in pkgutil.iter_modules(shmjet.core.__path__)]


@pytest.mark.parametrize("name", [*MODULES, "shmjet.testing.doubles", "shmjet.testing.verification"])
def test_examples_of(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
