"""Compiles and runs the tests of the text kernels that are written in C, also without SIMD and under sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.programs import WELL, in_c, run, run_sanitized

pytestmark = in_c


@pytest.mark.parametrize("options", [["-O1"], ["-O1", "-DSHMJET_NO_SIMD"]], ids=["simd", "no simd"])
def test_words_are_split_folded_and_counted_as_slow_code_does(tmp_path: Path, options: list[str]) -> None:
    assert run(tmp_path, "test_text", *options, argument=600) == WELL


@pytest.mark.parametrize("options", [[], ["-DSHMJET_NO_SIMD"]], ids=["simd", "no simd"])
def test_the_text_kernels_are_clean_under_sanitizers(tmp_path: Path, options: list[str]) -> None:
    assert run_sanitized(tmp_path, "test_text", *options, argument=80, level="-O1") == WELL
