"""Compiles and runs the tests of the kernels for sorting and joining that are written in C, also under sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.programs import WELL, in_c, run, run_sanitized

PROGRAMS = ["test_sort", "test_join"]

pytestmark = in_c


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_kernels_do_what_their_plain_counterparts_do(tmp_path: Path, name: str) -> None:
    assert run(tmp_path, name, "-O1") == WELL


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_kernels_are_clean_under_sanitizers(tmp_path: Path, name: str) -> None:
    assert run_sanitized(tmp_path, name, level="-O1" if name == "test_sort" else "-O0") == WELL
