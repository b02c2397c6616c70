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


HEAPS = """
import sys, threading
from shmjet.host.allocator import share_one_heap
shared = share_one_heap() if sys.argv[1] == "share" else None
def reserved():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmSize"))
threading.stack_size(1 << 20)
before, begin, end = reserved(), threading.Barrier(5), threading.Barrier(5)
def work():
    begin.wait()
    blocks = [bytes(1000) for _ in range(1000)]
    end.wait()
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
begin.wait()
end.wait()
print(shared, (reserved() - before) // 1024)
"""


def answer(how: str, script: str = SCRIPT, **environment: str) -> list[str]:
    """What the setting answers, and what the script has counted then.

    That is how many pages 400 blocks of a million bytes take, or the MiB of address space that four threads take.
    """
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    found = subprocess.run(
        [sys.executable, "-c", script, how],
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


def test_threads_that_share_a_heap_take_no_address_space_for_one_each() -> None:
    said, reserved = answer("share", HEAPS)
    assert said == "True"
    assert int(reserved) < 128 <= int(answer("not", HEAPS)[1])


def test_heaps_that_the_user_has_set_stay() -> None:
    assert answer("share", HEAPS, MALLOC_ARENA_MAX="2")[0] == "False"
