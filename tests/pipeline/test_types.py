"""Type hints flow through stages, as mypy sees them."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.mark.slow
def test_types_flow_through_stages() -> None:
    api = pytest.importorskip("mypy.api")
    root = Path(__file__).resolve().parents[2]
    arguments = [str(Path(__file__).with_name("typed.py")), "--config-file", str(root / "pyproject.toml")]
    report, errors, status = api.run([*arguments, "--cache-dir", str(root / ".mypy_cache")])  # as `make check`
    assert status == 0, report + errors
