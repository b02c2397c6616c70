"""Compiles and runs the tests of `column_hash.h` and `scatter.h` that are written in C, also under sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.test_ring_in_c import COMPILER, run

pytestmark = [pytest.mark.slow, pytest.mark.skipif(COMPILER is None, reason="no C compiler")]


@pytest.mark.parametrize("options", [["-O3"], ["-O1", "-g", "-fsanitize=address,undefined"]])
def test_scattered_rows_and_hashes_are_those_of_plain_code(tmp_path: Path, options: list[str]) -> None:
    done = run(tmp_path, "test_scatter", *options)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")
