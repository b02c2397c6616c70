"""Small allocations find memory in the reserve when there is no other, and its owner can tell."""

from __future__ import annotations

import subprocess
import sys

import pytest

from shmjet._native import hold_reserve

BEGINNING = """
import resource
from shmjet._native import hold_reserve, release_reserve

def limit():
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used, resource.RLIM_INFINITY))

def fill(goes_on):
    try:
        while goes_on():
            kept.append(bytes(1000))
    except MemoryError:
        return False
    return True

def hold():
    return hold_reserve(2 << 20)

kept = []
assert hold() and hold()
limit()
"""


def run(program: str) -> list[str]:
    answer = subprocess.run(
        [sys.executable, "-c", BEGINNING + program], capture_output=True, text=True, check=True, timeout=60
    )
    return answer.stdout.split()


def test_small_allocations_take_from_the_reserve_and_its_owner_can_tell() -> None:
    assert run("print(fill(hold), hold())") == ["True", "False"]


def test_a_large_allocation_fails_and_leaves_the_reserve() -> None:
    program = """
try:
    bytearray(64 << 20)
except MemoryError:
    print("MemoryError", hold())
"""
    assert run(program) == ["MemoryError", "True"]


def test_a_part_is_left_for_saying_what_has_happened() -> None:
    program = """
full = fill(lambda: True)
before = len(kept)
release_reserve()
print(full, fill(lambda: len(kept) < before + 1000))
"""
    assert run(program) == ["False", "True"]


def test_it_is_held_again_where_there_is_room() -> None:
    program = """
fill(hold)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(hold())
"""
    assert run(program) == ["True"]


def test_no_reserve_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 byte"):
        hold_reserve(0)
