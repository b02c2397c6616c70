"""`bench/arrow.py` runs, and numbers are the same memory on both sides."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.bench.scripts import BENCH

pytest.importorskip("polars")


@pytest.mark.slow
def test_numbers_are_not_copied() -> None:
    command = [sys.executable, str(BENCH / "arrow.py"), "--json", "--quick"]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout
    found = {each["bench"]: each for each in map(json.loads, printed.splitlines())}
    assert {name: each["facts"]["shares memory"] for name, each in found.items()} == {
        "arrow_numbers_to_polars": True,
        "arrow_numbers_from_polars": True,
        "arrow_text_to_polars": False,
        "arrow_text_from_polars": False,
    }
    assert all(each["facts"]["rows"] == 1_000_000 for each in found.values())
