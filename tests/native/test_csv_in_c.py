"""Compiles and runs the tests of `columns/csv.h`, `columns/lines.h` and `columns/csv_write.h` in C, under
sanitizers.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.programs import WELL, in_c, run_sanitized

pytestmark = in_c

WAYS = pytest.mark.parametrize(
    ("test", "options"),
    [("test_csv", ()), ("test_csv", ("-DCSV_WITHOUT_SIMD",)), ("test_csv_write", ())],
    ids=["simd", "words", "write"],
)


@WAYS
def test_csv_is_read_and_written_the_same_in_every_way(tmp_path: Path, test: str, options: tuple[str, ...]) -> None:
    assert run_sanitized(tmp_path, test, *options) == WELL
