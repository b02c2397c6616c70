"""Compiles and runs the tests of the text kernels that are written in C, also without SIMD, under sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.programs import WELL, in_c, run_sanitized

pytestmark = in_c


@pytest.mark.parametrize("options", [[], ["-DSHMJET_NO_SIMD"]], ids=["simd", "no simd"])
def test_words_are_split_folded_and_counted_as_slow_code_does(tmp_path: Path, options: list[str]) -> None:
    assert run_sanitized(tmp_path, "test_text", *options, argument=100) == WELL
