"""One instance for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import shmjet


@pytest.fixture(scope="module")
def jet() -> Iterator[shmjet.JetInstance]:
    with shmjet.new_instance(shmjet.JetConfig(cores=2)) as instance:
        yield instance
