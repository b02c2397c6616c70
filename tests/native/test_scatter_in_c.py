"""Compiles and runs the tests of `columns/column_hash.h` and `columns/scatter.h` that are written in C, under
sanitizers.
"""

from __future__ import annotations

from pathlib import Path

from tests.native.programs import WELL, in_c, run_sanitized

pytestmark = in_c


def test_scattered_rows_and_hashes_are_those_of_plain_code(tmp_path: Path) -> None:
    assert run_sanitized(tmp_path, "test_scatter", argument=60_000) == WELL
