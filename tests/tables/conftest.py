"""What the tests of tables have in common."""

from __future__ import annotations

import importlib.util

import pytest


@pytest.fixture(scope="session", autouse=True)
def _polars_has_started() -> None:
    """Let polars open the descriptors that it keeps, before a module's tests are held to leave none."""
    if importlib.util.find_spec("polars") is not None:
        import polars

        polars.DataFrame({"a": [1]}).lazy().collect()
