"""Compiles and runs the tests of `columns/group.h` that are written in C, under the address and undefined
sanitizers.
"""

from __future__ import annotations

from pathlib import Path

from tests.native.programs import WELL, in_c, run_sanitized

pytestmark = in_c


def test_groups_are_right(tmp_path: Path) -> None:
    assert run_sanitized(tmp_path, "test_group") == WELL
