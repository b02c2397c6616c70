"""The settings of the allocator, in processes of their own: they cannot be taken back."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import resource, sys
from shmjet.host.allocator import keep_freed_memory
kept = keep_freed_memory() if sys.argv[1] == "keep" else None
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def work():
    for _ in range(50):
        blocks = [bytes(1_000_000) for _ in range(8)]
        del blocks
work()
before = faults()
work()
print(kept, faults() - before)
"""

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the settings are glibc's")


def answer(how: str, **environment: str) -> list[str]:
    """What `keep_freed_memory` answers, and how many pages 400 blocks of a million bytes take then."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT, how],
        env={**plain, "PYTHONPATH": str(ROOT), "PYTHONMALLOC": "malloc", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return found.stdout.split()


def test_freed_blocks_are_used_again_without_new_pages() -> None:
    said, pages = answer("keep")
    assert said == "True"
    assert int(pages) < 1000 < int(answer("not")[1])


def test_what_the_user_has_set_stays() -> None:
    assert answer("keep", MALLOC_TRIM_THRESHOLD_="131072")[0] == "False"
