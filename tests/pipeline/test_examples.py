"""The examples in the docstrings of pipelines, and of the processors made for them, are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import shmjet.pipeline

MODULES = [
    *(module.name for module in pkgutil.walk_packages(shmjet.pipeline.__path__, "shmjet.pipeline.")),
    "shmjet.processors.general.async_services",
    "shmjet.processors.general.fused_steps",
    "shmjet.processors.general.service_use",
    "shmjet.processors.general.services",
    "shmjet.processors.general.stateful",
    "shmjet.processors.general.table_lookup",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS).failed == 0
