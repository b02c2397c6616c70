"""Compiles and runs the tests of the kernels for sorting and joining that are written in C, under sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.programs import WELL, in_c, run_sanitized

pytestmark = in_c


@pytest.mark.parametrize("name", ["test_sort", "test_join"])
def test_the_kernels_do_what_their_plain_counterparts_do(tmp_path: Path, name: str) -> None:
    assert run_sanitized(tmp_path, name, level="-O1" if name == "test_sort" else "-O0") == WELL
