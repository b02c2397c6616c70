"""Compiles and runs the tests of `columns/group.h` that are written in C, also under the address and undefined
sanitizers.
"""

from __future__ import annotations

from pathlib import Path

from tests.native.programs import WELL, in_c, run, run_sanitized

pytestmark = in_c


def test_groups_are_right(tmp_path: Path) -> None:
    assert run(tmp_path, "test_group", "-O1") == WELL


def test_groups_are_clean_under_sanitizers(tmp_path: Path) -> None:
    assert run_sanitized(tmp_path, "test_group") == WELL
