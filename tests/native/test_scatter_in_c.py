"""Compiles and runs the tests of `columns/column_hash.h` and `columns/scatter.h` that are written in C, also under
sanitizers.
"""

from __future__ import annotations

from pathlib import Path

from tests.native.programs import WELL, in_c, run, run_sanitized

pytestmark = in_c


def test_scattered_rows_and_hashes_are_those_of_plain_code(tmp_path: Path) -> None:
    assert run(tmp_path, "test_scatter", "-O1") == WELL


def test_they_are_clean_under_sanitizers(tmp_path: Path) -> None:
    assert run_sanitized(tmp_path, "test_scatter", argument=60_000) == WELL
