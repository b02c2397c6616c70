"""Compiles and runs the tests of `ring/ring.h`, `ring/doorbell.h`, `ring/slab.h` and `link/packet.h` in C, also under
sanitizers.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.programs import WELL, in_c, run, run_sanitized

pytestmark = in_c


@pytest.mark.parametrize("name", ["test_ring", "test_slab"])
def test_promises_are_kept_between_threads(tmp_path: Path, name: str) -> None:
    """For as long as one likes: `stress/ring_races.py`."""
    assert run(tmp_path, name, "-O2") == WELL


@pytest.mark.parametrize(
    ("name", "sanitizers"),
    [
        *(("test_ring", each) for each in ("address,undefined", "thread")),
        *(("test_slab", each) for each in ("address,undefined", "thread")),
        ("test_packet", "address,undefined"),
    ],
)
def test_they_are_clean_under_sanitizers(tmp_path: Path, sanitizers: str, name: str) -> None:
    assert run_sanitized(tmp_path, name, "-Wno-tsan", sanitizers=sanitizers, level="-O1") == WELL
